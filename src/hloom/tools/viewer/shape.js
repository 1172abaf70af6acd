// A picture of an array's layout: its dimensions from major to minor, their strides, and the tiles.

import { element } from "viewer/words.js";

/** Return the picture of an array shape with a layout; null for tuples, scalars and shapes without one. */
export function layoutPicture(text) {
  const match = /^(\w+)\[([^\]]*)\]\{([\d,]*)(?::([^}]*))?\}/.exec(text);
  if (!match || !match[2]) return null;
  const sizes = match[2].split(",").map((size) => Number(size.replace(/[^\d]/g, "")));
  const order = match[3].split(",").filter(Boolean).map(Number).reverse();
  if (order.length !== sizes.length) return null;
  const boxes = order.map((dimension, place) => {
    const stride = order.slice(place + 1).reduce((product, each) => product * sizes[each], 1);
    const box = element("div", { class: "axis", title: `dimension ${dimension}: ${sizes[dimension]} elements, ${stride} apart` },
      element("b", {}, `${sizes[dimension]}`), element("span", {}, `d${dimension}`), element("small", {}, `stride ${stride.toLocaleString("en")}`));
    box.style.flexGrow = Math.max(1, Math.log2(sizes[dimension] + 1));
    return box;
  });
  const facts = (match[4] ?? "").match(/T(?:\([^)]*\))+|S\(\d+\)|E\(\d+\)/g) ?? [];
  return element("div", { class: "layout-picture" },
    element("div", { class: "axes" }, ...boxes),
    element("div", { class: "ends" }, element("span", {}, "major"), element("span", {}, facts.map(fact).join(", ")), element("span", {}, "minor")));
}

function fact(text) {
  if (text.startsWith("T")) return `tiles ${text.slice(1)}`;
  return text.startsWith("S") ? `memory space ${text.slice(2, -1)}` : `${text.slice(2, -1)} bits per element`;
}
