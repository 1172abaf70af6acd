// Tables whose columns sort their rows.

import { element } from "viewer/words.js";

/**
 * Show rows in a table, sorted by a column; a click on a title sorts by its column.
 * columns: [title, key(row), words(row)]; numbers sort from the largest, texts in alphabetical order.
 * attributes: function of a row to the attributes of its element.
 */
export function showSorted(table, columns, sorted, rows, attributes, most = 2000) {
  const key = columns[sorted][1];
  const ordered = [...rows].sort((a, b) => (typeof key(a) === "string" ? key(a).localeCompare(key(b)) : key(b) - key(a)));
  const titles = columns.map(([title], n) => element("th", {
    class: n === sorted ? "chosen" : "", onclick: () => showSorted(table, columns, n, rows, attributes, most),
  }, title));
  table.replaceChildren(element("tr", {}, ...titles), ...ordered.slice(0, most).map((row) =>
    element("tr", attributes(row), ...columns.map(([, , words]) => element("td", {}, words(row))))));
}
