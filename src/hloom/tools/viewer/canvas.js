// Canvases: pictures drawn by a pen, in the colours of the page and at the density of the screen.

import { element } from "viewer/words.js";

/** Clear a canvas to a size, its parent's; return the pen, the size, and the colours by name; null if hidden. */
export function cleared(canvas, { clientWidth: width, clientHeight: height } = canvas.parentElement) {
  if (!width) return null;
  const density = window.devicePixelRatio || 1;
  canvas.width = width * density;
  canvas.height = height * density;
  const pen = canvas.getContext("2d");
  pen.scale(density, density);
  pen.font = "11px system-ui, sans-serif";
  const style = getComputedStyle(canvas);
  return { pen, width, height, color: (name) => style.getPropertyValue(name) };
}

/**
 * A chart of boxes along a range of steps or seconds: a tip tells of the box under the pointer, the wheel scales.
 * Classes that extend it have `draw(pen, color)`, `boxAt(x, y)` and `words(box)`.
 */
export class Chart {
  /** left, right: margins in pixels; whole: the largest range; least: the length of the smallest. */
  constructor(name, { left, right, whole, least }) {
    Object.assign(this, { left, right, whole, least, range: [...whole] });
    this.canvas = element("canvas", { class: name });
    this.tip = element("div", { class: "tip", hidden: true });
    this.canvas.addEventListener("mousemove", ({ offsetX, offsetY }) => {
      const box = this.boxAt(offsetX, offsetY);
      this.tip.hidden = !box;
      if (!box) return;
      this.tip.textContent = this.words(box);
      this.tip.style.left = `${Math.max(0, Math.min(offsetX + 14, this.width - 330))}px`;
      this.tip.style.top = `${offsetY + 14}px`;
    });
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const middle = this.valueAt(event.offsetX);
      const factor = Math.exp(event.deltaY * 0.0015);
      this.show(...this.range.map((end) => middle + (end - middle) * factor));
    }, { passive: false });
  }

  x(value) { return this.left + ((value - this.range[0]) / (this.range[1] - this.range[0])) * (this.width - this.left - this.right); }
  valueAt(x) { return this.range[0] + ((x - this.left) / (this.width - this.left - this.right)) * (this.range[1] - this.range[0]); }

  /** Show a part of the whole range. */
  show(start, end) {
    const from = Math.max(this.whole[0], start);
    this.range = [from, Math.min(this.whole[1], Math.max(end, from + this.least))];
    this.paint();
  }

  paint() {
    const picture = cleared(this.canvas);
    if (!picture) return;
    [this.width, this.height] = [picture.width, picture.height];
    this.draw(picture.pen, picture.color);
  }
}
