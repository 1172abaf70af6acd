// Colours of nodes: by family of opcodes, by sharding, by proof, or by an amount on a scale.

import { quantity, duration } from "viewer/words.js";

const FAMILIES = {
  input: ["parameter", "constant", "iota", "infeed", "recv", "recv-done", "partition-id", "replica-id"],
  contraction: ["dot", "convolution", "ragged-dot", "scaled-dot", "cholesky", "triangular-solve", "fft"],
  reduction: ["reduce", "reduce-window", "select-and-scatter", "sort", "topk", "scan", "batch-norm-training",
    "batch-norm-inference", "batch-norm-grad"],
  movement: ["reshape", "transpose", "broadcast", "slice", "concatenate", "pad", "gather", "scatter", "reverse",
    "dynamic-slice", "dynamic-update-slice", "copy", "copy-start", "copy-done", "bitcast", "dynamic-reshape"],
  control: ["while", "conditional", "call", "fusion", "custom-call", "async-start", "async-update", "async-done", "map"],
  collective: ["all-reduce", "all-gather", "all-to-all", "collective-permute", "collective-broadcast",
    "reduce-scatter", "ragged-all-to-all", "send", "send-done", "outfeed", "all-reduce-start", "all-reduce-done",
    "all-gather-start", "all-gather-done", "collective-permute-start", "collective-permute-done"],
  structure: ["tuple", "get-tuple-element", "after-all", "opt-barrier", "domain", "add-dependency"],
  random: ["rng", "rng-bit-generator", "rng-get-and-update-state", "stochastic-convert"],
};
const familyOf = new Map(Object.entries(FAMILIES).flatMap(([name, opcodes]) => opcodes.map((each) => [each, name])));

/** The schemes to choose from: an amount has a function of an instruction to a number. */
export const SCHEMES = {
  opcode: { title: "opcode" },
  flops: { title: "flops", amount: (program, i) => program.columns.flops[i] * program.runs(i), words: (n) => quantity(n, "flop") },
  bytes: { title: "bytes moved", amount: (program, i) => program.columns.bytes[i] * program.runs(i), words: (n) => quantity(n, "B") },
  memory: { title: "size of the result", amount: (program, i) => program.columns.size[i], words: (n) => quantity(n, "B"), largest: true },
  time: { title: "time", amount: (program, i) => program.seconds?.get(program.names[i]) ?? 0, words: duration },
  sharding: { title: "sharding" },
  proof: { title: "proof" },
};

/** Colours and words by the state of an instruction in the proof. */
const PROOF_STATES = [["var(--cold)", "not compared"], ["var(--matched)", "computed before"], ["var(--unmatched)", "not computed before"]];

/** Return the family of an opcode, the name of a CSS colour. */
export function family(opcode) {
  return familyOf.get(opcode) ?? "elementwise";
}

/** Return the amount of a node: of an instruction with what it runs, or of all members of a group. */
export function amount(scheme, node) {
  const of = SCHEMES[scheme].amount;
  const values = node.members.map((i) => of(node.program, i));
  return SCHEMES[scheme].largest ? Math.max(0, ...values) : values.reduce((sum, value) => sum + value, 0);
}

/** Return the CSS background of a node; `most` is the largest amount of the scale. */
export function fill(scheme, node, most) {
  const { program, instruction } = node;
  if (scheme === "sharding") return shardingColor(instruction < 0 ? "" : program.sharding(instruction));
  if (scheme === "proof") return PROOF_STATES[proofState(node)][0];
  if (scheme === "opcode") return instruction < 0 ? "var(--group)" : `var(--${family(program.opcode(instruction))})`;
  return heat(most ? amount(scheme, node) / most : 0);
}

/** Return the colour of a fraction of the scale; small fractions are still told apart. */
export function heat(fraction) {
  if (!(fraction > 0)) return "var(--cold)";
  const strength = Math.round(100 * Math.max(0.06, Math.sqrt(fraction)));
  return `color-mix(in oklab, var(--hot) ${strength}%, var(--cold))`;
}

/** Return the state of a node: of an instruction, or of a group: unmatched if a member is. */
function proofState({ program, members }) {
  return Math.max(0, ...members.map((i) => program.proof?.[i] ?? 0));
}

function shardingColor(text) {
  if (!text) return "var(--cold)";
  let hash = 7;
  for (const letter of text) hash = (hash * 31 + letter.charCodeAt(0)) % 360;
  return `oklch(var(--tint-lightness) 0.11 ${hash})`;
}

/** Return the entries of the legend: [colour, words]. */
export function legend(scheme, nodes, most) {
  if (scheme === "opcode") {
    const present = new Set(nodes.filter((n) => n.instruction >= 0).map((n) => family(n.program.opcode(n.instruction))));
    return [...present].sort().map((name) => [`var(--${name})`, name]);
  }
  if (scheme === "sharding") {
    const present = new Set(nodes.filter((n) => n.instruction >= 0).map((n) => n.program.sharding(n.instruction)));
    return [...present].slice(0, 12).map((text) => [shardingColor(text), text || "no sharding"]);
  }
  if (scheme === "proof") return PROOF_STATES;
  const { words } = SCHEMES[scheme];
  return [0, 0.1, 0.5, 1].map((part) => [heat(part), words(part * most)]);
}
