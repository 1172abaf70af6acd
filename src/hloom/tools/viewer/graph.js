// The graph: draws the open groups, and moves, scales, selects and opens.

import { amount, legend, SCHEMES } from "viewer/colors.js";
import { drawn, link } from "viewer/drawing.js";
import { arrange } from "viewer/layout.js";
import { nodeAt, nodeOf, rootOf } from "viewer/tree.js";
import { element, svg } from "viewer/words.js";

const LEAST_SCALE = 0.02;
const MOST_SCALE = 4;
const MOST_OPENED = 1500;

/** The picture of one program; `onselect(instruction, node)` and `onmove()` tell others. */
export class GraphView {
  constructor(place, { onselect, onmove }) {
    this.place = place;
    this.onselect = onselect;
    this.onmove = onmove;
    this.scheme = "opcode";
    this.changed = null;
    this.selected = null;
    this.transform = { x: 0, y: 0, k: 1 };
    this.picture = svg("svg", { class: "picture" }, arrowheads());
    this.world = svg("g", { class: "world" });
    this.picture.append(this.world);
    this.legend = element("div", { class: "legend" });
    place.append(this.picture, this.legend);
    this.listen();
  }

  /** Show a program from its entry computation. */
  show(program) {
    this.program = program;
    this.home = rootOf(program);
    this.root = this.home;
    this.selected = null;
    openSmall(this.home);
    this.draw();
    this.fit();
  }

  /** Show another tree, such as a neighbourhood; null returns to the whole program. */
  focus(root) {
    this.root = root ?? this.home;
    this.selected = null;
    this.draw();
    this.fit();
  }

  /** Lay out what is open, and draw it. */
  draw() {
    arrange(this.root);
    const most = SCHEMES[this.scheme].amount ? this.mostAmount() : 0;
    this.seen = [];
    this.content = drawn(this.root, { scheme: this.scheme, most, changed: this.changed }, this.seen);
    this.links = svg("g", { class: "links" });
    this.world.replaceChildren(this.content, this.links);
    this.legend.replaceChildren(...legend(this.scheme, this.seen, most).map(([color, words]) => {
      const sample = element("i");
      sample.style.background = color;
      return element("span", {}, sample, words);
    }));
    this.mark();
    this.onmove();
  }

  /** Return the largest amount of a coloured node: a closed one, or an open call such as a fusion. */
  mostAmount() {
    let most = 0;
    const visit = (node) => {
      const open = node.isGroup && node.open;
      if (!open || node.instruction >= 0) most = Math.max(most, amount(this.scheme, node));
      if (open) node.children.forEach(visit);
    };
    visit(this.root);
    return most;
  }

  // -- opening

  /** Open or close a group; the group stays where it is on the screen. */
  toggle(node) {
    if (!node.isGroup || node === this.root) return;
    const before = this.onScreen(node);
    node.open = !node.open;
    this.draw();
    const after = this.onScreen(node);
    this.moveBy(before.x - after.x, before.y - after.y);
  }

  /** Open all groups in a node as far as the picture stays small, or close all. */
  toggleAll(open) {
    const waiting = [...this.root.children];
    let left = MOST_OPENED;
    while (waiting.length) {
      const node = waiting.shift();
      if (!node.isGroup || (!open && !node.children_)) continue;
      if (open && (left -= node.children.length) < 0) break;
      node.open = open || node.kind === "computation";
      waiting.push(...node.children);
    }
    this.draw();
    this.fit();
  }

  /** Open what holds an instruction, select it, and bring it to the middle. */
  reveal(instruction) {
    const inFocus = this.root !== this.home && this.root.children.find((node) => node.instruction === instruction);
    const node = inFocus || nodeOf(this.home, instruction);
    if (!node) return;
    if (!inFocus) this.root = this.home;
    for (let above = node.parent; above; above = above.parent) above.open = true;
    this.draw();
    this.select(node);
    this.centre(node);
  }

  /** Return the keys of the open groups, and open those of a link. */
  get open() {
    return this.seen.filter((n) => n.isGroup && n.open && n !== this.root && n.kind !== "computation").map((n) => n.key);
  }

  set open(keys) {
    const close = (node) => {
      for (const child of node.children_ ?? []) {
        child.open = child.kind === "computation";
        close(child);
      }
    };
    close(this.home);
    for (const key of keys) {
      const node = nodeAt(this.home, key);
      if (node) node.open = true;
    }
    this.draw();
  }

  // -- selection

  /** Select a node, or null for none. */
  select(node) {
    this.selected = node;
    this.mark();
    this.onselect(node);
  }

  /** Mark the selected node, its operands and its users. */
  mark() {
    for (const marked of this.world.querySelectorAll(".selected, .operand, .user")) {
      marked.classList.remove("selected", "operand", "user");
    }
    this.links.replaceChildren();
    const node = this.selected;
    if (node && !this.seen.includes(node)) this.selected = null;
    if (!this.selected) return;
    this.selected.element.classList.add("selected");
    const { instruction } = this.selected;
    if (instruction < 0) return this.markGroup(this.selected);
    const mark = (others, kind) => {
      for (const other of new Set(others.map((i) => this.visible(i)))) {
        if (!other || other === this.selected) continue;
        other.element.classList.add(kind);
        const ends = kind === "operand" ? [other, this.selected] : [this.selected, other];
        if (other !== this.selected.parent) this.links.append(link(...ends, kind));
      }
    };
    mark(this.program.operands(instruction), "operand");
    mark(this.program.users(instruction), "user");
  }

  /** Mark what a group reads, and what reads it, among its neighbours. */
  markGroup(group) {
    for (const edge of group.parent?.edges ?? []) {
      if (edge.from !== group && edge.to !== group) continue;
      const [other, kind] = edge.to === group ? [edge.from, "operand"] : [edge.to, "user"];
      other.element.classList.add(kind);
      this.links.append(link(edge.from, edge.to, kind));
    }
  }

  /** Return the visible node that shows an instruction, or the closed group that holds it. */
  visible(instruction) {
    let node = this.selected.parent;
    while (node && !node.childOf(instruction)) node = node.parent;
    node = node?.childOf(instruction);
    while (node && node.isGroup && node.open && node.instruction !== instruction) node = node.childOf(instruction);
    return node ?? null;
  }

  /** Select the neighbour in a direction: an operand, a user, or the nearest node beside. */
  step(direction) {
    const node = this.selected;
    if (!node) return this.select(this.root.children[0]);
    if (direction === "up" || direction === "down") {
      const near = node.instruction < 0 ? [] : this.program[direction === "up" ? "operands" : "users"](node.instruction);
      const next = near.map((i) => this.visible(i)).find((each) => each && each !== node);
      if (next) this.go(next);
      return;
    }
    const side = direction === "left" ? -1 : 1;
    const beside = (node.parent?.children ?? []).filter((n) => side * (n.ax - node.ax) > 0);
    beside.sort((a, b) => distance(a, node) - distance(b, node));
    if (beside.length) this.go(beside[0]);
  }

  go(node) {
    this.select(node);
    this.centre(node);
  }

  // -- place and scale

  get size() {
    return { w: this.place.clientWidth || 800, h: this.place.clientHeight || 600 };
  }

  move(x, y, k) {
    this.transform = { x, y, k };
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    this.picture.classList.toggle("far", k < 0.45);
    this.onmove();
  }

  moveBy(dx, dy) {
    const { x, y, k } = this.transform;
    this.move(x + dx, y + dy, k);
  }

  zoom(factor, at = { x: this.size.w / 2, y: this.size.h / 2 }) {
    const { x, y, k } = this.transform;
    const next = Math.min(MOST_SCALE, Math.max(LEAST_SCALE, k * factor));
    this.move(at.x - ((at.x - x) * next) / k, at.y - ((at.y - y) * next) / k, next);
  }

  /** Show all, or as much from the top as can be read. A hidden picture is fitted when it is shown: `refit`. */
  fit() {
    this.fitted = this.place.clientWidth > 0;
    const { w, h } = this.size;
    const whole = Math.min((w - 40) / this.root.w, (h - 40) / this.root.h, 1.2);
    const k = Math.max(whole, Math.min(0.55, (w - 40) / this.root.w));
    this.move((w - this.root.w * k) / 2, Math.max(20, (h - this.root.h * k) / 2), k);
  }

  /** Fit what was drawn while the picture was hidden. */
  refit() {
    if (!this.fitted) this.fit();
  }

  centre(node) {
    const { w, h } = this.size;
    const k = Math.max(this.transform.k, 0.7);
    const tall = Math.min(node.h, (h * 0.8) / k);
    this.move(w / 2 - (node.ax + node.w / 2) * k, h / 2 - (node.ay + tall / 2) * k, k);
  }

  onScreen(node) {
    const { x, y, k } = this.transform;
    return { x: x + node.ax * k, y: y + node.ay * k };
  }

  // -- mouse

  listen() {
    let from = null;
    let moved = false;
    this.picture.addEventListener("pointerdown", (event) => {
      from = { x: event.clientX, y: event.clientY };
      moved = false;
    });
    window.addEventListener("pointermove", (event) => {
      if (!from) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true;
      from = { x: event.clientX, y: event.clientY };
      this.picture.classList.add("moving");
      this.moveBy(dx, dy);
    });
    window.addEventListener("pointerup", () => {
      from = null;
      this.picture.classList.remove("moving");
    });
    this.picture.addEventListener("click", (event) => {
      if (moved) return;
      const found = event.target.closest(".node");
      if (event.target.closest(".toggle")) this.toggle(found.node);
      else this.select(found && found.node !== this.root ? found.node : null);
    });
    this.picture.addEventListener("dblclick", (event) => {
      const found = event.target.closest(".node");
      if (found && !event.target.closest(".toggle")) this.toggle(found.node);
    });
    this.picture.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) return this.moveBy(-event.deltaY, 0);
      const box = this.picture.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * 0.0015), { x: event.clientX - box.left, y: event.clientY - box.top });
    }, { passive: false });
  }
}

/** Open the groups of a program that is small enough to be seen at once. */
function openSmall(root) {
  let left = 40 - root.children.length;
  const waiting = [...root.children];
  while (waiting.length && left > 0) {
    const node = waiting.shift();
    if (!node.isGroup || ["piece", "bundle"].includes(node.kind) || node.all.length > left) continue;
    node.open = true;
    left -= node.children.length;
    waiting.push(...node.children);
  }
}

function distance(a, b) {
  return Math.hypot(a.ax + a.w / 2 - b.ax - b.w / 2, 3 * (a.ay - b.ay));
}

function arrowheads() {
  const heads = svg("defs");
  for (const kind of ["edge", "operand", "user"]) {
    const head = svg("marker", {
      id: `head-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
      class: `head ${kind}`,
    });
    head.append(svg("path", { d: "M0 0.8L8 4L0 7.2z" }));
    heads.append(head);
  }
  return heads;
}
