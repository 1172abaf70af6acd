"""Random loops that update arrays, and an oracle that tells whether one order needs no copy of an array.

The state of a loop is a counter, the number of iterations, arrays of N elements and a row of 8. Bodies and
branches are sequences of slices, updates, scatters, guarded updates, conditionals and inner loops on any
versions of the arrays. The oracle looks at a body on its own: every version is updated at most once, and an
order exists in which each update follows all other reads of the version that it overwrites. The loops of
`hloom.fuzzing` have any operations, for which the oracle knows no answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.reducers import binary

N = 320
ARRAY, ROW = f"f32[{N}]", "f32[8]"


@dataclass
class Step:
    """An instruction on versions of arrays: what it reads, what it overwrites, and the values it defines."""

    reads: list[str]
    overwrites: list[str]
    defines: list[str]


@dataclass
class Loops:
    """A program under construction.

    Attributes:
        computations: the text of finished computations.
        in_place: whether every body so far has an order without copies.
    """

    draw: random.Random
    computations: list[str] = field(default_factory=list)
    in_place: bool = True
    count: int = 0

    def name(self, stem: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{stem}{self.count}"


@dataclass
class Block:
    """A computation under construction: a body or a branch."""

    loops: Loops
    depth: int
    arrays: list[str]
    rows: list[str]
    lines: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.versions = list(self.arrays)

    def fill(self, length: int) -> None:
        """Append random statements."""
        kinds = [self.read, self.update, self.update, self.scatter, self.guarded, self.accumulate]
        if self.depth:
            kinds += [self.branches, self.inner_loop]
        for _ in range(length):
            self.loops.draw.choice(kinds)()

    def array(self) -> int:
        """Return the number of an array."""
        return self.loops.draw.randrange(len(self.arrays))

    def version(self) -> str:
        """Return a version of an array: mostly the current one."""
        if self.loops.draw.random() < 0.15:
            return self.loops.draw.choice(self.versions)
        return self.arrays[self.array()]

    def start(self) -> str:
        """Append a start index: a multiple of the counter."""
        name = self.loops.name("at")
        self.lines.append(f"{name} = s32[] multiply(i, c{self.loops.draw.choice([3, 5, 11])})")
        return name

    def row(self) -> str:
        return self.loops.draw.choice(self.rows)

    def read(self) -> None:
        """``r = slice(x) + row``."""
        x, old, at = self.version(), self.row(), self.start()
        piece, new = self.loops.name("piece"), self.loops.name("row")
        self.lines += [
            f"{piece} = {ROW} dynamic-slice({x}, {at}), dynamic_slice_sizes={{8}}",
            f"{new} = {ROW} maximum({piece}, {old})",
        ]
        self.steps += [Step([x], [], [piece]), Step([piece, old], [], [new])]
        self.rows.append(new)

    def update(self) -> None:
        number, u, at = self.array(), self.row(), self.start()
        x, new = (
            self.version() if self.loops.draw.random() < 0.1 else self.arrays[number],
            self.loops.name("x"),
        )
        self.lines.append(f"{new} = {ARRAY} dynamic-update-slice({x}, {u}, {at})")
        self.define(number, new, [u], [x])

    def scatter(self) -> None:
        number, u, at = self.array(), self.row(), self.start()
        x, new, ix, up = (
            self.arrays[number],
            self.loops.name("x"),
            self.loops.name("ix"),
            self.loops.name("up"),
        )
        self.lines += [
            f"{ix} = s32[1] reshape({at})",
            f"{up} = f32[1] slice({u}), slice={{[2:3]}}",
            f"{new} = {ARRAY} scatter({x}, {ix}, {up}s), update_window_dims={{}}, "
            f"inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, "
            "to_apply=sum",
        ]
        self.lines.insert(-1, f"{up}s = f32[] reshape({up})")
        self.define(number, new, [u], [x])

    def guarded(self) -> None:
        """``x = select(p, update(x), x)``."""
        number, u, at = self.array(), self.row(), self.start()
        x, new, updated = self.arrays[number], self.loops.name("x"), self.loops.name("updated")
        self.lines += [
            f"{updated} = {ARRAY} dynamic-update-slice({x}, {u}, {at})",
            f"{new} = {ARRAY} select(odd, {updated}, {x})",
        ]
        self.define(number, new, [u], [x])

    def accumulate(self) -> None:
        """``x = x + update(zeros)``."""
        number, u, at = self.array(), self.row(), self.start()
        x, new, term = self.arrays[number], self.loops.name("x"), self.loops.name("term")
        self.lines += [
            f"{term} = {ARRAY} dynamic-update-slice(zeros, {u}, {at})",
            f"{new} = {ARRAY} add({x}, {term})",
        ]
        self.define(number, new, [u], [x])

    def define(self, number: int, new: str, reads: Sequence[str], overwrites: Sequence[str]) -> None:
        """Record a step that makes a new version of an array."""
        self.steps.append(Step([*reads, *overwrites], list(overwrites), [new]))
        self.arrays[number] = new
        self.versions.append(new)

    def block(self, count: int, tuple_: str, length: int) -> Block:
        """Return an inner block on the elements 1 to count of a tuple, and a row."""
        inner = Block(self.loops, self.depth - 1, [f"b{n}" for n in range(count)], ["v"])
        inner.lines += [
            f"i = s32[] get-tuple-element({tuple_}), index=0",
            *(f"b{n} = {ARRAY} get-tuple-element({tuple_}), index={n + 1}" for n in range(count)),
            f"v = {ROW} get-tuple-element({tuple_}), index={count + 1}",
            *COMMON,
        ]
        inner.fill(length)
        return inner

    def branches(self) -> None:
        """A conditional on some of the arrays, with two or three branches."""
        draw, loops = self.loops.draw, self.loops
        chosen = draw.sample(range(len(self.arrays)), draw.randint(1, len(self.arrays)))
        old, row = [self.arrays[n] for n in chosen], self.row()
        given = f"(s32[], {', '.join([ARRAY] * len(old))}, {ROW})"
        result = f"({', '.join([ARRAY] * len(old))}, {ROW})"
        names: list[str] = []
        for _ in range(draw.choice([2, 2, 3])):
            block = self.block(len(old), "t", draw.randint(0, 3))
            final = block.finish()
            names.append(loops.name("branch"))
            root = f"ROOT r = {result} tuple({', '.join(final)}, {block.rows[-1]})"
            loops.computations.append(computation(names[-1], given, [*block.lines, root]))
        operand, taken = loops.name("given"), loops.name("taken")
        which = f"branch_computations={{{', '.join(names)}}}"
        chooser = "odd" if len(names) == 2 else "third"
        self.lines += [
            f"{operand} = {given} tuple(i, {', '.join(old)}, {row})",
            f"{taken} = {result} conditional({chooser}, {', '.join([operand] * len(names))}), {which}",
        ]
        self.take(taken, chosen, 0, [row], old)

    def inner_loop(self) -> None:
        """A loop of a few iterations on some of the arrays."""
        draw, loops = self.loops.draw, self.loops
        chosen = draw.sample(range(len(self.arrays)), draw.randint(1, len(self.arrays)))
        old, row = [self.arrays[n] for n in chosen], self.row()
        state = f"(s32[], {', '.join([ARRAY] * len(old))}, {ROW})"
        block = self.block(len(old), "t", draw.randint(1, 3))
        final = block.finish()
        body, condition = loops.name("body"), loops.name("condition")
        root = f"ROOT r = {state} tuple(next, {', '.join(final)}, {block.rows[-1]})"
        loops.computations += [
            computation(body, state, [*block.lines, root]),
            computation(condition, state, [
                "i = s32[] get-tuple-element(t), index=0", "most = s32[] constant(3)",
                "ROOT less = pred[] compare(i, most), direction=LT",
            ]),
        ]  # fmt: skip
        first, looped = loops.name("first"), loops.name("looped")
        self.lines += [
            f"{first} = {state} tuple(zero, {', '.join(old)}, {row})",
            f"{looped} = {state} while({first}), condition={condition}, body={body}",
        ]
        self.take(looped, chosen, 1, [row], old)

    def take(self, whole: str, chosen: Sequence[int], first: int, reads: list[str], old: list[str]) -> None:
        """Append the elements of a tuple as new versions of arrays and a new row."""
        made = [self.loops.name("x") for _ in chosen]
        row = self.loops.name("row")
        for place, name in enumerate(made):
            self.lines.append(f"{name} = {ARRAY} get-tuple-element({whole}), index={place + first}")
        self.lines.append(f"{row} = {ROW} get-tuple-element({whole}), index={len(made) + first}")
        self.steps.append(Step([*reads, *old], old, [*made, row]))
        for number, name in zip(chosen, made, strict=True):
            self.arrays[number] = name
        self.versions += made
        self.rows.append(row)

    def finish(self) -> list[str]:
        """Return the arrays to return: mostly the current ones, sometimes in another order, or older ones."""
        final = list(self.arrays)
        chance = self.loops.draw.random()
        if chance < 0.25:
            self.loops.draw.shuffle(final)
        elif chance < 0.30:  # an array, and its value before this iteration
            final[-1] = "b0"
        elif chance < 0.36:
            final = [self.version() for _ in final]
        self.loops.in_place &= self.has_order(final)
        return final

    def has_order(self, final: Sequence[str]) -> bool:
        """Return whether some order of the steps overwrites no array that is read later."""
        overwritten = [x for step in self.steps for x in step.overwrites]
        if len(set(overwritten)) < len(overwritten) or len(set(final)) < len(final):
            return False
        if any(x in overwritten for x in final):
            return False
        origin = {value: step for step in self.steps for value in step.defines}
        before = {id(s): [id(origin[x]) for x in s.reads if x in origin] for s in self.steps}
        for step in self.steps:
            for other in self.steps:
                if other is not step and any(x in other.reads for x in step.overwrites):
                    before[id(step)].append(id(other))
        done: set[int] = set()
        while True:
            ready = {s for s, needs in before.items() if s not in done and all(n in done for n in needs)}
            if not ready:
                return len(done) == len(before)
            done |= ready


COMMON = [
    "one = s32[] constant(1)",
    "zero = s32[] constant(0)",
    *(f"c{n} = s32[] constant({n})" for n in (3, 5, 11)),
    "next = s32[] add(i, one)",
    "bit = s32[] and(i, one)",
    "odd = pred[] compare(bit, one), direction=EQ",
    "third = s32[] remainder(i, c3)",
    "nothing = f32[] constant(0)",
    f"zeros = {ARRAY} broadcast(nothing), dimensions={{}}",
]


def computation(name: str, parameter: str, lines: Sequence[str]) -> str:
    """Return the text of a computation with one parameter."""
    body = "".join(f"  {line}\n" for line in [f"t = {parameter} parameter(0)", *lines])
    return f"{name} {{\n{body}}}\n"


def random_loop(seed: int) -> tuple[str, bool]:
    """Return a program (trip count, arrays, row) and whether an order without copies of arrays exists."""
    draw = random.Random(seed)
    loops, count = Loops(draw), draw.randint(1, 3)
    block = Block(loops, draw.randint(0, 2), [f"b{n}" for n in range(count)], ["v"])
    state = f"(s32[], s32[], {', '.join([ARRAY] * count)}, {ROW})"
    block.lines += [
        "i = s32[] get-tuple-element(t), index=0",
        "k = s32[] get-tuple-element(t), index=1",
        *(f"b{n} = {ARRAY} get-tuple-element(t), index={n + 2}" for n in range(count)),
        f"v = {ROW} get-tuple-element(t), index={count + 2}",
        *COMMON,
    ]
    block.fill(draw.randint(1, 6))
    final = block.finish()
    root = f"ROOT r = {state} tuple(next, k, {', '.join(final)}, {block.rows[-1]})"
    elements = [ARRAY] * count + [ROW]
    text = "HloModule loops\n" + SUM + "".join(loops.computations)
    text += computation("body", state, [*block.lines, root])
    text += computation("condition", state, [
        "i = s32[] get-tuple-element(t), index=0", "k = s32[] get-tuple-element(t), index=1",
        "ROOT less = pred[] compare(i, k), direction=LT",
    ])  # fmt: skip
    lines = ["k = s32[] parameter(0)", "zero = s32[] constant(0)"]
    lines += [f"p{n} = {shape} parameter({n + 1})" for n, shape in enumerate(elements)]
    lines += ["nothing = f32[] constant(0)", f"zeros = {ARRAY} broadcast(nothing), dimensions={{}}"]
    initial = [draw.choice(["zeros", f"p{n}", f"p{n}"]) for n in range(count)]
    lines += [
        f"first = {state} tuple(zero, k, {', '.join(initial)}, p{count})",
        f"w = {state} while(first), condition=condition, body=body",
        *(f"g{n} = {shape} get-tuple-element(w), index={n + 2}" for n, shape in enumerate(elements)),
        f"ROOT r = ({', '.join(elements)}) tuple({', '.join(f'g{n}' for n in range(len(elements)))})",
    ]
    return text + "ENTRY main {\n" + "".join(f"  {line}\n" for line in lines) + "}\n", loops.in_place


SUM = binary("add", name="sum")
