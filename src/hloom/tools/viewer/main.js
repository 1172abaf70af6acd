// The page: loads a program, and connects the tabs, the search, the keys and the address.

import { SCHEMES } from "viewer/colors.js";
import { part } from "viewer/data.js";
import { showDetails } from "viewer/details.js";
import { changedNames } from "viewer/difference.js";
import { around, between, partTree } from "viewer/focus.js";
import { GraphView } from "viewer/graph.js";
import { bindKeys } from "viewer/keys.js";
import { readLink, writeLink } from "viewer/link.js";
import { MemoryView } from "viewer/memory.js";
import { Minimap } from "viewer/minimap.js";
import { PassesView } from "viewer/passes.js";
import { Program } from "viewer/program.js";
import { ProofView } from "viewer/proof.js";
import { matches } from "viewer/search.js";
import { ShardingView } from "viewer/sharding.js";
import { TextView } from "viewer/text.js";
import { TimeView } from "viewer/time.js";
import { element } from "viewer/words.js";

const by = (id) => document.getElementById(id);
const manifest = await part("manifest");
const programs = new Map();
const found = { matches: [], at: -1 };
let current = null;
let number = -1;
let rewrite = 0;
let tab = "";
let focus = "";
let pathStart = -1;

// -- parts

const graph = new GraphView(by("graph"), {
  onselect: (node) => selected(node),
  onmove: () => { minimap?.update(); remember(); },
});
const minimap = new Minimap(by("minimap"), graph);
const text = new TextView(by("tab-text"), {
  onselect: (i) => graph.reveal(i),
  reveal: (i) => { showTab("graph"); graph.reveal(i); },
});
const actions = {
  reveal: (i) => { graph.reveal(i); if (tab === "text") text.mark(i); },
  toggle: (node) => { graph.toggle(node); graph.select(node); },
  showText: (i) => { showTab("text"); text.mark(i); },
  around: (i, depth) => showAround(i, depth),
  pathFrom: (i) => { pathStart = i; say(`Path from %${current.names[i]}: choose its end, then "Path to".`); },
  pathTo: (i) => showPath(pathStart, i),
};
const stages = manifest.programs;
const last = stages.length - 1;
const first = (n) => stages.findIndex((stage) => stage.group === stages[n].group);
const end = (n) => stages.findLastIndex((stage) => stage.group === stages[n].group);
const longest = Math.max(...stages.map((_, n) => end(n) - first(n)));
const has = (name) => manifest.parts.includes(name);
const TABS = {
  graph: "Graph", text: "Text", ...(longest && { passes: "Passes" }),
  ...(has("memory") && { memory: "Memory" }), ...(has("time") && { time: "Time" }), ...(has("sharding") && { sharding: "Sharding" }),
  ...(has("proof") && { proof: "Proof" }),
};
const revealIn = async (stage, name, step = 0) => {
  await showProgram(stage, step);
  if (current.number(name) >= 0) graph.reveal(current.number(name));
};
/** Show the program after a rewrite, or before the pass if it has no such program, and go to what was rewritten. */
async function revealRewrite(step, name) {
  const { rewrites, states } = stages[number];
  if (states !== rewrites.length - 1) return revealIn(number - 1, name);
  await showProgram(number, step);
  const i = [name, ...(graph.changed ?? [])].map((each) => current.number(each)).find((each) => each >= 0);
  if (i !== undefined) graph.reveal(i);
}
const passes = longest > 0 && new PassesView(by("tab-passes"), stages, {
  choose: (n) => showProgram(n), reveal: (name) => revealIn(number, name, rewrite), revealRewrite,
});
const proofs = has("proof") ? await part("proof") : null;
const proof = proofs && new ProofView(by("tab-proof"), stages, proofs, {
  choose: (n) => showProgram(n), reveal: (name) => { showTab("graph"); revealIn(number, name); },
});

function selected(node) {
  showDetails(by("details"), current, node, actions);
  if (node && node.instruction >= 0) text.mark(node.instruction, tab === "text");
  remember();
}

// -- programs and tabs

function showChoice() {
  if (!last) return by("program-place").replaceChildren(manifest.title);
  const choice = (title, numbers, chosen, words) => element("select", { title, onchange: (event) => showProgram(Number(event.target.value)) },
    ...numbers.map((n) => element("option", { value: n, selected: n === chosen }, words(n))));
  const groups = manifest.groups.map((_, group) => stages.findIndex((stage) => stage.group === group));
  const inside = stages.map((_, n) => n).slice(first(number), end(number) + 1);
  by("program-place").replaceChildren(
    ...(groups.length > 1 ? [choice("program", groups, first(number), (n) => manifest.groups[stages[n].group])] : []),
    ...(inside.length > 1 ? [choice("stage", inside, number, (n) => stages[n].title)] : []));
}

/** Return the program of a stage, or after `step` rewrites of its pass. */
async function programAt(at, step = 0) {
  const name = `program-${at}${step && step <= stages[at].states ? `.${step}` : ""}`;
  if (!programs.has(name)) programs.set(name, new Program(await part(name)));
  return programs.get(name);
}

/** Show what a stage changed, or one rewrite of its pass: number `step`, counted from 1. */
async function showProgram(next, step = 0) {
  if (next === number && step === rewrite) return;
  [number, rewrite] = [next, step];
  const before = next === first(next) ? null : await (step > 1 ? programAt(next, step - 1) : programAt(next - 1));
  const program = await programAt(next, step);
  if (number !== next || rewrite !== step) return;
  current = program;
  graph.changed = before && before.name === program.name ? changedNames(before, program) : null;
  if (passes) passes.show(next, before, program, first(next), end(next), step);
  if (proof) await showProof(next);
  focus = "";
  by("focus-bar").hidden = true;
  graph.show(current);
  text.show(current, has("code") && next === last && !step ? await part("code") : null);
  search(by("search").value, false);
  selected(null);
  showChoice();
}

/** Show the verdict on a stage; its programs are those before and after the whole pass. */
async function showProof(at) {
  const [before, program] = [proofs[at] && await programAt(at - 1), await programAt(at)];
  program.proof = proofs[at]?.after;
  if (number === at) proof.show(at, before, program, first(at), end(at));
}

const views = {};

/** Make the tabs of the compiled program, and that of the given one's sharding, when they are first shown. */
async function makeView(name) {
  if (views[name] || !["memory", "time", "sharding"].includes(name)) return;
  const stage = name === "sharding" ? 0 : last;
  const [data, program] = [await part(name), await programAt(stage)];
  const View = { memory: MemoryView, time: TimeView, sharding: ShardingView }[name];
  views[name] ??= new View(by(`tab-${name}`), data, program, { reveal: (name) => revealIn(stage, name) });
}

async function showTab(name) {
  tab = TABS[name] ? name : "graph";
  for (const each of document.querySelectorAll(".tab")) each.classList.toggle("shown", each.id === `tab-${tab}`);
  for (const each of by("tabs").children) each.classList.toggle("chosen", each.dataset.tab === tab);
  if (tab === "graph") graph.refit();
  if (tab === "text") text.mark(text.selected);
  if (tab === "passes") passes.lines.refresh();
  if (tab === "proof") await showProof(number);
  remember();
  await makeView(tab);
}

by("tabs").append(...Object.entries(TABS).map(([name, title]) =>
  element("button", { "data-tab": name, onclick: () => showTab(name) }, title)));

// -- parts of the program

function showFocus(kind, title, instructions, middle) {
  if (!instructions.length) return say("No path connects them.");
  focus = kind;
  by("focus-bar").replaceChildren(title, element("button", { onclick: leaveFocus, title: "back to the program (Escape)" }, "✕"));
  by("focus-bar").hidden = false;
  showTab("graph");
  graph.focus(partTree(current, title, instructions));
  graph.reveal(middle);
}

function showAround(i, depth) {
  const title = `around %${current.names[i]}, depth ${depth}`;
  showFocus(`${current.names[i]},${depth}`, title, around(current, i, depth), i);
}

function showPath(from, to) {
  if (from < 0) return say("Choose the start of the path first: \"Path from\".");
  const title = `from %${current.names[from]} to %${current.names[to]}`;
  showFocus(`${current.names[from]}>${current.names[to]}`, title, between(current, from, to), to);
}

function leaveFocus() {
  const { selected: node } = graph;
  focus = "";
  by("focus-bar").hidden = true;
  graph.focus(null);
  if (node) graph.reveal(node.instruction);
}

function openFocus(words) {
  const [near, depth] = words.split(",");
  const [from, to] = words.split(">").map((name) => current.number(name));
  if (depth && current.number(near) >= 0) showAround(current.number(near), Number(depth));
  else if (from >= 0 && to >= 0) showPath(from, to);
}

// -- search

function search(query, go = true) {
  found.matches = query ? matches(current, query) : [];
  found.at = -1;
  if (go && found.matches.length) nextMatch(1);
  else showCount(query);
}

function nextMatch(step) {
  const { length } = found.matches;
  if (!length) return;
  found.at = (found.at + step + length) % length;
  actions.reveal(found.matches[found.at]);
  showCount(" ");
}

function showCount(query) {
  const { length } = found.matches;
  by("search-count").value = query ? `${found.at + 1} / ${length}` : "";
}

let typing = null;
by("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => search(by("search").value), 150);
});
by("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") by("search").blur();
});
by("search-next").addEventListener("click", () => nextMatch(1));
by("search-previous").addEventListener("click", () => nextMatch(-1));

// -- colours and messages

async function showScheme(name) {
  if (name === "time" && has("time") && number !== last) await showProgram(last);
  graph.scheme = SCHEMES[name] ? name : "opcode";
  by("scheme").value = graph.scheme;
  graph.draw();
}

function showTheme(name) {
  document.documentElement.dataset.theme = name;
  minimap.update();
  views.memory?.paint();
  remember();
}

const otherTheme = () => (document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

let silence = null;
function say(words) {
  by("message").textContent = words;
  by("message").classList.add("shown");
  clearTimeout(silence);
  silence = setTimeout(() => by("message").classList.remove("shown"), 4000);
}

const schemes = Object.entries(SCHEMES).filter(([name]) => !["time", "proof"].includes(name) || has(name));
by("scheme").append(...schemes.map(([name, { title }]) => element("option", { value: name }, title)));
by("scheme").addEventListener("change", (event) => showScheme(event.target.value));
by("theme").addEventListener("click", () => showTheme(otherTheme()));
by("zoom-in").addEventListener("click", () => graph.zoom(1.4));
by("zoom-out").addEventListener("click", () => graph.zoom(1 / 1.4));
by("zoom-fit").addEventListener("click", () => graph.fit());
by("open-all").addEventListener("click", () => graph.toggleAll(true));
by("close-all").addEventListener("click", () => graph.toggleAll(false));

const onSelected = (action) => () => { if (graph.selected?.instruction >= 0) action(graph.selected.instruction); };
const showHelp = bindKeys([
  ["/", "search", () => { by("search").focus(); by("search").select(); }],
  ["n", "next match", () => nextMatch(1)],
  ["N", "previous match", () => nextMatch(-1)],
  ["Enter", "open or close the selected group", () => graph.selected && actions.toggle(graph.selected)],
  ["ArrowUp", "go to an operand", () => graph.step("up")],
  ["ArrowDown", "go to a user", () => graph.step("down")],
  ["ArrowLeft", "go to the node on the left", () => graph.step("left")],
  ["ArrowRight", "go to the node on the right", () => graph.step("right")],
  ["a", "show what is around the selected node", onSelected((i) => showAround(i, 2))],
  ["t", "show the selected node in the text", onSelected((i) => actions.showText(i))],
  ["g", "show the graph", () => showTab("graph")],
  ["[", passes && "the program before the pass", () => passes && number > first(number) && showProgram(number - 1)],
  ["]", passes && "the program after the next pass", () => passes && number < end(number) && showProgram(number + 1)],
  ["0", "show all", () => graph.fit()],
  ["+", "larger", () => graph.zoom(1.3)],
  ["=", "", () => graph.zoom(1.3)],
  ["-", "smaller", () => graph.zoom(1 / 1.3)],
  ["o", "open all groups, if they are not too many", () => graph.toggleAll(true)],
  ["c", "close all groups", () => graph.toggleAll(false)],
  ["d", "dark or light", () => showTheme(otherTheme())],
  ["Escape", "back to the whole program; select nothing", () => (focus ? leaveFocus() : graph.select(null))],
]);
by("help").addEventListener("click", showHelp);

// -- the address

let restored = false;

function remember() {
  if (!restored) return;
  writeLink(() => {
    const { x, y, k } = graph.transform;
    return {
      program: number || "", rewrite: rewrite || "", tab, focus, open: graph.root === graph.home ? graph.open.join("_") : "",
      selected: graph.selected?.instruction >= 0 ? current.names[graph.selected.instruction] : "",
      at: `${Math.round(x)},${Math.round(y)},${k.toFixed(3)}`,
      color: graph.scheme === "opcode" ? "" : graph.scheme,
      theme: document.documentElement.dataset.theme === systemTheme() ? "" : document.documentElement.dataset.theme,
      search: by("search").value,
    };
  });
}

async function restore() {
  restored = false;
  if (has("time")) {
    const { lines } = await part("time");
    (await programAt(last)).seconds = new Map(lines.map(([name, seconds]) => [name, seconds]));
  }
  const link = readLink();
  by("search").value = link.search ?? "";
  showTheme(link.theme ?? systemTheme());
  await showProgram(Math.min(Number(link.program ?? 0), last), Number(link.rewrite ?? 0));
  if (link.open !== undefined) graph.open = link.open.split("_");
  showScheme(link.color ?? "opcode");
  await showTab(link.tab ?? "graph");
  if (link.focus) openFocus(link.focus);
  if (link.selected && current.number(link.selected) >= 0) actions.reveal(current.number(link.selected));
  if (!link.selected && !link.focus) graph.fit();
  if (link.at) graph.move(...link.at.split(",").map(Number));
  restored = true;
}

window.addEventListener("hashchange", restore);
window.addEventListener("resize", () => minimap.update());
await restore();
window.hloom = { graph, actions, parts: part, search, showProgram, showTab }; // for the console
document.documentElement.dataset.ready = "true";
