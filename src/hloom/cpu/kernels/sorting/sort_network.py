"""Sorting networks in vectors: bitonic merges of unsigned integers in registers and in memory.

Batcher, "Sorting networks and their applications" (AFIPS 1968), in the form where every merge begins by
comparing elements from both ends, so that all runs ascend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.llvm import I1, I64, PTR, Function, Module, Type, Value

BLOCK: Final = 8
"""Number of vectors sorted in registers."""


def network(module: Module, element: Type) -> str:
    """Emit the function (pointer, count) that sorts ``count`` unsigned integers in place; return its name.

    The count is a power of two and at least that of a `block_size`.
    """
    name = f"sort_network_{element}"
    if name not in module.functions:
        _Network(module, name, element).emit()
    return name


def small_network(module: Module, element: Type, count: int) -> str:
    """Emit the function (pointer) that sorts a power of two of integers in one block; return its name."""
    name = f"sort_network_{element}_{count}"
    if name not in module.functions:
        function = module.function(name, [PTR])
        (pointer,) = function.parameters
        lanes = min(lanes_of(element), count)
        vectors = _loaded(function, element, lanes, pointer, count // lanes)
        _stored(function, _sorted_block(vectors, lanes), pointer)
        function.finish()
    return name


def lanes_of(element: Type) -> int:
    """Return the number of lanes of the vectors in which integers of a type are sorted."""
    return 512 // element.bits


def block_size(element: Type) -> int:
    """Return the number of integers sorted in registers at once."""
    return BLOCK * lanes_of(element)


def _loaded(function: Function, element: Type, lanes: int, pointer: Value, count: int) -> list[Value]:
    return [
        function.load(element.vector(lanes), function.offset(pointer, k * lanes, element))
        for k in range(count)
    ]


def _stored(function: Function, vectors: Sequence[Value], pointer: Value) -> None:
    for number, vector in enumerate(vectors):
        function.store(vector, function.offset(pointer, number * vector.type.lanes, vector.type.scalar))


def _ordered(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the lane-wise (smaller, larger)."""
    return a.function.intrinsic("umin", a, b), a.function.intrinsic("umax", a, b)


def _exchanged(vector: Value, partner: Sequence[int], low: Sequence[bool]) -> Value:
    """Compare every lane with its partner; ``low`` lanes take the smaller one."""
    lanes = vector.type.lanes
    smaller, larger = _ordered(vector, vector.shuffle(partner))
    return smaller.shuffle([n if low[n] else n + lanes for n in range(lanes)], larger)


def _halved(vector: Value, distance: int) -> Value:
    lanes = range(vector.type.lanes)
    return _exchanged(vector, [n ^ distance for n in lanes], [not n & distance for n in lanes])


def _mirrored(vector: Value, distance: int) -> Value:
    """Compare from both ends of groups of twice the distance."""
    lanes = range(vector.type.lanes)
    return _exchanged(vector, [n ^ (2 * distance - 1) for n in lanes], [not n & distance for n in lanes])


def _merged_lanes(vector: Value) -> Value:
    """Merge a bitonic vector into ascending lanes."""
    distance = vector.type.lanes // 2
    while distance:
        vector = _halved(vector, distance)
        distance //= 2
    return vector


def _sorted_lanes(vector: Value, lanes: int) -> Value:
    width = 1
    while width < lanes:
        vector = _mirrored(vector, width)
        distance = width // 2
        while distance:
            vector = _halved(vector, distance)
            distance //= 2
        width *= 2
    return vector


def _descend(vectors: list[Value], low: int, count: int, distance: int) -> None:
    """Compare the vectors of a range at a distance, then at each half of it."""
    while distance:
        for start in range(low, low + count, 2 * distance):
            for k in range(start, start + distance):
                vectors[k], vectors[k + distance] = _ordered(vectors[k], vectors[k + distance])
        distance //= 2


def _sorted_block(vectors: list[Value], lanes: int) -> list[Value]:
    """Sort all elements of a power of two of vectors."""
    backwards = list(range(lanes))[::-1]
    vectors = [_sorted_lanes(v, lanes) for v in vectors]
    run = 1
    while run < len(vectors):
        for low in range(0, len(vectors), 2 * run):
            for k in range(run):
                a, b = low + k, low + 2 * run - 1 - k
                smaller, larger = _ordered(vectors[a], vectors[b].shuffle(backwards))
                vectors[a], vectors[b] = smaller, larger.shuffle(backwards)
            _descend(vectors, low, 2 * run, run // 2)
            for k in range(low, low + 2 * run):
                vectors[k] = _merged_lanes(vectors[k])
        run *= 2
    return vectors


class _Network:
    """Emits the function for counts beyond one block: blocks sorted in registers, then merged in memory."""

    def __init__(self, module: Module, name: str, element: Type) -> None:
        self.f = module.function(name, [PTR, I64])
        self.element, self.lanes = element, lanes_of(element)
        self.pointer, self.count = self.f.parameters

    def emit(self) -> None:
        f, block = self.f, block_size(self.element)
        with f.loop(0, self.count, block) as blocks:
            address = self.at(blocks.index)
            _stored(
                f, _sorted_block(_loaded(f, self.element, self.lanes, address, BLOCK), self.lanes), address
            )
        exponent = f.intrinsic("cttz", self.count, f.constant(I1, 1))
        first = f.constant(I64, block)
        with f.loop(0, exponent - (block.bit_length() - 1), 1, [first]) as merging:
            (run,) = merging.values
            self.fold(run)
            with f.loop(0, merging.index, 1, [run.logical_shift_right(1)]) as levels:
                (distance,) = levels.values
                self.level(distance)
                levels.next(distance.logical_shift_right(1))
            with f.loop(0, self.count, block) as blocks:
                address = self.at(blocks.index)
                vectors = _loaded(f, self.element, self.lanes, address, BLOCK)
                _descend(vectors, 0, BLOCK, BLOCK // 2)
                _stored(f, [_merged_lanes(v) for v in vectors], address)
            merging.next(run + run)
        f.finish()

    def at(self, index: Value) -> Value:
        """Return the address of an element."""
        return self.f.offset(self.pointer, index, self.element)

    def fold(self, run: Value) -> None:
        """Compare adjacent runs from both ends."""
        f, wide = self.f, self.element.vector(self.lanes)
        backwards = list(range(self.lanes))[::-1]
        with f.loop(0, self.count, run + run) as pairs:
            last = pairs.index + run + run - self.lanes
            with f.loop(0, run, self.lanes) as inside:
                low, high = self.at(pairs.index + inside.index), self.at(last - inside.index)
                smaller, larger = _ordered(f.load(wide, low), f.load(wide, high).shuffle(backwards))
                f.store(smaller, low)
                f.store(larger.shuffle(backwards), high)

    def level(self, distance: Value) -> None:
        """Compare elements at a distance."""
        f, wide = self.f, self.element.vector(self.lanes)
        with f.loop(0, self.count, distance + distance) as groups, f.loop(0, distance, self.lanes) as inside:
            low = self.at(groups.index + inside.index)
            high = f.offset(low, distance, self.element)
            smaller, larger = _ordered(f.load(wide, low), f.load(wide, high))
            f.store(smaller, low)
            f.store(larger, high)
