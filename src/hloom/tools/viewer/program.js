// One program: columns over its instructions, which are numbered in the order of the text.

/** Columns of a program and the relations derived from them. */
export class Program {
  constructor(data) {
    this.name = data.name;
    this.text = data.text;
    this.names = data.names;
    this.count = data.names.length;
    this.columns = data;
    this.computations = data.computations;
    this.computationOf = new Int32Array(this.count);
    let first = 0;
    this.computations.forEach((computation, number) => {
      computation.first = first;
      this.computationOf.fill(number, first, first + computation.count);
      first += computation.count;
    });
    this.entry = this.computations.findIndex((computation) => computation.entry);
    this.firstOperand = offsets(data.operandCount);
    this.calls = grouped(data.calls, 0);
    this.callers = grouped(data.calls, 2);
    this.trips = new Map(data.trips);
    this.numbers = null;
    this.users_ = null;
    this.runs_ = null;
    this.lines_ = null;
  }

  opcode(i) { return table(this.columns.opcode, i); }
  shape(i) { return table(this.columns.shape, i); }
  opName(i) { return table(this.columns.scope, i); }
  source(i) { return table(this.columns.source, i); }
  sharding(i) { return table(this.columns.sharding, i); }
  isRoot(i) { return this.computations[this.computationOf[i]].root === i; }

  /** Return the numbers of the operands, repeated ones included. */
  operands(i) { return this.columns.operands.slice(this.firstOperand[i], this.firstOperand[i + 1]); }

  /** Return the numbers of the instructions that use this one, each once. */
  users(i) {
    if (!this.users_) {
      this.users_ = Array.from({ length: this.count }, () => []);
      for (let user = 0; user < this.count; user++) {
        for (const operand of new Set(this.operands(user))) this.users_[operand].push(user);
      }
    }
    return this.users_[i];
  }

  /** Return the calls of computations that run as part of the program: [role, computation]. */
  nested(i) {
    return (this.calls.get(i) ?? []).filter((call) => call[3]).map((call) => [call[1], call[2]]);
  }

  /** Return the instruction that runs a computation, or -1 for the entry and for combiners. */
  caller(computation) {
    const call = (this.callers.get(computation) ?? []).find((each) => each[3]);
    return call ? call[0] : -1;
  }

  /** Return how often an instruction runs: over all calls, the product of the trip counts of loops around. */
  runs(i) {
    this.runs_ ??= new Map([[this.entry, 1]]);
    const computation = this.computationOf[i];
    if (!this.runs_.has(computation)) {
      const calls = (this.callers.get(computation) ?? []).filter((call) => call[3]);
      const counts = calls.map(([caller]) => this.runs(caller) * (this.trips.get(caller) ?? 1));
      this.runs_.set(computation, counts.length ? counts.reduce((sum, count) => sum + count) : 1);
    }
    return this.runs_.get(computation);
  }

  /** Return the number of an instruction by its name, or -1. */
  number(name) {
    this.numbers ??= new Map(this.names.map((each, i) => [each, i]));
    return this.numbers.get(name) ?? -1;
  }

  /** Return the lines of the text. */
  get lines() {
    if (!this.lines_) {
      this.lines_ = this.text.split("\n");
      this.lineOf_ = new Int32Array(this.count).fill(-1);
      this.instructionAt = new Int32Array(this.lines_.length).fill(-1);
      this.lines_.forEach((line, at) => {
        const match = /^\s+(?:ROOT )?%?([^\s=(),]+) = /.exec(line);
        const i = match ? this.number(match[1]) : -1;
        if (i >= 0) {
          this.lineOf_[i] = at;
          this.instructionAt[at] = i;
        }
      });
    }
    return this.lines_;
  }

  /** Return the number of the line of an instruction, or -1 if the text does not print it. */
  lineOf(i) {
    this.lines;
    return this.lineOf_[i];
  }

  /** Return the frames of the call stack that made an instruction: [function, location], innermost first. */
  frames(i) {
    const found = [];
    let number = this.columns.frame[i];
    while (number > 0 && number <= this.columns.frames.length && found.length < 100) {
      const [name, location, parent] = this.columns.frames[number - 1];
      found.push([name, location]);
      number = parent;
    }
    return found;
  }
}

function table(column, i) {
  return column.table[column.numbers[i]];
}

function offsets(counts) {
  const found = new Int32Array(counts.length + 1);
  counts.forEach((count, i) => { found[i + 1] = found[i] + count; });
  return found;
}

function grouped(rows, key) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row[key])) found.set(row[key], []);
    found.get(row[key]).push(row);
  }
  return found;
}
