"""Sample sort of one long row, shared among threads: chunks are divided into buckets, which are then sorted.

Frazer and McKellar, "Samplesort" (Journal of the ACM 1970). Splitters are quantiles of samples of the row.
Each chunk is partitioned by all splitters while it is in the cache; a bucket collects its pieces from all
chunks and is sorted by itself. Equal integers are interchangeable, so that the result depends neither on
chunks nor on splitters.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Module, Type, Value
from hloom.codegen.llvm.memory import copy_bytes, load_element, store_element
from hloom.codegen.loops import loop_nest
from hloom.cpu.kernels.sorting.quick_sort import QuickSort, quick_sort
from hloom.cpu.kernels.sorting.row_sort import KeySort, area_bytes, length
from hloom.cpu.kernels.sorting.shared_row import SharedRow, chunk_length, flags_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction

AREAS: Final = 3
USUAL: Final = 1 << 15
"""Elements of a chunk, and on average of a bucket, if the row is long enough."""
FEWEST, MOST = 16, 256
"""Bounds of the number of buckets; the first is also the least number of chunks."""
SAMPLES: Final = 16
"""Samples per bucket."""


def chunk_count(n: int) -> int:
    """Return the number of chunks into which a row of ``n`` elements is divided."""
    return -(-n // chunk_length(n, max(FEWEST, n // USUAL)))


def bucket_count(n: int) -> int:
    """Return the number of buckets, ranges of keys, into which the elements of a row of ``n`` are divided."""
    return min(MOST, max(FEWEST, 1 << (n // USUAL).bit_length()))


def table_bytes(n: int) -> int:
    """Return the size in bytes of the tables with which a row of ``n`` elements is divided into buckets.

    They are the samples, with space to sort them, and for each chunk of the row the positions at which its
    elements of each bucket begin.
    """
    return 2 * bucket_count(n) * SAMPLES * 8 + -(-chunk_count(n) * (bucket_count(n) + 1) * 4 // 64) * 64


class SampleSort(SharedRow):
    """Emits the kernels that sort one long row on several threads by sample sort.

    They sort samples of the row, which separate ranges of keys (buckets), divide each chunk of the row into
    buckets, and sort each bucket.
    """

    def __init__(
        self, program: ProgramEmitter, i: HloInstruction, plan: KeySort, pointers: list[Value]
    ) -> None:
        self.buckets = bucket_count(n := length(i))
        super().__init__(program, i, plan, pointers, chunk_count(n), table_bytes(n))

    @staticmethod
    def workspace_bytes(plan: KeySort, n: int) -> int:
        """Return the bytes of scratch memory that the sort of a row of ``n`` elements needs.

        It holds a flag for each chunk, the tables (`table_bytes`), and `AREAS` buffers for the records of the
        row.
        """
        return flags_bytes(chunk_count(n)) + table_bytes(n) + AREAS * area_bytes(plan, n)

    def emit(self) -> None:
        """Emit all kernels: draw samples, divide the chunks into buckets, sort the buckets.

        Finally, results that cannot be computed from their keys are stored again (`repair_shared_keys`).
        """
        self.call(self.pointers, self.sample, 1, self.buckets * SAMPLES)
        self.call(self.pointers, self.divide_chunk, self.chunks, 8 * self.n)
        self.call(self.pointers, self.sort_bucket, self.buckets, 16 * self.n)
        self.repair_shared_keys()

    def space(self, f: Function) -> Value:
        """Return the parameter of the kernel ``f`` that points to the scratch memory."""
        return f.parameters[len(self.pointers) - 1]

    def samples(self, f: Function) -> Value:
        """Emit the address of the samples in the scratch memory of the kernel ``f``."""
        return self.tables(f, self.space(f))

    def bounds(self, f: Function, chunk: Value) -> Value:
        """Emit the address of the bounds of the buckets in a chunk.

        They are the index in the chunk at which its elements of each bucket begin, then the length of the
        chunk.
        """
        first = f.offset(self.samples(f), 2 * self.buckets * SAMPLES * 8)
        return f.offset(first, chunk * (self.buckets + 1), I32)

    def sample(self, f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
        """Emit the body of the kernel that samples the row: it copies keys of elements at equal distances.

        The kernel then sorts the samples. It has one iteration, for the whole row; ``number`` is unused.
        """
        count, kind = self.buckets * SAMPLES, self.record.type
        row, variable = self.row(f, module, low, high), Variable(self.buckets * SAMPLES, "s")
        samples = self.samples(f)
        target = row.area(samples, kind)

        def body() -> None:
            index = Index.of(variable)
            position = row.e.opaque(row.e.wide(row.e.index_value(index)) * (self.n // count), self.n)
            row.e.store(target, (index,), row.record_at(position, self.plan.groups[0]))

        loop_nest(row.e, [variable], body)
        end = f.offset(samples, count, kind)
        f.call(None, quick_sort(module, kind), samples, end, f.constant(I64, count), f.constant(I1, 0))

    def divide_chunk(self, f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
        """Emit the body of the kernel that divides the chunk of index ``number`` into buckets.

        It stores the records of the elements [low, high) of the row, partitions them by the samples, and
        stores the index at which each bucket begins.
        """
        self.fill_chunk(f, module, number, low, high)
        areas = [f.offset(self.area(f, self.space(f), n), low, self.record.type) for n in range(2)]
        bounds = self.bounds(f, number)
        integers = (*areas, high - low, f.constant(I1, 0))
        pieces = (self.samples(f), f.constant(I64, self.buckets), bounds, f.constant(I64, 0))
        f.call(None, _divide(module, self.record.type), *integers, *pieces)
        store_element(bounds, self.buckets, (high - low).cast("trunc", I32))

    def sort_bucket(self, f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
        """Emit the body of the kernel that sorts the bucket of index ``number``.

        It collects the bucket's records from all chunks, sorts them, and stores the results. ``low`` and
        ``high`` are unused.
        """
        kind, chunks, zero = self.record.type, self.chunks, f.constant(I64, 0)
        pieces, other, area = (self.area(f, self.space(f), n) for n in range(AREAS))
        with f.loop(0, chunks, 1, [zero]) as loop:
            bound = load_element(I32, self.bounds(f, loop.index), number)
            loop.next(loop.values[0] + bound.cast("zext", I64))
        (start,) = loop.values
        with f.loop(0, chunks, 1, [start]) as loop:
            bounds = self.bounds(f, loop.index)
            first, last = (load_element(I32, bounds, number + n).cast("zext", I64) for n in range(2))
            source = f.offset(pieces, loop.index * self.piece + first, kind)
            copy_bytes(f.offset(other, loop.values[0], kind), source, (last - first) * kind.size)
            loop.next(loop.values[0] + (last - first))
        (end,) = loop.values
        areas = [f.offset(a, start, kind) for a in (area, other)]
        f.call(None, quick_sort(module, kind), *areas, end - start, f.constant(I1, 1))
        row = self.row(f, module, start, end)
        row.is_aligned = False
        row.write_sorted(area)


def _divide(module: Module, kind: Type) -> str:
    """Emit the recursive function that divides integers into buckets; return its name.

    Its parameters are (area, other, count, elsewhere, samples, buckets, bounds, begin). The ``count``
    integers are in ``other`` if ``elsewhere`` is true, else in ``area``; the function moves them to ``area``,
    one bucket after the other. The integers that separate buckets are taken from the sorted ``samples``. The
    function stores to ``bounds``, for each bucket, ``begin`` plus the number of integers in the buckets
    before.
    """
    name = f"divide_{kind}"
    if name in module.functions:
        return name
    partition = QuickSort(module, kind).partition()
    f = module.function(name, [PTR, PTR, I64, I1, PTR, I64, PTR, I64])
    area, other, count, elsewhere, samples, buckets, bounds, begin = f.parameters
    with f.when(buckets.compare("eq", 1)):
        store_element(bounds, 0, begin.cast("trunc", I32))
        with f.when(elsewhere):
            copy_bytes(area, other, count * kind.size)
        f.return_value()
    half = buckets.logical_shift_right(1)
    splitters = f.offset(samples, half * SAMPLES, kind)
    source = elsewhere.select(other, area)
    below = f.call(I64, partition, source, area, other, count, f.load(kind, splitters))
    above = count - below
    rest = f.offset(other, above, kind)
    f.call(None, name, area, rest, below, f.constant(I1, 0), samples, half, bounds, begin)
    integers = (f.offset(area, below, kind), other, above, f.constant(I1, 1))
    f.call(None, name, *integers, splitters, half, f.offset(bounds, half, I32), begin + below)
    f.finish()
    return name
