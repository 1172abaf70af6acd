// The text of a program, linked with the graph.

import { highlighted } from "viewer/highlight.js";
import { Lines } from "viewer/lines.js";
import { element, withoutMetadata } from "viewer/words.js";

/** The text tab: `onselect(instruction)` when a line is chosen, `reveal(instruction)` to go to the graph. */
export class TextView {
  constructor(place, { onselect, reveal }) {
    this.withMetadata = false;
    this.form = "hlo";
    this.selected = -1;
    this.bar = element("div", { class: "bar-of-tab" });
    this.body = element("div");
    place.append(this.bar, this.body);
    this.lines = new Lines(this.body, {
      onclick: (number, event) => {
        const name = event.target.classList.contains("h-name") ? event.target.textContent.slice(1) : "";
        const there = name ? this.program.number(name) : -1;
        const i = there >= 0 && this.form === "hlo" ? there : this.instructionAt(number);
        if (i < 0) return;
        if (event.detail > 1 || event.target.closest(".goto")) return reveal(this.instructionAt(number));
        onselect(i);
        this.mark(i, i !== this.instructionAt(number));
      },
    });
  }

  /** Show a program; `code` has its LLVM IR and assembly, if it has been compiled. */
  show(program, code) {
    this.program = program;
    this.code = code;
    if (!code) this.form = "hlo";
    this.redraw();
  }

  redraw() {
    const forms = { hlo: "HLO", ...(this.code ? { llvm: "LLVM IR", assembly: "assembly" } : {}) };
    const choices = Object.entries(forms).map(([form, title]) => element("button", {
      class: this.form === form ? "chosen" : "", onclick: () => { this.form = form; this.redraw(); },
    }, title));
    const metadata = element("label", {}, element("input", {
      type: "checkbox", checked: this.withMetadata, onchange: (event) => { this.withMetadata = event.target.checked; this.redraw(); },
    }), "metadata");
    this.bar.replaceChildren(element("span", { class: "joined" }, ...choices), this.form === "hlo" ? metadata : this.kernelWords());
    if (this.form === "hlo") this.showHlo();
    else this.showCode();
  }

  showHlo() {
    const lines = this.program.lines;
    this.lines.show(lines.length, (number) => {
      const line = this.withMetadata ? lines[number] : withoutMetadata(lines[number]);
      const go = this.instructionAt(number) >= 0 ? '<a class="goto" title="show in the graph">◎</a>' : "";
      return `<span class="number">${number + 1}${go}</span>${highlighted(line)}`;
    }, (number) => (this.selected >= 0 && this.instructionAt(number) === this.selected ? "selected" : ""));
    if (this.selected >= 0) this.lines.scrollTo(this.program.lineOf(this.selected));
  }

  // -- code of the chosen kernel

  showCode() {
    const { lines, range } = this.kernel();
    const [first, last] = range;
    this.lines.show(last - first, (number) => `<span class="number">${first + number + 1}</span>${highlighted(lines[first + number], "code")}`);
    this.body.scrollTop = 0;
  }

  kernel() {
    const lines = this.code[this.form].lines;
    const name = this.selected >= 0 ? this.program.names[this.selected] : "";
    const range = this.code[this.form].kernels[this.code.kernelOf[name]];
    return { lines, range: range ?? [0, lines.length], found: Boolean(range), name };
  }

  kernelWords() {
    const { found, name } = this.kernel();
    const text = found ? `the kernel of %${name}` : name ? `%${name} has no kernel of its own: the whole program` : "the whole program";
    return element("span", { class: "hint" }, text);
  }

  // -- selection

  instructionAt(number) {
    if (this.form !== "hlo") return -1;
    this.program.lines;
    return this.program.instructionAt[number] ?? -1;
  }

  /** Mark the line of an instruction; bring it into view if asked. */
  mark(i, scroll = true) {
    this.selected = i;
    if (this.form !== "hlo") return this.redraw();
    this.lines.refresh();
    if (scroll && i >= 0 && this.body.clientHeight) this.lines.scrollTo(this.program.lineOf(i));
  }
}
