// The panel beside the graph: all that is known of the selected instruction or group.

import { SCHEMES } from "viewer/colors.js";
import { layoutPicture } from "viewer/shape.js";
import { cut, duration, element, quantity, separated } from "viewer/words.js";

const MOST_LISTED = 40;

/** Show a node in the panel; `actions` are reveal, around, pathFrom, pathTo, showText, toggle. */
export function showDetails(panel, program, node, actions) {
  if (!node) return panel.replaceChildren(...overview(program));
  panel.replaceChildren(...(node.instruction < 0 ? group(node, actions) : instruction(program, node, actions)));
  panel.scrollTop = 0;
}

function overview(program) {
  const total = (column) => program.columns[column].reduce((sum, n, i) => sum + (own(program, i) ? n * program.runs(i) : 0), 0);
  return [
    element("h2", {}, program.name),
    table([
      ["instructions", program.count.toLocaleString("en")],
      ["computations", program.computations.length.toLocaleString("en")],
      ["flops", quantity(total("flops"))],
      ["transcendentals", quantity(total("transcendentals"))],
      ["bytes moved", quantity(total("bytes"), "B")],
    ]),
    section("Opcodes", counts(program)),
    element("p", { class: "hint" }, "Double-click a group to open it, click a node for its details. Press ? for the keys."),
  ];
}

/** Return whether an instruction counts in totals: not a call of others, which count themselves. */
function own(program, i) {
  const computation = program.computationOf[i];
  const fused = program.opcode(program.caller(computation)) === "fusion";
  return !fused && (program.opcode(i) === "fusion" || !program.nested(i).length)
    && (computation === program.entry || program.caller(computation) >= 0);
}

function counts(program) {
  const found = new Map();
  for (let i = 0; i < program.count; i++) found.set(program.opcode(i), (found.get(program.opcode(i)) ?? 0) + 1);
  const rows = [...found].sort((a, b) => b[1] - a[1]);
  return element("div", { class: "bars" }, ...rows.slice(0, 24).map(([opcode, count]) => {
    const bar = element("i");
    bar.style.width = `${(100 * count) / rows[0][1]}%`;
    return element("div", { class: "bar" }, element("span", {}, opcode), element("b", {}, `${count}`), bar);
  }));
}

function group(node, actions) {
  const { program } = node;
  const sum = (column) => node.members.reduce((total, i) => total + program.columns[column][i] * program.runs(i), 0);
  return [
    element("div", { class: "kicker" }, { scope: "op_name scope", piece: "part of a list", bundle: "bundle", computation: "computation" }[node.kind]),
    element("h2", {}, node.title),
    element("div", { class: "actions" }, button(node.open ? "Close" : "Open", () => actions.toggle(node))),
    table([
      ["instructions", node.all.length.toLocaleString("en")],
      ["flops", quantity(sum("flops"))],
      ["transcendentals", quantity(sum("transcendentals"))],
      ["bytes moved", quantity(sum("bytes"), "B")],
    ]),
    section("Instructions", links(program, node.members, actions)),
  ];
}

function instruction(program, node, actions) {
  const i = node.instruction;
  const steps = element("input", { type: "number", min: 1, max: 20, value: 2, title: "depth" });
  const frames = program.frames(i);
  return [
    element("div", { class: "kicker" }, program.opcode(i) + (program.isRoot(i) ? " · root" : "")),
    element("h2", {}, `%${program.names[i]}`),
    element("div", { class: "actions" },
      node.isGroup && button(node.open ? "Close" : "Open", () => actions.toggle(node)),
      button("Text", () => actions.showText(i), "show its line in the text (t)"),
      element("span", { class: "joined" }, button("Around", () => actions.around(i, Number(steps.value)), "show what is near (a)"), steps),
      button("Path from", () => actions.pathFrom(i), "start of a path"),
      button("Path to", () => actions.pathTo(i), "end of a path"),
    ),
    element("pre", { class: "value-shape" }, program.shape(i)),
    layoutPicture(program.shape(i)),
    table([
      ["op_name", program.opName(i)],
      ["source", program.source(i)],
      ["sharding", program.sharding(i)],
      ...attributes(program, i),
    ]),
    section("Cost", table(costs(program, i))),
    frames.length > 0 && section("Call stack", element("ol", { class: "frames" }, ...frames.map(([name, place]) =>
      element("li", {}, element("b", {}, name), " ", element("span", {}, place))))),
    section(`Operands (${program.operands(i).length})`, links(program, program.operands(i), actions)),
    section(`Users (${program.users(i).length})`, links(program, program.users(i), actions)),
  ].filter(Boolean);
}

function costs(program, i) {
  const columns = program.columns;
  const runs = program.runs(i);
  const seconds = program.seconds?.get(program.names[i]);
  return [
    ["flops", columns.flops[i] ? quantity(columns.flops[i]) : ""],
    ["transcendentals", columns.transcendentals[i] ? quantity(columns.transcendentals[i]) : ""],
    ["bytes moved", quantity(columns.bytes[i], "B")],
    ["result", quantity(columns.size[i], "B")],
    ["flops per byte", columns.bytes[i] && columns.flops[i] ? (columns.flops[i] / columns.bytes[i]).toPrecision(3) : ""],
    ["runs", runs > 1 ? `${runs}×` : ""],
    ["trip count", program.trips.has(i) ? `${program.trips.get(i) ?? "unknown"}` : ""],
    [SCHEMES.time.title, seconds === undefined ? "" : duration(seconds)],
  ];
}

/** Return the attributes in the text of an instruction, without those that have their own rows. */
export function attributes(program, i) {
  const line = program.lines[program.lineOf(i)] ?? "";
  const start = line.indexOf(`${program.opcode(i)}(`);
  const rows = start < 0 ? [] : separated(line.slice(closing(line, start + program.opcode(i).length) + 1), ",");
  return rows.map((row) => {
    const text = row.trim();
    const at = text.indexOf("=");
    return [text.slice(0, at), text.slice(at + 1)];
  }).filter(([name]) => name && !["metadata", "sharding"].includes(name));
}

function closing(line, open) {
  let depth = 0;
  for (let at = open; at < line.length; at++) {
    if (line[at] === "(") depth += 1;
    if (line[at] === ")" && --depth === 0) return at;
  }
  return line.length;
}

// -- pieces of the panel

function table(rows) {
  const shown = rows.filter(([, value]) => value !== "" && value !== undefined);
  return element("dl", {}, ...shown.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function section(title, content) {
  return content && element("section", {}, element("h3", {}, title), content);
}

function links(program, instructions, actions) {
  if (!instructions.length) return null;
  const rows = instructions.slice(0, MOST_LISTED).map((i) => element("li", {},
    element("a", { href: "#", onclick: (event) => { event.preventDefault(); actions.reveal(i); } }, `%${cut(program.names[i], 40)}`),
    " ", element("span", {}, cut(program.shape(i), 40))));
  const rest = instructions.length - rows.length;
  return element("ul", { class: "links-list" }, ...rows, rest > 0 && element("li", {}, `… ${rest} more`));
}

function button(text, onclick, title) {
  return element("button", { onclick, title }, text);
}
