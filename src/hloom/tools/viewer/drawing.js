// SVG elements of nodes and edges.

import { fill } from "viewer/colors.js";
import { HEADER, labels } from "viewer/layout.js";
import { svg } from "viewer/words.js";

const MOST_NAMED = 12;

/** Return the elements of a node and of all that is open in it, and list the visible nodes in `seen`. */
export function drawn(node, look, seen, x = 0, y = 0, level = 0) {
  node.ax = x;
  node.ay = y;
  seen.push(node);
  const open = node.isGroup && node.open;
  const made = svg("g", { class: classes(node, open, look), transform: `translate(${node.x ?? 0} ${node.y ?? 0})` });
  made.node = node;
  node.element = made;
  const box = svg("rect", { width: node.w, height: node.h, rx: open ? 10 : 7, class: "box" });
  if (!open) box.style.fill = fill(look.scheme, node, look.most);
  else if (node.instruction >= 0 && look.scheme !== "opcode") {
    box.style.fill = `color-mix(in srgb, ${fill(look.scheme, node, look.most)} 45%, transparent)`;
  }
  made.append(box);
  if (open && level % 2) made.classList.add("odd");
  if (open) drawGroup(made, node, look, seen, level);
  else drawClosed(made, node);
  return made;
}

function classes(node, open, look) {
  const names = ["node", node.kind, open ? "open" : "closed"];
  if (node.isGroup) names.push("group");
  if (look.changed?.size && node.members.some((i) => look.changed.has(node.program.names[i]))) names.push("changed");
  if (node.instruction >= 0 && node.program.isRoot(node.instruction)) names.push("root");
  return names.join(" ");
}

function drawGroup(made, node, look, seen, level) {
  const [first, second] = labels(node);
  made.append(
    svg("text", { x: 34, y: 20, class: "title" }, first),
    svg("text", { x: node.w - 12, y: 20, class: "aside" }, node.kind === "instruction" ? `${node.all.length - 1} instructions` : second),
    toggle(12, 8, true),
  );
  const edges = svg("g", { class: "edges" });
  for (const edge of node.shownEdges) edges.append(...drawnEdge(node.program, edge));
  made.append(edges);
  for (const child of node.children) made.append(drawn(child, look, seen, node.ax + child.x, node.ay + child.y, level + 1));
}

function drawClosed(made, node) {
  const [first, second] = labels(node);
  const middle = node.w / 2 + (node.isGroup ? 8 : 0);
  made.append(
    svg("text", { x: middle, y: 18, class: "name" }, first),
    svg("text", { x: middle, y: 34, class: "shape" }, second),
  );
  if (node.isGroup) made.append(toggle(8, 15, false));
}

function toggle(x, y, open) {
  const made = svg("g", { class: "toggle", transform: `translate(${x} ${y})` });
  made.append(
    svg("rect", { width: 14, height: 14, rx: 3 }),
    svg("path", { d: open ? "M3.5 7h7" : "M3.5 7h7M7 3.5v7" }),
  );
  return made;
}

function drawnEdge(program, edge) {
  const made = [svg("path", { d: curve(edge.points), class: edge.control ? "edge control" : "edge" })];
  const values = [...edge.values];
  const words = values.slice(0, MOST_NAMED).map((i) => `%${program.names[i]}: ${program.shape(i)}`);
  if (values.length > MOST_NAMED) words.push(`… ${values.length - MOST_NAMED} more`);
  made[0].append(svg("title", {}, words.join("\n")));
  if (edge.label) made.push(svg("text", { x: edge.label.x, y: edge.label.y + 4, class: "edge-label" }, edge.text));
  return made;
}

/** Return a smooth path through points: curves that meet at the middles of the straight pieces. */
export function curve(points) {
  const [start, ...rest] = points;
  let path = `M${start.x} ${start.y}`;
  for (let i = 0; i < rest.length - 1; i++) {
    const [a, b] = [rest[i], rest[i + 1]];
    const last = i === rest.length - 2;
    const end = last ? b : { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    path += `Q${a.x} ${a.y} ${end.x} ${end.y}`;
  }
  if (rest.length === 1) path += `L${rest[0].x} ${rest[0].y}`;
  return path;
}

/** Return a path from the bottom of one visible node to the top of another. */
export function link(from, to, kind) {
  const start = { x: from.ax + from.w / 2, y: from.ay + from.h };
  const end = { x: to.ax + to.w / 2, y: to.ay + (to.isGroup && to.open ? HEADER : 0) };
  const bend = Math.max(24, Math.abs(end.y - start.y) / 2);
  const d = `M${start.x} ${start.y}C${start.x} ${start.y + bend} ${end.x} ${end.y - bend} ${end.x} ${end.y}`;
  return svg("path", { d, class: `link ${kind}` });
}
