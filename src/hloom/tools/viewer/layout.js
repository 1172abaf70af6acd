// Positions of the nodes of open groups. dagre lays out one group at a time, innermost first; a group that
// has not changed keeps its layout.

import { Graph, layout as dagre } from "dagre";
import { cut, quantity, shortShape } from "viewer/words.js";

export const HEADER = 30;
const PADDING = 14;
const LETTER = 7.3;
const MOST_LETTERS = 34;
const MOST_LABELLED = 40;
const MOST_RANKED = 40;

/** Give every visible node its place in its parent (x, y), its size (w, h), and edges their points. */
export function arrange(node) {
  if (!node.isGroup || !node.open) {
    Object.assign(node, collapsedSize(node));
    node.arranged = "";
    return;
  }
  for (const child of node.children) arrange(child);
  const state = node.children.map((child) => `${child.w}x${child.h}`).join();
  if (node.arranged === state) return;
  node.arranged = state;
  placeChildren(node);
}

/** Forget the layout of open groups, for example when labels change. */
export function forget(node) {
  node.arranged = "";
  for (const child of node.children_ ?? []) forget(child);
}

/** Return the two lines of text of a node. */
export function labels(node) {
  const { program, instruction } = node;
  if (instruction < 0) return [cut(node.title, MOST_LETTERS), `${quantity(node.all.length)} instructions`];
  const name = program.names[instruction];
  const opcode = program.opcode(instruction);
  const title = name.replaceAll("_", "-").startsWith(opcode) ? name : `${opcode} · ${name}`;
  return [cut(title, MOST_LETTERS), cut(shortShape(program.shape(instruction)), MOST_LETTERS)];
}

function collapsedSize(node) {
  const [first, second] = labels(node);
  const letters = Math.max(first.length, second.length * 0.92);
  return { w: Math.max(70, Math.round(letters * LETTER + (node.isGroup ? 46 : 22))), h: 44 };
}

function placeChildren(node) {
  const graph = new Graph({ multigraph: false });
  const ranker = node.children.length <= MOST_RANKED ? "network-simplex" : "longest-path";
  graph.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 10, ranksep: 36, ranker, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const child of node.children) graph.setNode(child.key, { width: child.w, height: child.h });
  const labelled = shownEdges(node).length <= MOST_LABELLED;
  node.shownEdges = shownEdges(node);
  for (const edge of node.shownEdges) {
    edge.text = labelled ? edgeText(node.program, edge) : "";
    const size = edge.text ? { width: edge.text.length * 5.8 + 6, height: 12, labelpos: "c" } : {};
    graph.setEdge(edge.from.key, edge.to.key, size);
  }
  dagre(graph);
  const { width, height } = graph.graph();
  for (const child of node.children) {
    const place = graph.node(child.key);
    child.x = PADDING + place.x - child.w / 2;
    child.y = HEADER + PADDING + place.y - child.h / 2;
  }
  for (const edge of node.shownEdges) {
    const found = graph.edge(edge.from.key, edge.to.key);
    edge.points = found.points.map(({ x, y }) => ({ x: x + PADDING, y: y + HEADER + PADDING }));
    edge.label = edge.text && { x: found.x + PADDING, y: found.y + HEADER + PADDING };
  }
  const title = labels(node)[0].length * LETTER + 120;
  node.w = Math.max(title, (Number.isFinite(width) ? width : 0) + 2 * PADDING);
  node.h = (Number.isFinite(height) ? height : 0) + HEADER + 2 * PADDING;
}

/** Return the edges to draw: between the pieces of a list, which depend on most others, only consecutive ones. */
function shownEdges(node) {
  if (!node.children.some((child) => child.kind === "piece")) return node.edges;
  const place = new Map(node.children.map((child, number) => [child, number]));
  return node.edges.filter((edge) => place.get(edge.to) === place.get(edge.from) + 1);
}

/** Return the shape of the only value on an edge, or the number of values. */
export function edgeText(program, edge) {
  if (edge.values.size > 1) return `${edge.values.size} values`;
  return cut(shortShape(program.shape([...edge.values][0])), 26);
}
