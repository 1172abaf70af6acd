"""Merge sort by any comparator: a stable bottom-up merge sort of every row.

Each row along the sorted dimension is copied to scratch memory, merged back and forth between two buffers,
and copied to the results. The merge selects the smaller element without a branch on the comparator's result,
so that its speed does not depend on the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.sorting import Sort


def merge_sort_bytes(i: HloInstruction) -> int:
    """Return the bytes of scratch memory for the merge sort of ``i``: two copies of every operand.

    Each copy is padded to a multiple of 64 bytes.
    """
    sizes = [o.shape.element_count * storage_bytes(o.shape.element_type) for o in i.operands]
    return 2 * sum(-(-size // 64) * 64 for size in sizes)


def emit_merge_sort(program: ProgramEmitter, i: HloInstruction, results: Sequence[View]) -> None:
    """Emit a kernel that merge-sorts every row of sort ``i`` by its comparator, and a call of it."""
    kernel = program.shared(lambda name: _sort_kernel(program.module, name, i))
    sources = [program.pointer(o) for o in i.operands]
    program.call(i, kernel, [*sources, *(r.pointer for r in results), program.workspace(i)])


def _sort_kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the function ``name(operands..., results..., workspace, begin, end)``; return it as a kernel.

    The function merge-sorts the rows with indices in [begin, end); a row extends along the sorted dimension.
    """
    count = len(i.operands)
    (dimension,) = operation_of(i, Sort).dimensions
    sizes = i.operands[0].shape.dimensions
    n, inner = sizes[dimension], math.prod(sizes[dimension + 1 :])
    function = module.function(name, [PTR] * (2 * count + 1) + [I64, I64])
    *pointers, space, begin, end = function.parameters
    row_sort = _RowSort(function, i, n)
    offset = 0
    areas: list[tuple[int, int]] = []
    for operand in i.operands:
        size = storage_bytes(operand.shape.element_type)
        areas.append((offset, size))
        offset += -(-operand.shape.element_count * size // 64) * 64
    with function.loop(begin, end) as rows:
        outer = rows.index.unsigned_divide(inner)
        start = outer * (n * inner) + (rows.index - outer * inner)
        first = [function.offset(space, rows.index * (n * size) + at) for at, size in areas]
        second = [function.offset(space, rows.index * (n * size) + (at + offset)) for at, size in areas]
        row_sort.copy_in(pointers[:count], first, start, inner)
        sorted_ = row_sort.run(first, second)
        row_sort.copy_out(sorted_, pointers[count:], start, inner)
    function.finish()
    rows_count = math.prod(sizes) // n
    return LoopKernel(name, rows_count, 1, math.prod(sizes) * count * max(1, n.bit_length()) * 4)


class _RowSort:
    """Emits the merge sort of one row by the comparator of sort ``i``: ``n`` elements of every operand."""

    def __init__(self, function: Function, i: HloInstruction, n: int) -> None:
        self.f, self.n = function, n
        self.types = [o.shape.element_type for o in i.operands]
        self.comparator = i.called_computations[0]
        self.e = Elements(function, 0, {})

    def _view(self, pointer: Value, number: int) -> View:
        return View(pointer, self.types[number], (UNKNOWN_EXTENT,))

    def _index(self, value: Value) -> Index:
        return Index.of(Variable(UNKNOWN_EXTENT, "s", value))

    def _load(self, pointers: Sequence[Value], at: Value) -> list[Element]:
        return [self.e.load(self._view(p, k), (self._index(at),)) for k, p in enumerate(pointers)]

    def _store(self, pointers: Sequence[Value], at: Value, values: Sequence[Element]) -> None:
        for k, (pointer, value) in enumerate(zip(pointers, values, strict=True)):
            self.e.store(self._view(pointer, k), (self._index(at),), value)

    def copy_in(self, sources: Sequence[Value], targets: Sequence[Value], start: Value, stride: int) -> None:
        """Emit a loop that copies rows of the arrays ``sources`` to the contiguous buffers ``targets``.

        In each source the row begins at element ``start``; its elements are ``stride`` elements apart.
        """
        with self.f.loop(0, self.n) as loop, self.e.scope():
            self._store(targets, loop.index, self._load(sources, start + loop.index * stride))

    def copy_out(self, sources: Sequence[Value], targets: Sequence[Value], start: Value, stride: int) -> None:
        """Emit a loop that copies the contiguous rows ``sources`` to rows of the arrays ``targets``.

        In each target the row begins at element ``start``; its elements are ``stride`` elements apart.
        """
        with self.f.loop(0, self.n) as loop, self.e.scope():
            self._store(targets, start + loop.index * stride, self._load(sources, loop.index))

    def run(self, first: list[Value], second: list[Value]) -> list[Value]:
        """Emit passes that merge sorted runs of 1, 2, 4, ... elements from one set of buffers to the other.

        ``first``, which holds the unsorted row, and ``second`` have one buffer for each operand. Returns
        those buffers that hold the sorted row after the last pass.
        """
        f = self.f
        limit = f.constant(I64, self.n)
        doublings = max(0, (self.n - 1).bit_length())
        width_now = f.constant(I64, 1)
        with f.loop(0, doublings, 1, [width_now, *first, *second]) as passes, self.e.scope():
            width, *buffers = passes.values
            source, target = buffers[: len(first)], buffers[len(first) :]
            with f.loop(0, limit, width + width) as runs, self.e.scope():
                middle = f.intrinsic("smin", runs.index + width, limit)
                high = f.intrinsic("smin", middle + width, limit)
                self._merge(source, target, runs.index, middle, high)
            passes.next(width + width, *target, *source)
        return list(passes.values[1 : 1 + len(first)])

    def _merge(
        self, source: Sequence[Value], target: Sequence[Value], low: Value, middle: Value, high: Value
    ) -> None:
        """Emit the merge of the sorted runs [low, middle) and [middle, high) of ``source`` into ``target``.

        The merge is stable: of equal elements, those of the first run come first.
        """
        f = self.f
        with f.loop(low, high, 1, [low, middle]) as loop, self.e.scope():
            left_at, right_at = loop.values
            left_there, right_there = left_at.compare("slt", middle), right_at.compare("slt", high)
            left = self._load(source, f.intrinsic("smin", left_at, middle - 1))
            right = self._load(source, f.intrinsic("smin", right_at, high - 1))
            pairs = [x for a, b in zip(right, left, strict=True) for x in (a, b)]
            (less,) = self.e.apply(self.comparator, pairs)
            assert isinstance(less, Value)
            take_right = right_there & ((left_there ^ 1) | less)
            smaller = [self.e.choose(take_right, r, x) for r, x in zip(right, left, strict=True)]
            self._store(target, loop.index, smaller)
            step = take_right.cast("zext", I64)
            loop.next(left_at + (f.constant(I64, 1) - step), right_at + step)
