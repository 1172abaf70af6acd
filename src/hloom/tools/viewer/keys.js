// The keyboard.

import { element } from "viewer/words.js";

/** Bind keys to actions: rows of [key, words, action]; `?` lists them. */
export function bindKeys(rows) {
  const actions = new Map(rows.map(([key, , action]) => [key, action]));
  const help = element("dialog", { class: "help" },
    element("h2", {}, "Keys"),
    element("dl", {}, ...rows.filter((row) => row[1]).flatMap(([key, words]) => [
      element("dt", {}, element("kbd", {}, key.replace("Arrow", ""))), element("dd", {}, words),
    ])),
    element("p", { class: "hint" }, "Drag to move, wheel to scale, double-click to open a group."));
  help.addEventListener("click", () => help.close());
  document.body.append(help);
  actions.set("?", () => help.showModal());
  window.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = actions.get(event.key);
    if (!action) return;
    event.preventDefault();
    action();
  });
  return () => help.showModal();
}
