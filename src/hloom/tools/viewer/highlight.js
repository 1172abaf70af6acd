// Colours of HLO text, LLVM IR and assembly.

import { escaped } from "viewer/words.js";

const HLO = new RegExp([
  /(?<string>"(?:[^"\\]|\\.)*")/, /(?<comment>\/\*.*?\*\/|\/\/.*$)/, /(?<name>%[\w.\-$]+)/,
  /(?<type>\b(?:pred|token|opaque|s\d+|u\d+|bf16|f\d+\w*|c64|c128)(?:\[[^\]]*\])(?:\{[^{}]*\})?)/,
  /(?<opcode>\b[a-z][a-z0-9-]*(?=\())/, /(?<key>\b[a-z_][a-z_-]*(?==))/,
  /(?<word>\b(?:HloModule|ENTRY|ROOT)\b)/, /(?<number>-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)/,
].map((each) => each.source).join("|"), "g");

const CODE = new RegExp([
  /(?<string>"(?:[^"\\]|\\.)*")/, /(?<comment>[;#].*$)/, /(?<name>[%@][\w.\-$]+)/,
  /(?<type>\b(?:i\d+|float|double|half|ptr|void|x)\b)/,
  /(?<opcode>(?<=^\s*(?:%[\w.\-$]+ = )?)[a-z][\w.]*)/, /(?<number>\$?-?\b(?:0x[\da-f]+|\d+)\b)/,
].map((each) => each.source).join("|"), "gim");

/** Return a line as HTML; names of instructions are links. */
export function highlighted(line, form = "hlo") {
  const expression = form === "hlo" ? HLO : CODE;
  let made = "";
  let last = 0;
  for (const match of line.matchAll(expression)) {
    const [kind, text] = Object.entries(match.groups).find(([, each]) => each !== undefined);
    made += escaped(line.slice(last, match.index));
    made += `<span class="h-${kind}">${escaped(text)}</span>`;
    last = match.index + match[0].length;
  }
  return made + escaped(line.slice(last));
}
