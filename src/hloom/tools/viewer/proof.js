// The proof: whether each stage computes what the one before it does, and which instructions they share.

import { highlighted } from "viewer/highlight.js";
import { Lines } from "viewer/lines.js";
import { element, withoutMetadata } from "viewer/words.js";

const STATES = ["", "matched", "unmatched"];

/** The tab of proofs; `choose(number)` shows a stage, `reveal(name)` goes to an instruction of the later program. */
export class ProofView {
  constructor(place, stages, proofs, { choose, reveal }) {
    Object.assign(this, { stages, proofs, choose });
    this.verdict = element("div", { class: "verdict" });
    this.names = element("ol", { class: "stages" });
    this.bodies = [element("div"), element("div")];
    place.append(element("div", { class: "columns" }, this.names, element("div", { class: "changes" }, this.verdict, element("div", { class: "columns" }, ...this.bodies))));
    this.lines = this.bodies.map((body, side) => new Lines(body, {
      onclick: (line, event) => {
        const i = this.programs[side].instructionAt[line];
        if (i < 0) return;
        if (event.detail > 1 && side) reveal(this.programs[1].names[i]);
        this.mark(side, i);
      },
    }));
  }

  /** Show the verdict on stage `number`; `first` and `last` are the stages of its program. */
  show(number, before, program, first, last) {
    this.names.replaceChildren(...this.stages.slice(first, last + 1).map((stage, n) => element("li", {
      onclick: () => this.choose(first + n), class: n === number - first ? "chosen" : "", title: stage.title,
    }, element("span", {}, stage.title), element("small", { class: className(this.proofs[first + n]) }, this.proofs[first + n]?.relation ?? ""))));
    this.proof = this.proofs[number];
    this.programs = [before, program];
    this.selected = [-1, -1];
    this.verdict.replaceChildren(...verdictWords(this.proof));
    this.bodies[0].hidden = !this.proof;
    this.lines.forEach((lines, side) => this.list(lines, side));
  }

  list(lines, side) {
    const program = this.programs[side];
    if (!program) return;
    const states = this.proof?.[side ? "after" : "before"] ?? [];
    const texts = program.lines;
    const stateOf = (line) => states[program.instructionAt[line]] ?? 0;
    lines.show(texts.length, (line) => `<span class="number">${line + 1}</span>${highlighted(withoutMetadata(texts[line]))}`,
      (line) => `${STATES[stateOf(line)]} ${this.selected[side] >= 0 && program.instructionAt[line] === this.selected[side] ? "selected" : ""}`);
    lines.scrollTo(Math.max(0, texts.findIndex((_, line) => stateOf(line) === 2)));
  }

  /** Mark an instruction, and the one of the other program that computes the same value. */
  mark(side, i) {
    const pair = this.proof?.pairs.find((each) => each[side] === i);
    this.selected[side] = i;
    this.selected[1 - side] = pair ? pair[1 - side] : -1;
    this.lines.forEach((lines, each) => {
      if (each !== side && pair) lines.scrollTo(this.programs[each].lineOf(pair[each]));
      lines.refresh();
    });
  }
}

function className(proof) {
  return proof ? (proof.proved ? "proved" : proof.relation) : "";
}

/** Return the verdict in words: the relation, its reason, what tells the programs apart, the colours. */
function verdictWords(proof) {
  if (!proof) return [element("span", { class: "hint" }, "the program as given")];
  const { relation, certain, error_bits: bits, reason, inputs, differences, instruction, origin } = proof;
  const note = certain ? " (certain)" : bits ? ` (wrong with a probability below 2^-${bits})` : "";
  const wrong = differences.filter((each) => each.wrong).map((each) => `${each.result} ${each.shape}: ${each.wrong} of ${each.elements} elements differ for ${inputs}`);
  const culprit = instruction ? [`the first value that the program before does not compute: ${instruction}`, origin && `at ${origin}`] : [];
  return [
    element("div", {}, element("b", { class: className(proof) }, relation), note),
    ...[reason, ...wrong, ...culprit].filter(Boolean).map((words) => element("div", {}, words)),
    element("div", { class: "legend-of-proof" }, element("i", { class: "matched" }), "computed by both", element("i", { class: "unmatched" }), "by one alone", element("i"), "not compared"),
  ];
}
