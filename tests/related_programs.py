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


class Value(NamedTuple):
    """An array of a program."""

    name: str
    sizes: Sizes


def related_program(kind: str, seed: int) -> str:
    """Return the text of a program of 6 to 24 steps whose result has every value that nothing reads."""
    return _Drawing(kind, Random(seed)).text()


class _Drawing:
    def __init__(self, kind: str, random: Random) -> None:
        self.kind, self.choose = kind, random.choice
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.read: set[str] = set()
        rows, depth = self.choose(_SIZES), self.choose(_SIZES[:9])
        columns = self.choose((rows, self.choose(_SIZES)))
        self.shapes: list[Sizes] = [(rows, columns), (columns, rows), (rows,), (columns,)]
        if rows * columns * depth < _MOST_ELEMENTS:
            self.shapes += [(depth, rows, columns), (rows, depth, columns), (depth, columns, rows)]
        for number in range(3):
            sizes = self.choose(self.shapes) if number else self.shapes[0]
            self.keep(sizes, f"parameter({number})")
        steps: Sequence[Callable[[], None]] = (
            *(self.unary, self.select, self.broadcast, self.transpose, self.shift, self.reverse),
            *(self.reshape, self.iota, self.line, self.dot, self.stack),
            *(self.binary, self.combine, self.reduce, self.normalize) * 2,
        )
        for _ in range(self.choose((6, 10, 16, 24))):
            self.choose(steps)()

    def text(self) -> str:
        unread = [v for v in self.values if v.name not in self.read]
        results = list(dict.fromkeys([*unread, self.choose(self.values)]))
        shapes = ", ".join(self.shape(v.sizes) for v in results)
        root = f"  ROOT r = ({shapes}) tuple({', '.join(v.name for v in results)})"
        combiners = "".join(binary(opcode, self.kind, opcode) for opcode in _COMBINERS[self.kind])
        return "\n".join(["HloModule related", combiners, "ENTRY main {", *self.lines, root, "}\n"])

    def shape(self, sizes: Sizes) -> str:
        return f"{self.kind}[{','.join(map(str, sizes))}]"

    def emit(self, sizes: Sizes, operation: str, kind: str = "") -> Value:
        """Add an instruction that only the current step reads."""
        value = Value(f"v{len(self.lines)}", sizes)
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
    return f"{{{','.join(map(str, items))}}}"
