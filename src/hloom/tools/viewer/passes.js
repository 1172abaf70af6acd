// The passes: a slider through the stages of a program, and what changed from one to the next.

import { difference } from "viewer/difference.js";
import { highlighted } from "viewer/highlight.js";
import { Lines } from "viewer/lines.js";
import { element, withoutMetadata } from "viewer/words.js";

const AROUND = 3;
const MOST_REWRITES = 1000;

/**
 * The tab of passes; `choose(number)` shows a stage, `reveal(name)` goes to an instruction, and
 * `revealRewrite(step, name)` shows the program after a rewrite and goes to the instruction that it rewrote.
 */
export class PassesView {
  constructor(place, stages, { choose, reveal, revealRewrite }) {
    Object.assign(this, { stages, choose, revealRewrite });
    this.whole = false;
    this.slider = element("input", { type: "range", oninput: () => choose(Number(this.slider.value)) });
    this.title = element("b");
    this.counts = element("span", { class: "hint" });
    const step = (by) => () => choose(Math.min(Number(this.slider.max), Math.max(Number(this.slider.min), Number(this.slider.value) + by)));
    const whole = element("input", { type: "checkbox", onchange: () => { this.whole = whole.checked; this.list(); } });
    this.names = element("ol", { class: "stages" });
    this.rewrites = element("details", { class: "rewrites" });
    this.body = element("div");
    place.append(
      element("div", { class: "bar-of-tab" }, element("button", { onclick: step(-1), title: "previous ([)" }, "‹"), this.slider,
        element("button", { onclick: step(1), title: "next (])" }, "›"), this.title, this.counts, element("span", { class: "gap" }), element("label", {}, whole, "whole text")),
      element("div", { class: "columns" }, this.names, element("div", { class: "changes" }, this.rewrites, this.body)));
    this.lines = new Lines(this.body, {
      onclick: (number, event) => {
        const name = event.target.closest(".h-name")?.textContent ?? /%[^\s=]+(?= = )/.exec(this.shown[number][1] ?? "")?.[0];
        if (name) reveal(name.slice(1));
      },
    });
  }

  /**
   * Show what changed from `before` to `program`: stage `number`, or rewrite `step` of it. `first` and `last` are
   * the stages of its program.
   */
  show(number, before, program, first, last, step) {
    const { title, rewrites } = this.stages[number];
    if (this.first !== first) this.listStages(first, last);
    this.slider.value = number;
    this.title.textContent = `${number - first}. ${title}${step ? `, rewrite ${step} of ${rewrites.length}` : ""}`;
    [...this.names.children].forEach((item, i) => item.classList.toggle("chosen", i === number - first));
    this.names.children[number - first].scrollIntoView({ block: "nearest" });
    this.rows = before ? difference(before.lines.map(withoutMetadata), program.lines.map(withoutMetadata)) : program.lines.map((line, i) => ["kept", line, i]);
    const count = (kind) => this.rows.filter((row) => row[0] === kind).length;
    this.counts.textContent = before ? `+${count("added")} −${count("removed")} lines, ${program.count - before.count} instructions` : "the program as given";
    this.listRewrites(rewrites, step);
    this.list();
  }

  listStages(first, last) {
    this.first = first;
    Object.assign(this.slider, { min: first, max: last });
    this.names.replaceChildren(...this.stages.slice(first, last + 1).map((stage, number) =>
      element("li", { onclick: () => this.choose(first + number), title: stage.title }, element("span", {}, stage.title), element("small", {}, `${stage.count}`))));
  }

  /** List the rewrites of a pass; a click shows the program after it. */
  listRewrites(rewrites, step) {
    this.rewrites.hidden = !rewrites.length;
    this.rewrites.replaceChildren(element("summary", {}, `${rewrites.length} rewrites`), element("ol", {}, ...rewrites.slice(0, MOST_REWRITES).map((words, i) => {
      const name = /%([^\s,]+)/.exec(words)?.[1] ?? "";
      return element("li", { class: i + 1 === step ? "chosen" : "", onclick: () => this.revealRewrite(i + 1, name) }, words);
    })));
    if (rewrites.length > MOST_REWRITES) this.rewrites.append(element("div", { class: "hint" }, `and ${rewrites.length - MOST_REWRITES} more`));
  }

  list() {
    const changes = this.rows.some(([kind]) => kind !== "kept");
    this.shown = this.whole || !changes ? this.rows : folded(this.rows);
    const signs = { kept: " ", added: "+", removed: "−", fold: " " };
    this.lines.show(this.shown.length, (number) => {
      const [kind, line, at] = this.shown[number];
      if (kind === "fold") return `<span class="number"></span>⋯ ${line}`;
      return `<span class="number">${at + 1} ${signs[kind]}</span>${highlighted(line)}`;
    }, (number) => this.shown[number][0]);
    this.body.scrollTop = 0;
    this.lines.refresh();
  }
}

/** Return rows with the unchanged ones far from any change folded to one. */
function folded(rows) {
  const near = new Uint8Array(rows.length);
  rows.forEach(([kind], at) => {
    if (kind !== "kept") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
  });
  const found = [];
  for (let at = 0; at < rows.length;) {
    if (near[at]) {
      found.push(rows[at++]);
      continue;
    }
    const start = at;
    while (at < rows.length && !near[at]) at += 1;
    found.push(["fold", `${at - start} unchanged lines`, start]);
  }
  return found;
}
