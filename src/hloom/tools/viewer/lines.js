// A list of lines of any length: only those in the window are in the document.

import { element } from "viewer/words.js";

const HEIGHT = 19;
const SPARE = 20;
const TALLEST = 15e6;

/** Show `count` lines; `render(number)` returns the HTML of one, `classOf(number)` its class. */
export class Lines {
  constructor(place, { onclick }) {
    this.inside = element("div", { class: "lines-inside" });
    this.place = place;
    this.place.classList.add("lines");
    this.place.replaceChildren(this.inside);
    this.place.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(place);
    this.inside.addEventListener("click", (event) => {
      const line = event.target.closest(".line");
      if (line) onclick(Number(line.dataset.number), event);
    });
    this.count = 0;
  }

  show(count, render, classOf = () => "") {
    Object.assign(this, { count, render, classOf, first: -1 });
    this.inside.style.height = `${Math.min(count * HEIGHT + 40, TALLEST)}px`;
    this.paint();
  }

  /** Return the factor by which the scroll bar is shorter than all lines together. */
  get squeeze() {
    return Math.max(1, (this.count * HEIGHT + 40) / TALLEST);
  }

  scrollTo(number) {
    const top = (number * HEIGHT) / this.squeeze - this.place.clientHeight / 3;
    this.place.scrollTop = Math.max(0, top);
    this.paint();
  }

  /** Render the lines again, for example when another one is marked. */
  refresh() {
    this.first = -1;
    this.paint();
  }

  paint() {
    if (!this.render || !this.place.clientHeight) return;
    const top = this.place.scrollTop;
    const first = Math.max(0, Math.floor((top * this.squeeze) / HEIGHT) - SPARE);
    if (first === this.first && this.height === this.place.clientHeight) return;
    this.first = first;
    this.height = this.place.clientHeight;
    const last = Math.min(this.count, first + Math.ceil(this.height / HEIGHT) + 2 * SPARE);
    let html = "";
    for (let number = first; number < last; number++) {
      const at = top + (number * HEIGHT - top * this.squeeze);
      html += `<div class="line ${this.classOf(number)}" data-number="${number}" style="top:${at}px">${this.render(number)}</div>`;
    }
    this.inside.innerHTML = html;
  }
}
