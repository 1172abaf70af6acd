// The timeline: when each instruction ran, a band of rows for each thread; nested instructions lie below loops.

import { cleared } from "viewer/canvas.js";
import { cut, duration, element, hashOf } from "viewer/words.js";

const ROW = 18;
const GAP = 10;
const LEFT = 110;
const AXIS = 22;
const LEAST_SPAN = 1e-8;

/** The picture of recorded times; `reveal(name)` goes to an instruction of the compiled program. */
export class Timeline {
  constructor(threads, { reveal }) {
    this.reveal = reveal;
    this.boxes = [];
    this.bands = [];
    let row = 0;
    for (const { title, names, records } of threads) {
      const depth = nested(records);
      this.bands.push({ title, row, rows: Math.max(0, ...depth) + 1 });
      records.forEach(([name, start, end], n) => this.boxes.push({ name: names[name], start, end, row: row + depth[n] }));
      row += this.bands.at(-1).rows + GAP / ROW;
    }
    this.whole = [0, Math.max(LEAST_SPAN, ...this.boxes.map((box) => box.end))];
    this.range = [...this.whole];
    this.canvas = element("canvas", { class: "timeline-picture" });
    this.tip = element("div", { class: "tip", hidden: true });
    this.place = element("div", { class: "timeline" }, this.canvas, this.tip);
    this.place.style.height = `${AXIS + row * ROW + GAP}px`;
    new ResizeObserver(() => this.paint()).observe(this.place);
    this.listen();
  }

  x(time) { return LEFT + ((time - this.range[0]) / (this.range[1] - this.range[0])) * (this.width - LEFT - 8); }
  time(x) { return this.range[0] + ((x - LEFT) / (this.width - LEFT - 8)) * (this.range[1] - this.range[0]); }

  paint() {
    const picture = cleared(this.canvas);
    if (!picture) return;
    const { pen, color } = picture;
    [this.width, this.height] = [picture.width, picture.height];
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

  // -- mouse

  listen() {
    const { canvas } = this;
    canvas.addEventListener("mousemove", (event) => {
      const box = this.boxAt(event.offsetX, event.offsetY);
      this.tip.hidden = !box;
      if (!box) return;
      this.tip.textContent = `%${box.name} · ${duration(box.end - box.start)} from ${duration(box.start)}`;
      this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 14, this.width - 330))}px`;
      this.tip.style.top = `${event.offsetY + 14}px`;
    });
    canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("click", (event) => {
      const box = this.boxAt(event.offsetX, event.offsetY);
      if (box) this.reveal(box.name);
    });
    canvas.addEventListener("dblclick", () => this.show(...this.whole));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const middle = this.time(event.offsetX);
      const factor = Math.exp(event.deltaY * 0.0015);
      this.show(...this.range.map((end) => middle + (end - middle) * factor));
    }, { passive: false });
  }

  /** Show a range of seconds, within that of the whole run. */
  show(start, end) {
    const from = Math.max(this.whole[0], start);
    this.range = [from, Math.min(this.whole[1], Math.max(end, from + LEAST_SPAN))];
    this.paint();
  }

  boxAt(x, y) {
    const [time, row] = [this.time(x), (y - AXIS) / ROW];
    return x < LEFT ? null : this.boxes.find((box) => box.start <= time && time <= box.end && box.row <= row && row < box.row + 1);
  }
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
