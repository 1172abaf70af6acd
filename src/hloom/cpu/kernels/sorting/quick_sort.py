"""Quicksort of unsigned integers by vector instructions, between two areas of memory.

Hoare, "Quicksort" (The Computer Journal, 1962). A partition step appends the integers below the pivot to one
area and the others to the other area, without branches on the data. The pivot is the median of as many
samples as a vector has lanes. Where samples split badly too often, the pivot is the middle of the range of
values instead, which bounds the recursion depth by the width of the integers. Short ranges are sorted by a
sorting network.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, Function, Module, Type, Value, make_type
from hloom.codegen.llvm.memory import gather, masked_load, masked_store
from hloom.codegen.llvm.structured import LocalVariable, repeat
from hloom.codegen.target import Target
from hloom.cpu.kernels.sorting.sort_network import sorted_block

BLOCK: Final = 16
"""Most vectors that a network sorts. With 8 a sort takes 8 % longer: twice as many partitions, short ones."""
PATIENCE: Final = 2
"""Levels of recursion whose pivots are medians of samples, for each bit of the number of integers."""
UNROLLED: Final = 4
"""Vectors per iteration of the partition loop."""


def sorts_quickly(target: Target) -> bool:
    """Return whether the target has AVX2, without which quicksort is not used.

    Its partition step needs AVX2's permutation, which moves the lanes selected by a mask to the front.
    """
    return target.has("avx2")


def quick_sort(module: Module, element: Type) -> str:
    """Emit the function (area, other, count, elsewhere) that sorts unsigned integers; return its name.

    ``area`` and ``other`` are buffers for ``count`` integers of type ``element``. The integers to sort are in
    ``other`` if ``elsewhere`` is true, else in ``area``; the sorted ones are stored to ``area``.
    """
    name = f"quick_sort_{element}"
    if name not in module.functions:
        f = module.function(name, [PTR, PTR, I64, I1])
        area, other, count, elsewhere = f.parameters
        bits = f.constant(I64, 64) - f.intrinsic("ctlz", count, f.constant(I1, 0))
        extent = f.constant(element, 0), f.constant(element, -1)
        levels = bits * PATIENCE
        f.call(None, QuickSort(module, element).emit(), area, other, count, elsewhere, *extent, levels)
        f.finish()
    return name


class QuickSort:
    """Emits the functions of a quicksort of unsigned integers of LLVM type ``element`` to ``module``."""

    def __init__(self, module: Module, element: Type) -> None:
        self.module, self.element = module, element
        self.lanes = module.target.vector_bytes // element.size
        self.vector = element.vector(self.lanes)

    def emit(self) -> str:
        """Emit the recursive function (area, other, count, elsewhere, low, high, levels); return its name.

        It sorts like the function of `quick_sort`: it partitions the integers by a pivot, calls itself for
        those below the pivot, and loops for the rest. All integers lie in [low, high]. While ``levels``,
        decremented by each partition, is positive, the pivot is the median of samples; afterwards it is the
        middle of [low, high].
        """
        name, element = f"quick_sort_range_{self.element}", self.element
        blocks, equal, partition = self.blocks(), self.equal(), self.partition()
        f = self.module.function(name, [PTR, PTR, I64, I1, element, element, I64])
        *first, high, levels = f.parameters
        variables = [LocalVariable(f, value.type, value) for value in (*first, levels)]
        with repeat(f):
            area, other, count, elsewhere, low, levels = (v.get() for v in variables)
            source = elsewhere.select(other, area)
            with f.when(count.compare("sle", BLOCK * self.lanes)):
                f.call(None, blocks, source, area, count)
                f.return_value()
            least, median, greatest = self.samples(f, source, count)
            with f.when(least.compare("eq", greatest)):
                f.return_if(f.call(I1, equal, source, area, count, least).compare("ne", 0))
            pivot = median + (median.compare("eq", least) & median.compare("ne", high)).cast("zext", element)
            middle = low + (high - low).logical_shift_right(1) + 1
            pivot = levels.compare("sgt", 0).select(pivot, middle)
            below = f.call(I64, partition, source, area, other, count, pivot)
            above = count - below
            rest = f.offset(other, above, element)
            f.call(None, name, area, rest, below, f.constant(I1, 0), low, pivot - 1, levels - 1)
            following = (f.offset(area, below, element), other, above, f.constant(I1, 1), pivot, levels - 1)
            for variable, value in zip(variables, following, strict=True):
                variable.set(value)
        f.finish()
        return name

    def samples(self, f: Function, source: Value, count: Value) -> tuple[Value, Value, Value]:
        """Emit the load of samples of ``count`` integers: as many as a vector has lanes, at equal distances.

        Returns the least, the median and the greatest sample; ``source`` is the address of the integers.
        """
        lanes = self.lanes
        step = count.logical_shift_right(lanes.bit_length() - 1)
        indices = step.splat(lanes) * f.constant(I64.vector(lanes), list(range(lanes)))
        start = f.offset(source, step.logical_shift_right(1), self.element)
        (ordered,) = sorted_block([gather(self.vector, f.offset(start, indices, self.element))])
        return ordered.extract(0), ordered.extract(lanes // 2), ordered.extract(lanes - 1)

    def partition(self) -> str:
        """Emit the function (source, area, other, count, pivot) that partitions integers; return its name.

        It copies those of the ``count`` integers at ``source`` that are below the pivot to ``area``, and the
        others to the buffer ``other``; it returns the number of those below. The source may be one of the two
        buffers: no store overwrites integers that are still to be loaded.
        """
        name = f"partition_{self.element}"
        if name in self.module.functions:
            return name
        f = self.module.function(name, [PTR, PTR, PTR, I64, self.element], I64)
        source, *targets, count, pivot = f.parameters
        pivots = pivot.splat(self.lanes)
        below, start = f.constant(I64, 0), f.constant(I64, 0)
        for vectors in (UNROLLED, 1):
            step = vectors * self.lanes
            end = count & -step
            with f.loop(start, end, step, [below]) as loop:
                (position,) = loop.values
                indices = [loop.index + n * self.lanes for n in range(vectors)]
                loaded = [f.load(self.vector, f.offset(source, i, self.element)) for i in indices]
                for index, vector in zip(indices, loaded, strict=True):
                    is_below = vector.compare("ult", pivots)
                    parts = (is_below, position), (~is_below, index - position)
                    for target, (mask, at) in zip(targets, parts, strict=True):
                        f.store(self.compressed(f, vector, mask), f.offset(target, at, self.element))
                    position = position + self.lane_count(f, is_below)
                loop.next(position)
            (below,), start = loop.values, end
        active = self.first_lanes(f, count - start)
        vector = masked_load(self.vector, f.offset(source, start, self.element), active)
        is_below = vector.compare("ult", pivots) & active
        parts = (is_below, below), (~is_below & active, start - below)
        for target, (mask, at) in zip(targets, parts, strict=True):
            part, stored = self.compressed(f, vector, mask), self.first_lanes(f, self.lane_count(f, mask))
            masked_store(part, f.offset(target, at, self.element), stored)
        f.finish(below + self.lane_count(f, is_below))
        return name

    def first_lanes(self, f: Function, count: Value) -> Value:
        """Emit a mask for a vector that is true in the first ``count`` lanes."""
        numbers = f.constant(I32.vector(self.lanes), list(range(self.lanes)))
        return numbers.compare("ult", count.cast("trunc", I32).splat(self.lanes))

    def lane_count(self, f: Function, mask: Value) -> Value:
        """Emit the count of the lanes that are true in ``mask``, as an i64."""
        bits = mask.bitcast(make_type(f"i{self.lanes}"))
        return f.intrinsic("ctpop", bits.cast("zext", I32)).cast("zext", I64)

    def compressed(self, f: Function, vector: Value, mask: Value) -> Value:
        """Emit a vector that begins with those lanes of ``vector`` for which ``mask`` is true, in order.

        Its remaining lanes are undefined.
        """
        if self.module.target.has("avx512f"):
            name = f"llvm.experimental.vector.compress.{vector.type.suffix}"
            return f.call(vector.type, name, vector, mask, f.poison(vector.type))
        name, words = f"compressing_indices_{self.lanes}", I32.vector(8)
        if name not in self.module.globals:
            self.module.constant_bytes(name, _compressing_indices(self.lanes, words.lanes))
        number = mask.bitcast(make_type(f"i{self.lanes}")).cast("zext", I64)
        entry = f.offset(f.address(name), number * words.lanes)
        indices = f.load(I8.vector(words.lanes), entry).cast("zext", I32)
        return f.call(words, "llvm.x86.avx2.permd", vector.bitcast(words), indices).bitcast(vector.type)

    def equal(self) -> str:
        """Emit the function (source, area, count, integer) that copies equal integers; return its name.

        If all ``count`` integers at ``source`` equal ``integer``, the function stores them to ``area`` and
        returns true; else it returns false.
        """
        name = f"quick_sort_equal_{self.element}"
        f = self.module.function(name, [PTR, PTR, I64, self.element], I1)
        source, area, count, integer = f.parameters
        wide = integer.splat(self.lanes)
        last = count - self.lanes
        with f.loop(0, count, self.lanes) as loop:
            at = f.intrinsic("smin", loop.index, last)
            vector = f.load(self.vector, f.offset(source, at, self.element))
            differs = f.intrinsic("vector.reduce.or", vector.compare("ne", wide), result=I1)
            f.return_if(differs, 0)
        with f.loop(0, count, self.lanes) as loop:
            at = f.intrinsic("smin", loop.index, last)
            f.store(wide, f.offset(area, at, self.element))
        f.finish(f.constant(I1, 1))
        return name

    def blocks(self) -> str:
        """Emit the function (source, area, count) that sorts few integers by a network; return its name.

        It sorts the ``count`` integers at ``source``, at most `BLOCK` vectors of them, by the smallest
        network that holds them, and stores the sorted ones to ``area``.
        """
        name = f"quick_sort_blocks_{self.element}"
        functions = [self.block(1 << n) for n in range(BLOCK.bit_length())]
        f = self.module.function(name, [PTR, PTR, I64])
        for number, function in enumerate(functions):
            with f.when(f.parameters[2].compare("sle", self.lanes << number)):
                f.call(None, function, *f.parameters)
                f.return_value()
        f.finish()
        return name

    def block(self, vectors: int) -> str:
        """Emit the function (source, area, count) that sorts integers by one network; return its name.

        The network sorts ``vectors`` vectors. ``count``, the number of integers at ``source``, must be more
        than half of what they hold. The sorted integers are stored to ``area``.
        """
        name = f"quick_sort_block_{self.element}_{vectors}"
        f = self.module.function(name, [PTR, PTR, I64])
        source, area, count = f.parameters
        zero = f.constant(I64, 0)
        loaded: list[Value] = []
        masks: list[Value | None] = [
            self.first_lanes(f, f.intrinsic("smax", count - n * self.lanes, zero))
            if n >= vectors // 2
            else None
            for n in range(vectors)
        ]
        for n, mask in enumerate(masks):
            address = f.offset(source, n * self.lanes, self.element)
            wide = self.vector
            loaded.append(masked_load(wide, address, mask, -1) if mask is not None else f.load(wide, address))
        for n, (vector, mask) in enumerate(zip(sorted_block(loaded), masks, strict=True)):
            address = f.offset(area, n * self.lanes, self.element)
            if mask is not None:
                masked_store(vector, address, mask)
            else:
                f.store(vector, address)
        f.finish()
        return name


def _compressing_indices(lanes: int, words: int) -> bytes:
    """Return a table of permutations that move the selected lanes of a vector to its front.

    It has an entry of ``words`` bytes for each of the ``2**lanes`` masks: the indices of the 32-bit words of
    the selected lanes, then zeros.
    """
    parts = words // lanes
    entries = [
        [lane * parts + part for lane in range(lanes) if mask >> lane & 1 for part in range(parts)]
        for mask in range(1 << lanes)
    ]
    return b"".join(bytes(entry).ljust(words, b"\0") for entry in entries)
