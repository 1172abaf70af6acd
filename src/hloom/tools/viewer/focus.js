// Parts of a program: what is around an instruction, and what is on the ways between two.

import { Node } from "viewer/tree.js";

const MOST = 250;

/** Return the instructions at most `depth` edges away, nearest first, in the same computation. */
export function around(program, instruction, depth) {
  const found = new Set([instruction]);
  let edge = [instruction];
  for (let step = 0; step < depth; step++) {
    const next = [];
    for (const i of edge) {
      for (const near of [...program.operands(i), ...program.users(i)]) {
        if (found.has(near) || found.size >= MOST) continue;
        found.add(near);
        next.push(near);
      }
    }
    edge = next;
  }
  return [...found];
}

/** Return the instructions on the ways from one to the other, or the other way round; empty if none. */
export function between(program, a, b) {
  const [from, to] = sameComputation(program, a, b);
  for (const [start, end] of [[from, to], [to, from]]) {
    const below = reached(start, (i) => program.users(i));
    if (!below.has(end)) continue;
    const above = reached(end, (i) => program.operands(i));
    return [...below].filter((i) => above.has(i)).slice(0, MOST);
  }
  return [];
}

function reached(start, next) {
  const found = new Set([start]);
  const waiting = [start];
  while (waiting.length) {
    for (const i of next(waiting.pop())) {
      if (!found.has(i)) {
        found.add(i);
        waiting.push(i);
      }
    }
  }
  return found;
}

/** Replace instructions by their callers until both are in one computation. */
function sameComputation(program, a, b) {
  const callers = (i) => {
    const chain = [];
    for (let at = i; at >= 0 && !chain.includes(at); at = program.caller(program.computationOf[at])) chain.push(at);
    return chain;
  };
  for (const x of callers(a)) {
    for (const y of callers(b)) if (program.computationOf[x] === program.computationOf[y]) return [x, y];
  }
  return [a, b];
}

/** Return a flat tree of instructions to show instead of the program. */
export function partTree(program, title, instructions) {
  const members = [...instructions].sort((a, b) => a - b);
  const root = new Node(program, null, "piece", title, members, { items: [] });
  root.children_ = members.map((i, number) => {
    const child = new Node(program, root, "instruction", program.names[i], [i], { instruction: i });
    child.key = `${number}`;
    return child;
  });
  root.open = true;
  return root;
}
