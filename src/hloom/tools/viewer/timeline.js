// The timeline: when each instruction ran, a band of rows for each thread; nested instructions lie below loops.

import { Chart } from "viewer/canvas.js";
import { cut, duration, element, hashOf } from "viewer/words.js";

const ROW = 18;
const GAP = 10;
const LEFT = 110;
const AXIS = 22;
const LEAST_SPAN = 1e-8;

/** The picture of recorded times; `reveal(name)` goes to an instruction of the compiled program. */
export class Timeline extends Chart {
  constructor(threads, { reveal }) {
    const { boxes, bands, rows } = placed(threads);
    super("timeline-picture", { left: LEFT, right: 8, whole: [0, Math.max(LEAST_SPAN, ...boxes.map((box) => box.end))], least: LEAST_SPAN });
    Object.assign(this, { boxes, bands });
    this.place = element("div", { class: "timeline" }, this.canvas, this.tip);
    this.place.style.height = `${AXIS + rows * ROW + GAP}px`;
    new ResizeObserver(() => this.paint()).observe(this.place);
    this.canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      const box = this.boxAt(offsetX, offsetY);
      if (box) reveal(box.name);
    });
    this.canvas.addEventListener("dblclick", () => this.show(...this.whole));
  }

  draw(pen, color) {
    this.paintAxis(pen, color);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width - LEFT, this.height);
    pen.clip();
    for (const box of this.boxes) this.paintBox(pen, color, box);
    pen.restore();
    pen.fillStyle = color("--dim");
    for (const { title, row } of this.bands) pen.fillText(cut(title, 17), 4, AXIS + row * ROW + 13);
  }

  paintAxis(pen, color) {
    pen.fillStyle = color("--dim");
    pen.strokeStyle = color("--line");
    pen.textAlign = "center";
    for (let n = 0; n <= 6; n++) {
      const time = this.range[0] + (n / 6) * (this.range[1] - this.range[0]);
      const x = this.x(time);
      pen.fillText(duration(time), Math.min(this.width - 26, Math.max(LEFT + 18, x)), 13);
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.height);
      pen.stroke();
    }
    pen.textAlign = "left";
  }

  paintBox(pen, color, box) {
    if (box.end < this.range[0] || box.start > this.range[1]) return;
    const [x, end] = [Math.max(LEFT - 2, this.x(box.start)), Math.min(this.width, this.x(box.end))];
    const width = Math.max(0.7, end - x - 0.3);
    pen.fillStyle = color(`--box-${hashOf(box.name) % 6}`);
    pen.fillRect(x, AXIS + box.row * ROW, width, ROW - 2);
    if (width > 40) {
      pen.fillStyle = color("--ink");
      pen.fillText(cut(box.name, Math.floor(width / 6.5)), x + 4, AXIS + box.row * ROW + 12);
    }
  }

  words(box) {
    return `%${box.name} · ${duration(box.end - box.start)} from ${duration(box.start)}`;
  }

  boxAt(x, y) {
    const [time, row] = [this.valueAt(x), (y - AXIS) / ROW];
    return x < LEFT ? null : this.boxes.find((box) => box.start <= time && time <= box.end && box.row <= row && row < box.row + 1);
  }
}

/** Return the records of threads as boxes in rows, the band of rows of each thread, and the number of all rows. */
function placed(threads) {
  const boxes = [];
  const bands = [];
  let rows = 0;
  for (const { title, names, records } of threads) {
    const depth = nested(records);
    records.forEach(([name, start, end], n) => boxes.push({ name: names[name], start, end, row: rows + depth[n] }));
    bands.push({ title, row: rows });
    rows += Math.max(0, ...depth) + 1 + GAP / ROW;
  }
  return { boxes, bands, rows };
}

/** Return how many records hold each record; records are in ascending order of their starts, outer ones first. */
function nested(records) {
  const open = [];
  return records.map(([, start, end]) => {
    while (open.length && open.at(-1) <= start) open.pop();
    open.push(end);
    return open.length - 1;
  });
}
