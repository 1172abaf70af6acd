// What a pass changed: a comparison of two texts by lines, anchored at lines that occur once in each.

/** Return the rows of a comparison: ["kept" | "removed" | "added", line, number in its text]. */
export function difference(before, after) {
  const rows = [];
  let a = 0;
  let b = 0;
  for (const [i, j] of [...anchors(before, after), [before.length, after.length]]) {
    for (; a < i; a++) rows.push(["removed", before[a], a]);
    for (; b < j; b++) rows.push(["added", after[b], b]);
    if (i < before.length) rows.push(["kept", after[j], j]);
    a = i + 1;
    b = j + 1;
  }
  return settled(rows);
}

/** Return the pairs of equal lines in an increasing sequence that is as long as possible. */
function anchors(before, after) {
  const pairs = [];
  const places = new Map();
  after.forEach((line, j) => places.set(line, places.has(line) ? -1 : j));
  const seen = new Map();
  before.forEach((line) => seen.set(line, (seen.get(line) ?? 0) + 1));
  before.forEach((line, i) => {
    const j = places.get(line);
    if (j !== undefined && j >= 0 && seen.get(line) === 1) pairs.push([i, j]);
  });
  return extended(longestIncreasing(pairs), before, after);
}

function longestIncreasing(pairs) {
  const ends = [];
  const previous = new Array(pairs.length).fill(-1);
  pairs.forEach(([, j], at) => {
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[ends[middle]][1] < j) low = middle + 1;
      else high = middle;
    }
    if (low) previous[at] = ends[low - 1];
    ends[low] = at;
  });
  const found = [];
  for (let at = ends.at(-1) ?? -1; at >= 0; at = previous[at]) found.push(pairs[at]);
  return found.reverse();
}

/** Add equal lines that occur several times where they follow an anchor, such as braces and empty lines. */
function extended(pairs, before, after) {
  const found = [];
  let [i, j] = [-1, -1];
  for (const [x, y] of [...pairs, [before.length, after.length]]) {
    while (i + 1 < x && j + 1 < y && before[i + 1] === after[j + 1]) found.push([++i, ++j]);
    let [u, v] = [x, y];
    const tail = [];
    while (u - 1 > i && v - 1 > j && before[u - 1] === after[v - 1]) tail.push([--u, --v]);
    found.push(...tail.reverse());
    if (x < before.length) found.push([x, y]);
    [i, j] = [x, y];
  }
  return found;
}

/** Put removed lines before added ones within a run of changes. */
function settled(rows) {
  const found = [];
  for (let at = 0; at < rows.length;) {
    if (rows[at][0] === "kept") {
      found.push(rows[at++]);
      continue;
    }
    let end = at;
    while (end < rows.length && rows[end][0] !== "kept") end += 1;
    const run = rows.slice(at, end);
    found.push(...run.filter(([kind]) => kind === "removed"), ...run.filter(([kind]) => kind === "added"));
    at = end;
  }
  return found;
}

/** Return the names of instructions that a later program has and an earlier one has not, or has otherwise. */
export function changedNames(before, after) {
  const plain = (program) => new Map(program.names.map((name, i) => [name, plainLine(program, i)]));
  const old = plain(before);
  return new Set([...plain(after)].filter(([name, line]) => old.get(name) !== line).map(([name]) => name));
}

function plainLine(program, i) {
  return (program.lines[program.lineOf(i)] ?? "").replace(/, metadata=\{.*$/, "").replace(/^\s+(ROOT )?/, "");
}
