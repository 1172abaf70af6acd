// The sharding: what the devices send, why, what lives in their memory, and what else could be done.

import { showSorted } from "viewer/table.js";
import { cut, duration, element, quantity } from "viewer/words.js";

const MOST = 2000;
const SHORT = 36;
const COLUMNS = [
  ["collective", (row) => row.opcode, (row) => row.opcode],
  ["number", (row) => row.number, (row) => `${row.number}`],
  ["axis", (row) => row.axes, (row) => row.axes || "–"],
  ["of", (row) => row.members, (row) => `${row.members}`],
  ["bytes", (row) => row.bytes, (row) => quantity(row.bytes, "B")],
  ["times", (row) => row.times, (row) => `${row.times}`],
  ["per step", (row) => row.total, (row) => quantity(row.total, "B")],
  ["estimate", (row) => row.seconds, (row) => duration(row.seconds)],
  ["needed by", (row) => row.why.instruction, (row) => row.why.instruction ? `%${cut(row.why.instruction, 26)}` : "the result"],
  ["op_name, line", (row) => row.op_name || row.why.op_name, (row) => origin(row.op_name || row.source ? row : row.why)],
  ["tiles", (row) => row.why.before, (row) => row.why.before ? `${row.why.before} → ${row.why.after}` : ""],
  ["why", (row) => row.why.reason, (row) => cut(row.why.reason, 70)],
];
const PER_STEP = COLUMNS.findIndex(([title]) => title === "per step");

/** The tab of sharding; `reveal(name)` goes to an instruction of the given program. */
export class ShardingView {
  constructor(place, data, program, { reveal }) {
    Object.assign(this, { data, program, reveal });
    this.rows = grouped(data.collectives);
    this.collectives = element("table", { class: "times collectives" });
    place.append(this.head(), element("div", { class: "scrolled" },
      this.chosen = element("div", { class: "reason" }, "A row says why when it is chosen, and leads to the instruction that needs it."), this.collectives,
      ...this.section("To consider, each by itself", data.suggestions.map((one) => [
        `${one.text}: ${saved(one.saved_bytes)} in a step, ${saved(one.saved_memory)} at the peak (${one.verified})`, one.instructions[0]])),
      ...this.section("Conflicts: incompatible shardings", data.conflicts.map((one) => [
        `%${one.instruction}: kept ${one.kept.join("; ") || "nothing"}; not ${one.lost.join("; ")}`, one.instruction])),
      ...this.section("Replicated", data.replicated_arrays.map((one) => [
        `%${one.name} ${one.shape}: ${quantity(one.bytes, "B")}${one.is_annotated ? ", annotated" : ", not annotated"}` +
        (one.saved ? `; dimension ${one.dimension} over ${one.axis} saves ${quantity(one.saved, "B")}` : ""), one.name])),
      ...this.section(`Live at the peak, during %${data.memory.at}`, data.memory.peak.map((one) => [
        `${quantity(one.bytes, "B")}  %${one.name} ${one.shape} ${origin(one)}`, one.name]))));
    showSorted(this.collectives, COLUMNS, PER_STEP, this.rows, (row) => ({ title: explanation(row), onclick: () => this.choose(row) }));
  }

  head() {
    const { devices, mesh, bytes_per_step: sent, seconds, peak_bytes: peak, capacity, fits } = this.data;
    const axes = Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`).join(", ");
    const room = capacity === null ? "" : `, ${fits ? "fits into" : "does not fit into"} ${quantity(capacity, "B")}`;
    return element("div", { class: "bar-of-tab" },
      element("b", {}, `${devices} devices${axes && ` (${axes})`}`),
      element("span", { class: "hint" }, `each sends ${quantity(sent, "B")} in a step, about ${duration(seconds)}; memory ${quantity(peak, "B")} at the peak${room}`));
  }

  /** Return a heading and lines that lead to instructions; nothing without lines. */
  section(title, lines) {
    if (!lines.length) return [];
    return [element("h3", {}, title), element("table", { class: "times lines-of-sharding" }, ...lines.slice(0, MOST).map(([words, name]) =>
      element("tr", { onclick: () => this.reveal(name) }, element("td", {}, words))))];
  }

  /** Show all that is known about a collective, and go to the instruction that needs it. */
  choose(row) {
    this.chosen.textContent = explanation(row);
    const name = [row.why.instruction, row.why.value].find((each) => each && this.program.number(each) >= 0);
    if (name) this.reveal(name);
  }
}

/** Return collectives of the same size, origin and purpose as one row, with their number and all bytes. */
function grouped(collectives) {
  const rows = new Map();
  for (const one of collectives) {
    const { opcode, axes, bytes, times, op_name: opName, source, why } = one;
    const key = JSON.stringify([opcode, axes, bytes, times, opName, source, why.kind, why.opcode, why.before, why.after]);
    const row = rows.get(key) ?? { ...one, number: 0, total: 0, seconds: 0 };
    rows.set(key, { ...row, number: row.number + 1, total: row.total + one.bytes_per_step, seconds: row.seconds + one.seconds });
  }
  return [...rows.values()];
}

/** Return the framework's operation and the source line, shortened. */
function origin({ op_name: opName, source }) {
  return [cut(opName, SHORT), source.split("/").at(-1)].filter(Boolean).join(", ");
}

function saved(count) {
  return count >= 0 ? `saves ${quantity(count, "B")}` : `takes ${quantity(-count, "B")} more`;
}

/** Return why a collective is needed, in lines. */
function explanation({ why, number, op_name: opName, source }) {
  const others = number > 1 ? ` (and ${number - 1} more like it)` : "";
  const lines = [`${why.instruction && `%${why.instruction}${others}: `}${why.reason}`, ...why.origins, [opName, source].filter(Boolean).join(", ")];
  if (why.other_bytes > why.bytes && why.bytes >= 0) lines.push(`sends ${quantity(why.bytes, "B")}; the second cheapest assignment ${quantity(why.other_bytes, "B")}`);
  return lines.join("\n");
}
