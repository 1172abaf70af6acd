"""Random programs over arrays of a few related sizes: what fusions and row kernels join and keep apart.

Programs of unrelated shapes rarely put values of rows, transposed arrays, broadcasts and sums along several
dimensions into one kernel; here every array has some of three sizes, often with two of them equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from tests.reducers import binary

Sizes = tuple[int, ...]

_SIZES: Final = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 64, 65, 100, 129)
_MOST_ELEMENTS: Final = 20_000
_UNARY: Final = {
    "f32": ("negate", "abs", "tanh", "logistic"),
    "s32": ("negate", "abs", "not", "popcnt", "count-leading-zeros"),
}
_BINARY: Final = {
    "f32": ("add", "subtract", "multiply", "maximum", "minimum"),
    "s32": ("add", "subtract", "multiply", "maximum", "minimum", "xor", "and", "divide", "remainder"),
}
_COMBINERS: Final = {
    "f32": {"add": "0", "maximum": "-inf", "minimum": "inf"},
    "s32": {"add": "0", "maximum": "-2147483648", "minimum": "2147483647", "and": "-1", "multiply": "1"},
}
_STATES: Final = ((1, 0, 1, 0), (1, 1, 1, 1), (2, 1, 0, 1), (2, 2, 2, 0), (3, 1, 2, 1), (1, 2, 0, 2))
"""Numbers of arrays in a loop's state: carried, stacks that iterations read and write by rows, unchanged."""


class Value(NamedTuple):
    """An array of a program."""

    name: str
    sizes: Sizes


def related_program(kind: str, seed: int) -> str:
    """Return the text of a program of 6 to 24 steps whose result has every value that nothing reads."""
    random = Random(seed)
    drawing = _Drawing(kind, random, _related_shapes(random))
    for number in range(3):
        sizes = random.choice(drawing.shapes) if number else drawing.shapes[0]
        drawing.keep(sizes, f"parameter({number})")
    drawing.take_steps(random.choice((6, 10, 16, 24)))
    return _module(kind, drawing.computation("ENTRY main", drawing.unread()))


def related_loop(kind: str, seed: int) -> str:
    """Return the text of a program with a loop over carried arrays, rows of stacks read and written.

    The loop's results are read by a few more steps.
    """
    random = Random(seed)
    shapes = _related_shapes(random)
    trips = random.choice((1, 2, 3, 4, 7))
    carried, read, written, kept = ([random.choice(shapes) for _ in range(n)] for n in random.choice(_STATES))
    carried[0] = shapes[0]
    stacks = [(trips, *sizes) for sizes in (*read, *written)]
    state = [*carried, *stacks, *kept]
    shape = f"(s32[], {', '.join(f'{kind}[{_listed(sizes)}]' for sizes in state)})"
    body = _Drawing(kind, random, shapes, "b", ("i", "back", "next"))
    body.lines = [f"  s = {shape} parameter(0)", "  i = s32[] get-tuple-element(s), index=0"]
    body.lines += ["  one = s32[] constant(1)", "  nil = s32[] constant(0)", "  next = s32[] add(i, one)"]
    body.lines += [f"  last = s32[] constant({trips - 1})", "  back = s32[] subtract(last, i)"]
    at = random.choice(("i", "i", "back"))
    elements = [body.emit(sizes, f"get-tuple-element(s), index={n}") for n, sizes in enumerate(state, 1)]
    body.values = [*elements[: len(carried)], *elements[len(carried) + len(stacks) :]]
    zeros = {sizes: ", nil" * len(sizes) for sizes in shapes}
    for sizes, stack in zip(read, elements[len(carried) :], strict=False):
        slice = f"dynamic-slice({stack.name}, {at}{zeros[sizes]}), dynamic_slice_sizes={{1,{_listed(sizes)}}}"
        row = body.emit((1, *sizes), slice)
        body.keep(sizes, f"reshape({row.name})")
    body.take_steps(random.choice((3, 6, 10, 16)))
    following = [body.next_of(element) for element in elements[: len(carried)]]
    following += elements[len(carried) : len(carried) + len(read)]
    for sizes, stack in zip(written, elements[len(carried) + len(read) :], strict=False):
        value = body.draw(lambda own, sizes=sizes: own == sizes)
        row = body.emit((1, *sizes), f"reshape({value.name})") if value else None
        update = f"dynamic-update-slice({stack.name}, {row.name}, {at}{zeros[sizes]})" if row else ""
        following.append(body.emit(stack.sizes, update) if row else stack)
    following += elements[len(carried) + len(stacks) :]
    body.lines.append(f"  ROOT r = {shape} tuple(next, {', '.join(v.name for v in following)})")
    step = "\n".join(["step {", *body.lines, "}\n"])
    more = f"more {{\n  t = {shape} parameter(0)\n  j = s32[] get-tuple-element(t), index=0\n"
    more += f"  n = s32[] constant({trips})\n  ROOT l = pred[] compare(j, n), direction=LT\n}}\n"
    entry = _Drawing(kind, random, shapes)
    initial = [entry.keep(sizes, f"parameter({n})") for n, sizes in enumerate(state)]
    entry.lines.append("  zero = s32[] constant(0)")
    entry.lines.append(f"  start = {shape} tuple(zero, {', '.join(v.name for v in initial)})")
    entry.lines.append(f"  loop = {shape} while(start), condition=more, body=step")
    results = [entry.keep(sizes, f"get-tuple-element(loop), index={n}") for n, sizes in enumerate(state, 1)]
    entry.take_steps(random.choice((0, 2, 5)))
    changed = results[: len(carried)] + results[len(carried) + len(read) : len(carried) + len(stacks)]
    return _module(kind, step + more + entry.computation("ENTRY main", [*changed, *entry.unread()]))


def _related_shapes(random: Random) -> list[Sizes]:
    rows, depth = random.choice(_SIZES), random.choice(_SIZES[:9])
    columns = random.choice((rows, random.choice(_SIZES)))
    shapes: list[Sizes] = [(rows, columns), (columns, rows), (rows,), (columns,)]
    if rows * columns * depth < _MOST_ELEMENTS:
        shapes += [(depth, rows, columns), (rows, depth, columns), (depth, columns, rows)]
    return shapes


def _module(kind: str, computations: str) -> str:
    combiners = "".join(binary(opcode, kind, opcode) for opcode in _COMBINERS[kind])
    return f"HloModule related\n{combiners}{computations}"


class _Drawing:
    def __init__(
        self,
        kind: str,
        random: Random,
        shapes: list[Sizes],
        prefix: str = "v",
        indices: Sequence[str] = (),
    ) -> None:
        self.indices = indices
        self.kind, self.choose, self.shapes, self.prefix = kind, random.choice, shapes, prefix
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.read: set[str] = set()
        self.steps: Sequence[Callable[[], None]] = (
            *(self.unary, self.select, self.broadcast, self.transpose, self.shift, self.reverse),
            *(self.reshape, self.iota, self.line, self.line_at, self.update_at, self.dot, self.stack),
            *(self.append, self.append),
            *(self.binary, self.combine, self.reduce, self.normalize) * 2,
        )

    def take_steps(self, count: int) -> None:
        for _ in range(count):
            self.choose(self.steps)()

    def unread(self) -> list[Value]:
        """Return the values that nothing reads, and one more."""
        return [*(v for v in self.values if v.name not in self.read), self.choose(self.values)]

    def computation(self, name: str, results: Sequence[Value]) -> str:
        results = list(dict.fromkeys(results))
        shapes = ", ".join(self.shape(v.sizes) for v in results)
        root = f"  ROOT r = ({shapes}) tuple({', '.join(v.name for v in results)})"
        return "\n".join([f"{name} {{", *self.lines, root, "}\n"])

    def next_of(self, element: Value) -> Value:
        """Return a value for the next iteration; of floats one that stays small."""
        value = self.like(element)
        if self.choose((True, False)):
            value = self.emit(element.sizes, f"add({value.name}, {element.name})")
        return self.emit(element.sizes, f"tanh({value.name})") if self.kind == "f32" else value

    def shape(self, sizes: Sizes) -> str:
        return f"{self.kind}[{_listed(sizes)}]"

    def emit(self, sizes: Sizes, operation: str, kind: str = "") -> Value:
        """Add an instruction that only the current step reads."""
        value = Value(f"{self.prefix}{len(self.lines)}", sizes)
        shape = self.shape(sizes).replace(self.kind, kind or self.kind)
        self.lines.append(f"  {value.name} = {shape} {operation}")
        return value

    def keep(self, sizes: Sizes, operation: str) -> Value:
        """Add an instruction that later steps may read."""
        self.values.append(self.emit(sizes, operation))
        return self.values[-1]

    def draw(self, accepts: Callable[[Sizes], bool] = bool) -> Value | None:
        """Choose a value of accepted sizes, the latest ones more often; None if there is none."""
        values = [v for v in self.values if accepts(v.sizes)]
        if not values:
            return None
        value = self.choose([*values, *values[-6:], *values[-3:]])
        self.read.add(value.name)
        return value

    def array(self) -> Value:
        value = self.draw()
        assert value is not None
        return value

    def matrix(self) -> Value:
        value = self.draw(lambda sizes: len(sizes) > 1)
        assert value is not None
        return value

    def like(self, value: Value) -> Value:
        return self.draw(lambda sizes: sizes == value.sizes) or value

    # -- steps

    def unary(self) -> None:
        x = self.array()
        self.keep(x.sizes, f"{self.choose(_UNARY[self.kind])}({x.name})")

    def binary(self) -> None:
        x = self.array()
        self.keep(x.sizes, f"{self.choose(_BINARY[self.kind])}({x.name}, {self.like(x).name})")

    def select(self) -> None:
        """Select between two values by an order of indices, as masks of attention do."""
        x = self.array()
        i, j = (self.emit(x.sizes, f"iota(), iota_dimension={d}", "s32") for d in (0, len(x.sizes) - 1))
        direction = self.choose(("LT", "GE", "EQ"))
        mask = self.emit(x.sizes, f"compare({i.name}, {j.name}), direction={direction}", "pred")
        self.keep(x.sizes, f"select({mask.name}, {x.name}, {self.like(x).name})")

    def spread(self) -> Value | None:
        x = self.draw(lambda sizes: len(sizes) < 3)
        targets = [(t, d) for t in self.shapes for d in _embeddings(x.sizes, t)] if x else []
        if x is None or not targets:
            return None
        sizes, dimensions = self.choose(targets)
        return self.keep(sizes, f"broadcast({x.name}), dimensions={_braces(dimensions)}")

    def broadcast(self) -> None:
        self.spread()

    def combine(self) -> None:
        """Combine a broadcast with an array of its sizes."""
        x = self.spread()
        if x is not None:
            self.keep(x.sizes, f"{self.choose(_BINARY[self.kind])}({self.like(x).name}, {x.name})")

    def transpose(self) -> None:
        x = self.matrix()
        order = self.choose(list(itertools.permutations(range(len(x.sizes)))))
        self.keep(tuple(x.sizes[d] for d in order), f"transpose({x.name}), dimensions={_braces(order)}")

    def reduced(self, x: Value) -> tuple[Value, list[int]]:
        rank = len(x.sizes)
        last = [(rank - 1,)] * 3
        several = [d for n in range(1, rank + 1) for d in itertools.combinations(range(rank), n)]
        dimensions = self.choose([*last, *several])
        kept = [d for d in range(rank) if d not in dimensions]
        opcode = self.choose(list(_COMBINERS[self.kind]))
        start = self.emit((), f"constant({_COMBINERS[self.kind][opcode]})")
        operation = f"reduce({x.name}, {start.name}), dimensions={_braces(dimensions)}, to_apply={opcode}"
        return self.keep(tuple(x.sizes[d] for d in kept), operation), kept

    def reduce(self) -> None:
        self.reduced(self.matrix())

    def normalize(self) -> None:
        """Combine an array with sums, or other reductions, of its rows, or of products of its rows."""
        x = self.matrix()
        product = self.emit(x.sizes, f"multiply({x.name}, {self.like(x).name})")
        sums, kept = self.reduced(self.choose((x, product)))
        if self.choose((True, False)):
            sums = self.keep(sums.sizes, f"{self.choose(_UNARY[self.kind])}({sums.name})")
        spread = self.emit(x.sizes, f"broadcast({sums.name}), dimensions={_braces(kept)}")
        self.keep(x.sizes, f"{self.choose(_BINARY[self.kind])}({x.name}, {spread.name})")

    def shift(self) -> None:
        """Move an array along a dimension: cyclically, or with padding."""
        x = self.array()
        d = self.choose(range(len(x.sizes)))
        size = x.sizes[d]
        if size == 1:
            return
        count = self.choose((1, size - 1))
        rest = self.part(x, d, count, size)
        if self.choose((True, False)):
            first = self.part(x, d, 0, count)
            self.keep(x.sizes, f"concatenate({rest.name}, {first.name}), dimensions={{{d}}}")
        else:
            padding = "x".join(f"{count if n == d else 0}_0" for n in range(len(x.sizes)))
            one = self.emit((), "constant(1)")
            self.keep(x.sizes, f"pad({rest.name}, {one.name}), padding={padding}")

    def append(self) -> None:
        """Join an array and a line of another one, and take a difference, as ghost cells do."""
        x = self.array()
        d = self.choose(range(len(x.sizes)))
        line = self.part(self.like(x), d, 0, 1)
        longer = (*x.sizes[:d], x.sizes[d] + 1, *x.sizes[d + 1 :])
        names = self.choose(((x.name, line.name), (line.name, x.name)))
        long = self.emit(longer, f"concatenate({', '.join(names)}), dimensions={{{d}}}")
        low, high = (self.part(long, d, start, start + x.sizes[d]) for start in (0, 1))
        self.keep(x.sizes, f"subtract({high.name}, {low.name})")

    def part(self, x: Value, d: int, start: int, limit: int) -> Value:
        sizes = (*x.sizes[:d], limit - start, *x.sizes[d + 1 :])
        bounds = [f"[{start}:{limit}]" if n == d else f"[0:{size}]" for n, size in enumerate(x.sizes)]
        return self.emit(sizes, f"slice({x.name}), slice={_braces(bounds)}")

    def reverse(self) -> None:
        x = self.array()
        self.keep(x.sizes, f"reverse({x.name}), dimensions={{{self.choose(range(len(x.sizes)))}}}")

    def reshape(self) -> None:
        x = self.array()
        count = math.prod(x.sizes)
        equal = [s for s in self.shapes if math.prod(s) == count and s != x.sizes]
        self.keep(self.choose([*equal, (count,)]), f"reshape({x.name})")

    def iota(self) -> None:
        sizes = self.choose(self.shapes)
        self.keep(sizes, f"iota(), iota_dimension={self.choose(range(len(sizes)))}")

    def line(self) -> None:
        """Broadcast one line of an array along the others."""
        x = self.matrix()
        d = self.choose(range(len(x.sizes)))
        start = self.choose((0, x.sizes[d] - 1))
        others = [n for n in range(len(x.sizes)) if n != d]
        line = self.part(x, d, start, start + 1)
        line = self.keep(tuple(x.sizes[n] for n in others), f"reshape({line.name})")
        self.keep(x.sizes, f"broadcast({line.name}), dimensions={_braces(others)}")

    def line_at(self) -> None:
        """Broadcast a line at a dynamic index."""
        x = self.matrix()
        d = self.choose(range(len(x.sizes)))
        starts, sizes = self.starts(x, d), (*x.sizes[:d], 1, *x.sizes[d + 1 :])
        line = self.emit(sizes, f"dynamic-slice({x.name}, {starts}), dynamic_slice_sizes={_braces(sizes)}")
        others = [n for n in range(len(x.sizes)) if n != d]
        line = self.keep(tuple(x.sizes[n] for n in others), f"reshape({line.name})")
        self.keep(x.sizes, f"broadcast({line.name}), dimensions={_braces(others)}")

    def update_at(self) -> None:
        """Update a line of an array by a line of another one, or a few lines."""
        x = self.array()
        d = self.choose(range(len(x.sizes)))
        part = self.part(self.like(x), d, 0, self.choose((1, min(2, x.sizes[d]))))
        self.keep(x.sizes, f"dynamic-update-slice({x.name}, {part.name}, {self.starts(x, d)})")

    def starts(self, x: Value, d: int) -> str:
        """Return the start indices of a line, which may be out of bounds."""
        zero, several = (self.emit((), f"constant({n})", "s32").name for n in (0, self.choose((1, 7, -3))))
        at = self.choose((several, *self.indices))
        return ", ".join(at if n == d else zero for n in range(len(x.sizes)))

    def dot(self) -> None:
        """Multiply matrices; the sign of a sum of zeros is a choice, which no result shows."""
        x = self.draw(lambda sizes: len(sizes) == 2)
        y = self.draw(lambda sizes: len(sizes) < 3 and sizes[:1] == x.sizes[1:]) if x else None
        if x and y:
            contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            product = self.emit((x.sizes[0], *y.sizes[1:]), f"dot({x.name}, {y.name}), {contracted}")
            self.keep(product.sizes, f"abs({product.name})")

    def stack(self) -> None:
        """Stack two arrays along a new dimension, and reduce along some dimension."""
        x = self.draw(lambda sizes: 0 < len(sizes) < 3)
        if x is None:
            return
        d = self.choose(range(len(x.sizes) + 1))
        parts = [self.emit((*x.sizes[:d], 1, *x.sizes[d:]), f"reshape({v.name})") for v in (x, self.like(x))]
        names = ", ".join(part.name for part in parts)
        stack = self.keep((*x.sizes[:d], 2, *x.sizes[d:]), f"concatenate({names}), dimensions={{{d}}}")
        self.reduced(stack)


def _embeddings(sizes: Sizes, target: Sizes) -> list[Sizes]:
    """Return the increasing numbers of dimensions of a larger array that have these sizes."""
    if len(sizes) >= len(target):
        return []
    several = itertools.combinations(range(len(target)), len(sizes))
    return [d for d in several if tuple(target[n] for n in d) == sizes]


def _braces(items: Sequence[object]) -> str:
    return f"{{{_listed(items)}}}"


def _listed(items: Sequence[object]) -> str:
    return ",".join(map(str, items))
