// The tree of groups in which a program is shown: computations, scopes, and pieces of long lists.
// Children are made when a group is opened, so a program of any size costs only what is looked at.

import { parameterPath, scopesOf, stemOf } from "viewer/scopes.js";

const MOST_CHILDREN = 48;
const MOST_LOOSE = 8;
/** A scope that holds all but one in so many instructions is no group of its own. */
const MOST_BESIDE = 8;

/**
 * A group or an instruction in the tree.
 * key: numbers of children on the way from the root; it is stable, so that links can name it.
 * kind: "computation", "scope", "piece" of a long list, "bundle" of parameters or constants, or "instruction".
 * instruction: number of the instruction, or -1 for a group.
 * members: the instructions of the group's computation that are inside of it, ascending.
 */
export class Node {
  constructor(program, parent, kind, title, members, { instruction = -1, depth = 0, items = null } = {}) {
    this.program = program;
    this.parent = parent;
    this.kind = kind;
    this.title = title;
    this.members = members;
    this.instruction = instruction;
    this.depth = depth;
    this.items = items;
    this.children_ = null;
    this.open = false;
    this.key = "";
  }

  get isGroup() {
    return this.instruction < 0 || this.program.nested(this.instruction).length > 0;
  }

  /** Return the children, with their keys set. */
  get children() {
    if (!this.children_) {
      this.children_ = this.isGroup ? made(this) : [];
      this.children_.forEach((child, i) => {
        child.parent = this;
        child.key = `${this.key}${this.key ? "." : ""}${i}`;
      });
    }
    return this.children_;
  }

  /** Return all instructions in the group and in the computations that they run. */
  get all() {
    if (!this.all_) {
      this.all_ = [];
      const waiting = [...this.members];
      while (waiting.length) {
        const i = waiting.pop();
        this.all_.push(i);
        for (const [, computation] of this.program.nested(i)) {
          for (const member of membersOf(this.program, computation)) waiting.push(member);
        }
      }
    }
    return this.all_;
  }

  /** Return the child that holds a member; members are those of the group's own computation. */
  childOf(member) {
    if (!this.owners) {
      this.owners = new Map();
      for (const child of this.children) for (const i of child.members) this.owners.set(i, child);
    }
    return this.owners.get(member);
  }

  /** Return the edges between children: {from, to, values}, the values being instructions. */
  get edges() {
    if (this.edges_) return this.edges_;
    const found = new Map();
    const add = (from, to, value, control) => {
      const [a, b] = [this.childOf(from), this.childOf(to)];
      if (!a || !b || a === b) return;
      const key = `${a.key}>${b.key}`;
      if (!found.has(key)) found.set(key, { from: a, to: b, values: new Set(), control });
      const edge = found.get(key);
      edge.values.add(value);
      edge.control &&= control;
    };
    for (const child of this.children) {
      for (const i of child.members) for (const operand of this.program.operands(i)) add(operand, i, operand, false);
    }
    for (const [before, after] of this.program.columns.control) add(before, after, before, true);
    this.edges_ = [...found.values()];
    return this.edges_;
  }
}

/** Return the root: the entry computation. */
export function rootOf(program) {
  const entry = program.entry;
  const root = new Node(program, null, "computation", program.computations[entry].name, membersOf(program, entry));
  root.open = true;
  return root;
}

/** Return the node of an instruction; its ancestors need not be open. */
export function nodeOf(root, instruction) {
  const program = root.program;
  const way = [instruction];
  for (;;) {
    const caller = program.caller(program.computationOf[way[0]]);
    if (caller < 0 || way.includes(caller)) break;
    way.unshift(caller);
  }
  if (program.computationOf[way[0]] !== program.entry) return null;
  let node = root;
  for (const i of way) {
    while (node && node.instruction !== i) node = node.children.find((child) => child.members.includes(i));
    if (!node) return null;
  }
  return node;
}

/** Return the node of a key, or null. */
export function nodeAt(root, key) {
  let node = root;
  for (const number of key.split(".").filter(Boolean)) node = node?.children[Number(number)];
  return node ?? null;
}

function membersOf(program, computation) {
  const { first, count } = program.computations[computation];
  return Array.from({ length: count }, (_, i) => first + i);
}

function made(node) {
  const { program } = node;
  if (node.items) return pieces(node.items, node);
  if (node.instruction < 0) return scoped(node, node.members, node.depth);
  const called = program.nested(node.instruction).map(([role, computation]) => {
    const title = `${role}: ${program.computations[computation].name}`;
    const child = new Node(program, node, "computation", title, membersOf(program, computation));
    child.open = true;
    return child;
  });
  return called.length === 1 ? scoped(node, called[0].members, 0) : called;
}

/** Return the children of a list of members at a depth of their scopes. */
function scoped(node, members, depth) {
  const { program } = node;
  let groups;
  let loose;
  for (;;) {
    groups = new Map();
    loose = [];
    for (const i of members) {
      const part = scopeOf(program, i)[depth];
      if (part === undefined) loose.push(i);
      else if (groups.has(part)) groups.get(part).push(i);
      else groups.set(part, [i]);
    }
    if (groups.size !== 1) break;
    const outermost = /^p?jit\(/.test([...groups.keys()][0]) && depth < 2;
    if (!outermost && loose.filter((i) => !isFramework(program, i)).length * MOST_BESIDE > members.length) break;
    depth += 1;
  }
  const items = [];
  for (const [part, inside] of groups) {
    if (inside.length === 1) items.push(leaf(node, inside[0]));
    else items.push(named(node, part, inside, depth + 1));
  }
  items.push(...bundled(node, loose));
  items.sort((a, b) => a.members[0] - b.members[0]);
  return pieces(items, node);
}

/** Return a scope group; a chain of scopes that hold nothing else is one group. */
function named(node, part, inside, depth) {
  const names = [part];
  const { program } = node;
  for (;;) {
    const next = scopeOf(program, inside[0])[depth];
    if (next === undefined || inside.some((i) => scopeOf(program, i)[depth] !== next)) break;
    names.push(next);
    depth += 1;
  }
  return new Node(program, node, "scope", names.join("/"), inside, { depth });
}

/** Return loose instructions as nodes; many parameters, or many constants, are one group. */
function bundled(node, loose) {
  const { program } = node;
  const classes = { parameters: [], constants: [], rest: [] };
  for (const i of loose) classes[classOf(program, i)].push(i);
  const found = classes.rest.map((i) => leaf(node, i));
  for (const title of ["parameters", "constants"]) {
    const leaves = classes[title].map((i) => leaf(node, i));
    if (leaves.length <= MOST_LOOSE) found.push(...leaves);
    else {
      const items = title === "parameters" ? byPath(node, classes[title], 0) : leaves;
      found.push(new Node(program, node, "bundle", title, classes[title], { items }));
    }
  }
  return found;
}

/** Return parameters as nodes, grouped by the parts of their names: params, layers, 0. */
function byPath(node, parameters, depth) {
  const { program } = node;
  const groups = new Map();
  for (const i of parameters) {
    const part = parameterPath(program, i)[depth] ?? program.names[i];
    groups.set(part, [...(groups.get(part) ?? []), i]);
  }
  const longest = Math.max(...parameters.map((i) => parameterPath(program, i).length));
  if (groups.size === 1 && parameters.length > 1 && depth < longest) return byPath(node, parameters, depth + 1);
  return [...groups].flatMap(([title, inside]) => {
    if (inside.length === 1) return [leaf(node, inside[0])];
    const items = depth < longest ? byPath(node, inside, depth + 1) : inside.map((i) => leaf(node, i));
    return [new Node(program, node, "scope", title, inside, { items })];
  });
}

function classOf(program, i) {
  const opcode = program.opcode(i);
  if (opcode === "parameter") return "parameters";
  if (opcode === "constant" || opcode === "iota") return "constants";
  const first = program.columns.operands[program.firstOperand[i]];
  return opcode === "get-tuple-element" && program.opcode(first) === "parameter" ? "parameters" : "rest";
}

function isFramework(program, i) {
  return program.isRoot(i) || classOf(program, i) !== "rest";
}

function leaf(node, i) {
  return new Node(node.program, node, "instruction", node.program.names[i], [i], { instruction: i });
}

/** Return the items; of too many to look at, loose ones and numbered scopes are grouped, then any neighbours. */
function pieces(items, node) {
  let shown = items;
  if (shown.length > MOST_CHILDREN) shown = looseRuns(shown, node);
  if (shown.length > MOST_CHILDREN) shown = numberedRuns(shown, node);
  if (shown.length <= MOST_CHILDREN) return shown;
  const levels = Math.ceil(Math.log(shown.length) / Math.log(MOST_CHILDREN));
  const size = Math.ceil(shown.length ** ((levels - 1) / levels));
  const found = [];
  for (let start = 0; start < shown.length; start += size) {
    const inside = shown.slice(start, start + size);
    found.push(pieceOf(node, `${start + 1}–${start + inside.length}: `, inside));
  }
  return found;
}

/** Return the items with each run of single instructions between scopes as one piece. */
function looseRuns(items, node) {
  if (!items.some((item) => item.kind === "scope")) return items;
  return runs(items, (item) => (item.kind === "instruction" ? "loose" : null)).flatMap((run) =>
    (run.length > 2 && run[0].kind === "instruction" ? [pieceOf(node, "", run)] : run));
}

/** Return the items with runs of scopes that differ in their number, such as layer_0 and layer_1, in pieces. */
function numberedRuns(items, node) {
  const size = Math.ceil(items.length / (MOST_CHILDREN / 2));
  return runs(items, (item) => (item.kind === "scope" ? stemOf(item.title) : null)).flatMap((run) => {
    if (run.length <= size) return run;
    const found = [];
    for (let start = 0; start < run.length; start += size) {
      const inside = run.slice(start, start + size);
      const piece = pieceOf(node, "", inside);
      piece.title = `${inside[0].title} – ${inside.at(-1).title}`;
      found.push(piece);
    }
    return found;
  });
}

/** Return consecutive items of equal keys as lists; items without a key stand alone. */
function runs(items, keyOf) {
  const found = [];
  let last = null;
  for (const item of items) {
    const key = keyOf(item);
    if (key !== null && key === last) found.at(-1).push(item);
    else found.push([item]);
    last = key;
  }
  return found;
}

function pieceOf(node, title, inside) {
  const members = inside.flatMap((item) => item.members).sort((a, b) => a - b);
  return new Node(node.program, node, "piece", title + pieceWords(node.program, members), members, { items: inside });
}

/** Return the names of the two instructions of a piece with the most arithmetic or bytes. */
function pieceWords(program, members) {
  const { flops, bytes } = program.columns;
  const kept = members.filter((i) => classOf(program, i) === "rest");
  const heaviest = (kept.length ? kept : members).toSorted((a, b) => flops[b] - flops[a] || bytes[b] - bytes[a]);
  return heaviest.slice(0, 2).map((i) => program.names[i]).join(", ");
}

/** Return the scopes of an instruction. */
function scopeOf(program, i) {
  program.scopes ??= scopesOf(program, (each) => classOf(program, each) === "parameters");
  return program.scopes[i];
}
