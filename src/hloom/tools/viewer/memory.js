// The memory: live bytes over the schedule, and every temporary as a box of time and offset.

import { Chart } from "viewer/canvas.js";
import { element, hashOf, partOfShape, quantity } from "viewer/words.js";

const TOP = 130;
const LEFT = 74;
const BOTTOM = 26;
const MOST_LISTED = 60;

/** The tab of memory; `reveal(name)` goes to an instruction of the compiled program. */
export class MemoryView extends Chart {
  constructor(place, data, program, { reveal }) {
    const steps = 2 * data.steps + 2; // half steps: an instruction reads at 2p and writes at 2p + 1
    super("chart", { left: LEFT, right: 10, whole: [0, steps], least: 8 });
    Object.assign(this, { data, program, reveal, steps });
    this.boxes = data.buffers.flatMap(([offset, size, spans, users]) =>
      spans.map(([first, last]) => ({ offset, size, first, last, users })));
    this.live = liveBytes(this.boxes, this.steps);
    this.peak = this.live.indexOf(Math.max(...this.live));
    this.at = this.peak;
    this.list = element("div", { class: "peak" });
    const picture = element("div", { class: "picture-of-memory" }, this.canvas, this.tip);
    place.append(this.head(), element("div", { class: "columns" }, picture, this.list));
    new ResizeObserver(() => this.paint()).observe(picture);
    this.canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      const box = this.boxAt(offsetX, offsetY);
      if (box) this.reveal(nameIn(box));
      this.showAt(Math.min(this.steps - 1, Math.max(0, Math.floor(this.valueAt(offsetX)))));
    });
    this.showAt(this.peak);
  }

  head() {
    const { fixed, arena } = this.data;
    const words = Object.entries(fixed).filter(([, size]) => size).map(([kind, size]) => `${kind}s ${quantity(size, "B")}`);
    return element("div", { class: "bar-of-tab" },
      element("b", {}, `arena ${quantity(arena, "B")}`),
      element("span", { class: "hint" }, `at most ${quantity(this.live[this.peak], "B")} of it live at once; ${words.join(", ")}`),
      element("span", { class: "gap" }),
      element("button", { onclick: () => this.showAt(this.peak) }, "Peak"),
      element("button", { onclick: () => this.show(...this.whole) }, "All"));
  }

  // -- picture

  y(offset) { return TOP + 20 + (1 - offset / Math.max(1, this.data.arena)) * (this.height - TOP - 20 - BOTTOM); }

  draw(pen, color) {
    this.paintLive(pen, color);
    this.paintBoxes(pen, color);
    pen.strokeStyle = color("--hot");
    pen.beginPath();
    pen.moveTo(this.x(this.at + 0.5), 10);
    pen.lineTo(this.x(this.at + 0.5), this.height - BOTTOM);
    pen.stroke();
  }

  paintLive(pen, color) {
    const most = Math.max(1, this.live[this.peak]);
    const height = (bytes) => TOP - (bytes / most) * (TOP - 24);
    pen.fillStyle = color("--live");
    pen.beginPath();
    pen.moveTo(this.x(0), TOP);
    this.live.forEach((bytes, step) => {
      pen.lineTo(this.x(step), height(bytes));
      pen.lineTo(this.x(step + 1), height(bytes));
    });
    pen.lineTo(this.x(this.live.length), TOP);
    pen.fill();
    pen.clearRect(0, 0, LEFT, TOP + 6);
    pen.fillStyle = color("--dim");
    pen.textAlign = "right";
    pen.fillText(quantity(most, "B"), LEFT - 8, 28);
    pen.fillText("0", LEFT - 8, TOP);
    pen.fillText(quantity(this.data.arena, "B"), LEFT - 8, this.y(this.data.arena) + 10);
    pen.fillText("0", LEFT - 8, this.y(0));
    pen.textAlign = "center";
    pen.fillText("steps of the schedule", (LEFT + this.width) / 2, this.height - 8);
  }

  paintBoxes(pen, color) {
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, this.width - LEFT, this.height - TOP);
    pen.clip();
    pen.textAlign = "left";
    for (const box of this.boxes) {
      if (box.last < this.range[0] || box.first > this.range[1]) continue;
      const [x, y, w, h] = this.placed(box);
      const live = box.first <= this.at && this.at <= box.last;
      pen.fillStyle = color(`--box-${hashOf(nameIn(box)) % 6}`);
      pen.globalAlpha = live ? 1 : 0.55;
      pen.fillRect(x, y, w, h);
      pen.strokeStyle = color("--panel");
      pen.strokeRect(x, y, w, h);
      pen.globalAlpha = 1;
      if (w > 60 && h > 13) {
        pen.fillStyle = color("--ink");
        pen.fillText(nameIn(box), x + 4, y + Math.min(h / 2 + 4, 14), w - 8);
      }
    }
    pen.restore();
  }

  placed(box) {
    const [x, y] = [this.x(box.first), this.y(box.offset + box.size)];
    return [x, y, Math.max(1, this.x(box.last + 1) - x), Math.max(1, this.y(box.offset) - y)];
  }

  words(box) {
    return `%${nameIn(box)} · ${quantity(box.size, "B")} at ${quantity(box.offset, "B")}, steps ${box.first >> 1}–${box.last >> 1}`;
  }

  boxAt(x, y) {
    return this.boxes.find((box) => {
      const [left, top, w, h] = this.placed(box);
      return x >= left && x <= left + w && y >= top && y <= top + h && x > LEFT;
    });
  }

  // -- what is live at a step

  showAt(step) {
    this.at = step;
    this.paint();
    const { program } = this;
    const live = this.boxes.filter((box) => box.first <= step && step <= box.last);
    live.sort((a, b) => b.size - a.size);
    const rows = live.slice(0, MOST_LISTED).map((box) => {
      const name = nameIn(box);
      const i = program.number(name);
      const part = valueIn(box)[2];
      const shape = i < 0 ? "" : partOfShape(program.shape(i), part);
      const words = [part && (part === "workspace" ? part : `element ${part}`), shape, i < 0 ? "" : program.opName(i)].filter(Boolean).join(" · ");
      const source = i < 0 ? "" : program.source(i);
      return element("tr", { onclick: () => this.reveal(name) }, element("td", {}, quantity(box.size, "B")),
        element("td", {}, element("b", {}, `%${name}`), element("div", { class: "hint" }, words), source && element("div", { class: "hint" }, source)));
    });
    const title = step === this.peak ? "Live at the peak" : "Live";
    const at = this.data.positions.findLastIndex((position) => position <= step >> 1);
    this.list.replaceChildren(element("h3", {}, `${title}, step ${step >> 1}: ${quantity(this.live[step] ?? 0, "B")}`),
      element("div", { class: "hint" }, at >= 0 ? `%${this.data.schedule[at]} runs` : ""),
      element("table", {}, ...rows));
  }
}

/** Return the bytes that are live at each half step. */
function liveBytes(boxes, steps) {
  const changes = new Float64Array(steps + 2);
  for (const { first, last, size } of boxes) {
    changes[first] += size;
    changes[Math.min(steps, last) + 1] -= size;
  }
  let bytes = 0;
  return Array.from({ length: steps }, (_, step) => (bytes += changes[step]));
}

/** Return the value that a box holds, of the instruction that runs when it begins: [name, position, part]. */
function valueIn(box) {
  const inside = box.users.filter(([, position]) => 2 * position + 1 >= box.first && 2 * position <= box.last);
  return inside[0] ?? box.users[0];
}

function nameIn(box) {
  return valueIn(box)[0];
}
