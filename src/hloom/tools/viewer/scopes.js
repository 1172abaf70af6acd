// The scopes of instructions: those of op_names, else the parameters that they work on.

import { separated } from "viewer/words.js";

/** Return the parts of an op_name before its last; slashes in brackets do not separate. */
export function scopeParts(opName) {
  return separated(opName, "/").slice(0, -1);
}

/**
 * Return the scopes of every instruction of a program, outermost first.
 * In a program without op_names they are the parts of the names of the parameters that are used.
 */
export function scopesOf(program, isParameter) {
  const tables = program.columns.scope.table.map(scopeParts);
  let found = program.columns.scope.numbers.map((number, i) => (isParameter(i) ? [] : tables[number]));
  if (found.every((scopes) => !scopes.length)) found = scopesByParameters(program, isParameter);
  // what feeds only one scope stands where it is used
  for (let i = program.count - 1; i >= 0; i--) {
    if (found[i].length || isParameter(i) || program.isRoot(i)) continue;
    const users = program.users(i);
    if (users.length && users.every((user) => found[user].join("/") === found[users[0]].join("/"))) {
      found[i] = found[users[0]];
    }
  }
  return found;
}

/** Return, for each instruction, the group of the last parameter that it or what it uses depends on. */
function scopesByParameters(program, isParameter) {
  const found = Array.from({ length: program.count }, () => []);
  const from = new Int32Array(program.count).fill(-1);
  for (let i = 0; i < program.count; i++) {
    if (isParameter(i)) {
      if (parameterPath(program, i).length > 1) from[i] = i;
      continue;
    }
    const operands = program.operands(i);
    const direct = operands.filter((operand) => isParameter(operand));
    from[i] = Math.max(-1, ...(direct.some((operand) => from[operand] >= 0) ? direct : operands).map((operand) => from[operand]));
    if (from[i] >= 0 && !program.isRoot(i)) found[i] = parameterPath(program, from[i]).slice(0, -1);
  }
  return found;
}

/** Return the parts of a parameter's name: params, layers 0, w of params['layers'][0]['w'] or params.layers.0.w. */
export function parameterPath(program, i) {
  const opName = program.opName(i);
  const name = /[[.]/.test(opName) && !opName.includes("/") ? opName : program.names[i].replace(/\.\d+$/, "");
  return name.replace(/(?:[.[\]'"]|_{2,})+(\d+)(?=[.[\]'"]|_{2,}|$)/g, " $1").split(/[.[\]'"]+|_{2,}/).filter(Boolean);
}

/** Return a title with its numbers left out: layer_#, h_#. */
export function stemOf(title) {
  return title.replace(/\d+/g, "#");
}
