// The time: a flame chart by op_name (by opcode, where there is none), a timeline, the roofline of the machine, and a table.

import { heat } from "viewer/colors.js";
import { scopeParts } from "viewer/scopes.js";
import { showSorted } from "viewer/table.js";
import { Timeline } from "viewer/timeline.js";
import { cut, duration, element, quantity, svg } from "viewer/words.js";

const ROW = 21;
const WIDTH = 1000;
const MOST_DEEP = 14;
const COLUMNS = [
  ["instruction", (row) => row.name, (row) => `%${cut(row.name, 34)}`],
  ["time", (row) => row.seconds, (row) => duration(row.seconds)],
  ["share", (row) => row.seconds, (row) => `${(100 * row.share).toFixed(1)} %`],
  ["runs", (row) => row.runs, (row) => `${row.runs}`],
  ["waiting", (row) => row.waiting, (row) => row.waiting ? duration(row.waiting) : ""],
  ["flop/s", (row) => row.flops * row.runs / row.seconds, (row) => row.flops ? quantity((row.flops * row.runs) / row.seconds, "flop/s") : ""],
  ["bytes/s", (row) => row.bytes * row.runs / row.seconds, (row) => quantity((row.bytes * row.runs) / row.seconds, "B/s")],
  ["of the limit", (row) => row.reached, (row) => `${Math.round(100 * row.reached)} %`],
  ["op_name", (row) => row.opName, (row) => cut(row.opName, 60)],
];

/** The tab of times; `reveal(name)` goes to an instruction of the compiled program. */
export class TimeView {
  constructor(place, data, program, { reveal }) {
    Object.assign(this, { data, program, reveal });
    this.rows = data.lines.map(([name, seconds, runs, flops, bytes, waiting]) => {
      const i = program.number(name);
      const level = data.levels.findIndex(([, size], n) => bytes <= size || n === data.levels.length - 1);
      return { name, seconds, runs, flops, bytes, waiting, level, opName: i < 0 ? "" : program.opName(i), opcode: i < 0 ? "?" : program.opcode(i) };
    });
    this.limits = limitsOf(this.rows, data);
    for (const row of this.rows) {
      const [flops, bandwidth] = [row.flops * row.runs, row.bytes * row.runs].map((amount) => amount / row.seconds);
      row.reached = row.seconds > 0 ? Math.max(flops / this.limits.flops, bandwidth / this.limits.bandwidths[row.level]) : 0;
    }
    this.total = this.rows.reduce((sum, row) => sum + row.seconds, 0);
    for (const row of this.rows) row.share = row.seconds / this.total;
    this.flames = element("div", { class: "flames" });
    this.table = element("table", { class: "times" });
    place.append(
      element("div", { class: "bar-of-tab" }, element("b", {}, `${duration(data.seconds)} in all${data.devices > 1 ? ` on ${data.devices} devices, in the mean:` : ""}`),
        element("span", { class: "hint" }, `${duration(this.total)} in instructions; this machine: ${quantity(data.flops, "flop/s")} in numpy's f32 matrix product, copies of ${data.levels.map(([name, , rate]) => `${quantity(rate, "B/s")} in ${name}`).join(", ")}`)),
      element("div", { class: "scrolled" }, this.flames, this.timeline(), this.roofline(), this.table));
    this.showFlames(this.tree());
    showSorted(this.table, COLUMNS, 1, this.rows, (row) => ({ onclick: () => this.reveal(row.name) }));
  }

  // -- flame chart

  /** Return the scopes of op_names as a tree: {title, seconds, children, name}. */
  tree() {
    const root = { title: this.program.name, seconds: 0, children: new Map() };
    for (const row of this.rows) {
      let at = root;
      at.seconds += row.seconds;
      const scopes = row.opName ? scopeParts(row.opName).slice(0, MOST_DEEP) : [row.opcode];
      for (const part of [...scopes, row.name]) {
        if (!at.children.has(part)) at.children.set(part, { title: part, seconds: 0, children: new Map(), parent: at });
        at = at.children.get(part);
        at.seconds += row.seconds;
      }
      at.name = row.name;
    }
    return root;
  }

  /** Show a part of the tree over the whole width; a click on a scope zooms, on an instruction reveals it. */
  showFlames(top) {
    const boxes = svg("g");
    let deepest = 0;
    const draw = (part, x, width, level) => {
      deepest = Math.max(deepest, level);
      const box = svg("g", { class: "flame", transform: `translate(${x} ${level * ROW})` });
      const rect = svg("rect", { width: Math.max(0.5, width - 0.6), height: ROW - 2, rx: 3 });
      rect.style.fill = heat(part.seconds / this.total);
      box.append(rect, svg("title", {}, `${part.title}: ${duration(part.seconds)}, ${((100 * part.seconds) / this.total).toFixed(1)} %`));
      if (width > 28) box.append(svg("text", { x: 5, y: 14 }, cut(part.title, Math.max(2, Math.floor(width / 7)))));
      box.addEventListener("click", () => (part.name ? this.reveal(part.name) : this.showFlames(part === top && part.parent ? part.parent : part)));
      boxes.append(box);
      let at = x;
      for (const child of [...part.children.values()].sort((a, b) => b.seconds - a.seconds)) {
        const wide = (width * child.seconds) / part.seconds;
        if (wide > 0.4) draw(child, at, wide, level + 1);
        at += wide;
      }
    };
    draw(top, 0, WIDTH, 0);
    this.flames.replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${(deepest + 1) * ROW}`, width: "100%" }, boxes));
  }

  // -- timeline

  timeline() {
    const { threads } = this.data;
    if (!threads.some(({ records }) => records.length)) return element("div");
    const words = "One run, by thread. The wheel scales, a double click shows all.";
    return element("div", {}, new Timeline(threads, { reveal: this.reveal }).place, element("div", { class: "hint" }, words));
  }

  // -- roofline

  roofline() {
    const kernels = this.rows.filter((row) => row.flops > 0 && row.bytes > 0 && row.seconds > 0);
    if (!kernels.length) return element("div");
    const { flops, bandwidths } = this.limits;
    const log = Math.log10;
    const intensity = kernels.map((row) => row.flops / row.bytes);
    const ridge = flops / bandwidths.at(-1);
    const [x0, x1] = [Math.floor(log(Math.min(...intensity, ridge))), Math.ceil(log(Math.max(...intensity, ridge * 2)))];
    const rates = kernels.map((row) => (row.flops * row.runs) / row.seconds);
    const [y0, y1] = [Math.floor(log(Math.min(...rates))), Math.ceil(log(flops))];
    const [w, h, left, bottom] = [WIDTH, 300, 74, 34];
    const x = (value) => left + ((log(value) - x0) / (x1 - x0)) * (w - left - 12);
    const y = (value) => 10 + (1 - (log(value) - y0) / (y1 - y0)) * (h - bottom - 10);
    const picture = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: "100%", class: "roofline" });
    for (let power = x0; power <= x1; power++) picture.append(...tick(x(10 ** power), 10, x(10 ** power), h - bottom, `${10 ** power}`, x(10 ** power), h - bottom + 14, "middle"));
    for (let power = y0; power <= y1; power++) picture.append(...tick(left, y(10 ** power), w, y(10 ** power), quantity(10 ** power, "flop/s"), left - 6, y(10 ** power) + 4, "end"));
    bandwidths.forEach((bandwidth, level) => {
      const start = Math.max(10 ** x0, 10 ** y0 / bandwidth);
      const end = Math.max(start, flops / bandwidth);
      picture.append(
        svg("path", { class: `roof level-${level}`, d: `M${x(start)} ${y(start * bandwidth)}L${x(end)} ${y(flops)}H${w - 12}` }),
        svg("text", { x: x(start) + 6, y: y(start * bandwidth) - 6 - 12 * level }, this.data.levels[level][0]));
    });
    picture.append(svg("text", { x: w / 2, y: h - 4, "text-anchor": "middle" }, "flops per byte"));
    const most = Math.max(...kernels.map((row) => row.seconds));
    kernels.forEach((row, n) => {
      const dot = svg("circle", { cx: x(intensity[n]), cy: y(rates[n]), r: 3 + 9 * Math.sqrt(row.seconds / most), class: "kernel" });
      const bytes = `${quantity(row.bytes, "B")} from ${this.data.levels[row.level][0]}`;
      dot.append(svg("title", {}, `%${row.name}: ${duration(row.seconds)}, ${quantity(rates[n], "flop/s")}, ${bytes}, ${Math.round(100 * row.reached)} % of the limit`));
      dot.addEventListener("click", () => this.reveal(row.name));
      picture.append(dot);
    });
    return element("div", { class: "flames" }, picture,
      element("div", { class: "hint" }, "Bytes count as read from the level that holds all of an instruction's operands and results. A limit is the best of the measurement and of this program's instructions."));
  }
}

/** Return the limits: what was measured, or what an instruction reached if that is more. */
function limitsOf(rows, { flops, levels }) {
  const bandwidths = levels.map(([, , bandwidth]) => bandwidth);
  let most = flops;
  for (const row of rows) {
    if (!(row.seconds > 0)) continue;
    most = Math.max(most, (row.flops * row.runs) / row.seconds);
    bandwidths[row.level] = Math.max(bandwidths[row.level], (row.bytes * row.runs) / row.seconds);
  }
  return { flops: most, bandwidths };
}

function tick(x1, y1, x2, y2, words, x, y, anchor) {
  return [svg("line", { x1, y1, x2, y2, class: "grid" }), svg("text", { x, y, "text-anchor": anchor }, words)];
}
