// The minimap: all visible nodes, small, and the part of them that the window shows.

import { cleared } from "viewer/canvas.js";

const WIDTH = 190;
const HEIGHT = 150;

/** A canvas beside the graph; a click or a drag moves the graph there. */
export class Minimap {
  constructor(canvas, graph) {
    this.canvas = canvas;
    this.graph = graph;
    const there = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const { x, y, k } = this.placed;
      const { w, h } = graph.size;
      const scale = graph.transform.k;
      graph.move(w / 2 - ((event.offsetX - x) / k) * scale, h / 2 - ((event.offsetY - y) / k) * scale, scale);
    };
    canvas.addEventListener("pointerdown", there);
    canvas.addEventListener("pointermove", there);
  }

  /** Draw again at the next frame. */
  update() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { canvas, graph } = this;
    if (!graph.root) return;
    const { pen, color } = cleared(canvas, { clientWidth: WIDTH, clientHeight: HEIGHT });
    const k = Math.min((WIDTH - 8) / graph.root.w, (HEIGHT - 8) / graph.root.h);
    this.placed = { k, x: (WIDTH - graph.root.w * k) / 2, y: (HEIGHT - graph.root.h * k) / 2 };
    const box = (node) => [this.placed.x + node.ax * k, this.placed.y + node.ay * k, Math.max(1, node.w * k), Math.max(1, node.h * k)];
    for (const node of graph.seen) {
      const open = node.isGroup && node.open;
      pen.fillStyle = color(open ? "--map-group" : "--map-node");
      if (node === graph.selected) pen.fillStyle = color("--accent");
      pen.fillRect(...box(node));
    }
    const { x, y, k: scale } = graph.transform;
    const { w, h } = graph.size;
    pen.strokeStyle = color("--accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(this.placed.x - (x / scale) * k, this.placed.y - (y / scale) * k, (w / scale) * k, (h / scale) * k);
  }
}
