// The tree of groups in which a program is shown: computations, op_name scopes, and pieces of long lists.
// Children are made when a group is opened, so a program of any size costs only what is looked at.

const MOST_CHILDREN = 48;
const MOST_LOOSE = 8;

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
    if (!outermost && loose.some((i) => !isFramework(program, i))) break;
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
    else found.push(new Node(program, node, "bundle", title, classes[title], { items: leaves }));
  }
  return found;
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

/** Return the items, cut into groups of consecutive ones if there are too many to look at. */
function pieces(items, node) {
  if (items.length <= MOST_CHILDREN) return items;
  const levels = Math.ceil(Math.log(items.length) / Math.log(MOST_CHILDREN));
  const size = Math.ceil(items.length ** ((levels - 1) / levels));
  const found = [];
  for (let start = 0; start < items.length; start += size) {
    const inside = items.slice(start, start + size);
    const members = inside.flatMap((item) => item.members).sort((a, b) => a - b);
    const title = `${start + 1}–${start + inside.length}: ${pieceWords(node.program, members)}`;
    found.push(new Node(node.program, node, "piece", title, members, { items: inside }));
  }
  return found;
}

/** Return the names of the two instructions of a piece with the most arithmetic or bytes. */
function pieceWords(program, members) {
  const { flops, bytes } = program.columns;
  const kept = members.filter((i) => classOf(program, i) === "rest");
  const heaviest = (kept.length ? kept : members).toSorted((a, b) => flops[b] - flops[a] || bytes[b] - bytes[a]);
  return heaviest.slice(0, 2).map((i) => program.names[i]).join(", ");
}

/** Return the scopes of an instruction: its op_name without the last part, the primitive. */
function scopeOf(program, i) {
  program.scopes ??= scopesOf(program);
  return program.scopes[i];
}

function scopesOf(program) {
  const tables = program.columns.scope.table.map(scopeParts);
  const found = program.columns.scope.numbers.map((number) => tables[number]);
  // what feeds only one scope stands where it is used
  for (let i = program.count - 1; i >= 0; i--) {
    if (found[i].length || classOf(program, i) === "parameters" || program.isRoot(i)) continue;
    const users = program.users(i);
    if (users.length && users.every((user) => found[user].join("/") === found[users[0]].join("/"))) {
      found[i] = found[users[0]];
    }
  }
  return found;
}

/** Return the parts of an op_name before its last; slashes in parentheses do not separate. */
export function scopeParts(opName) {
  const parts = [];
  let depth = 0;
  let start = 0;
  for (let at = 0; at < opName.length; at++) {
    const letter = opName[at];
    if (letter === "(" || letter === "[") depth += 1;
    else if (letter === ")" || letter === "]") depth -= 1;
    else if (letter === "/" && depth <= 0) {
      parts.push(opName.slice(start, at));
      start = at + 1;
    }
  }
  return parts;
}
