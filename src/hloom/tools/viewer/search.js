// Search: instructions by name, opcode, op_name, shape, source line or sharding.

const FIELDS = {
  name: (program, i) => program.names[i],
  opcode: (program, i) => program.opcode(i),
  op: (program, i) => program.opName(i),
  shape: (program, i) => program.shape(i),
  source: (program, i) => program.source(i),
  sharding: (program, i) => program.sharding(i),
};

/**
 * Return the instructions that match a query, in the order of the text.
 * Words must all match; `opcode:dot` matches one field alone (a whole opcode), /text/ is a regular expression.
 */
export function matches(program, query) {
  const tests = query.trim().split(/\s+/).filter(Boolean).map(test);
  if (!tests.length || tests.includes(null)) return [];
  const found = [];
  for (let i = 0; i < program.count; i++) {
    if (tests.every((each) => each(program, i))) found.push(i);
  }
  return found;
}

function test(word) {
  const [, field, rest] = /^(?:(name|opcode|op|shape|source|sharding):)?(.*)$/.exec(word);
  const fits = comparison(rest, field === "opcode");
  if (!fits) return null;
  const fields = field ? [FIELDS[field]] : [FIELDS.name, FIELDS.opcode, FIELDS.op, FIELDS.source, FIELDS.shape];
  return (program, i) => fields.some((value) => fits(value(program, i)));
}

function comparison(text, whole) {
  if (text.length > 2 && text.startsWith("/") && text.endsWith("/")) {
    try {
      const expression = new RegExp(text.slice(1, -1), "i");
      return (value) => expression.test(value);
    } catch {
      return null;
    }
  }
  const wanted = text.toLowerCase().replace(/^%/, "");
  return whole ? (value) => value === wanted : (value) => value.toLowerCase().includes(wanted);
}
