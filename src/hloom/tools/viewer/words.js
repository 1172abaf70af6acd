// How numbers, shapes and names are written.

/** Return a number with a decimal prefix: 12.3 M. */
export function quantity(number, unit = "") {
  for (const [factor, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= factor) return `${digits(number / factor)} ${letter}${unit}`;
  }
  return `${digits(number)} ${unit}`.trim();
}

/** Return seconds in the unit that suits them. */
export function duration(seconds) {
  for (const [factor, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (seconds >= factor) return `${digits(seconds / factor)} ${unit}`;
  }
  return `${digits(seconds * 1e9)} ns`;
}

function digits(number) {
  return Math.abs(number) >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toPrecision(3);
}

/** Return a shape without layouts; tuples of more than three elements are counted. */
export function shortShape(shape) {
  const plain = shape.replace(/\{[^{}]*\}/g, "").replace(/\/\*index=\d+\*\//g, "");
  if (!plain.startsWith("(")) return plain;
  const elements = plain.slice(1, -1).split(/, (?=\(*[a-z])/);
  return elements.length > 3 ? `(${elements.slice(0, 2).join(", ")}, … ${elements.length})` : plain;
}

/** Return the shape of an element of a tuple by its indices: "1, 0"; other shapes as they are. */
export function partOfShape(shape, indices) {
  if (indices === "workspace") return "";
  return indices.split(", ").filter(Boolean).reduce((tuple, index) => elementsOf(tuple)[Number(index)] ?? tuple, shape);
}

function elementsOf(shape) {
  return separated(shape.slice(1, -1), ",").map((element) => element.replace(/\/\*index=\d+\*\//, "").trim());
}

/** Split a text at a separator that is in no brackets or quotes. */
export function separated(text, separator) {
  const parts = [];
  let [depth, start, quoted] = [0, 0, false];
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (letter === '"' && text[at - 1] !== "\\") quoted = !quoted;
    else if (quoted) continue;
    else if ("([{".includes(letter)) depth += 1;
    else if (")]}".includes(letter)) depth -= 1;
    else if (letter === separator && depth <= 0) {
      parts.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return [...parts, text.slice(start)];
}

/** Return a line of HLO without its metadata. */
export function withoutMetadata(line) {
  return line.replace(/, metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}/, "");
}

/** Return a number that names of one stem share: add.1 and add.2. */
export function hashOf(name) {
  let found = 7;
  for (const letter of name.replace(/[.\d]+$/, "")) found = (found * 31 + letter.charCodeAt(0)) >>> 0;
  return found;
}

/** Cut a text in its middle. */
export function cut(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) * 0.6);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

/** Return text that is safe in HTML. */
export function escaped(text) {
  return text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);
}

/** Return an element with attributes and children; texts become text nodes. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Return an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
