"""Sorts of rows by keys: a vector sorting network for short rows, quicksort or radix sort for long ones.

Each key, an unsigned integer, is sorted together with the index of its element; all operands are then
gathered in that order. A single operand is sorted as keys alone, from which its elements are recovered. Zeros
of both signs and NaNs with different payloads may share a key; if a row has such elements, they are stored
again in their original order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from hloom.analysis.instructions import operation_of, used_results
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Module, Type, Value
from hloom.codegen.loops import LoopKernel, loop_nest
from hloom.codegen.target import Target
from hloom.codegen.types import Element, register_type
from hloom.cpu.kernels.sorting.quick_sort import quick_sort, sorts_quickly
from hloom.cpu.kernels.sorting.radix_sort import SortRecord, radix_sort
from hloom.cpu.kernels.sorting.sort_network import block_size, network, small_network
from hloom.cpu.kernels.sorting.sort_order import SortKey, integer_type, restored, sort_keys, value_of
from hloom.cpu.program import ProgramEmitter
from hloom.errors import plural
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.movement import Broadcast
from hloom.operations.sorting import Sort
from hloom.operations.structure import Iota
from hloom.records import dataclass
from hloom.shape import element_type as et

NETWORK: Final = 4096
"""Longest row, in elements, that is sorted in stack memory; by a network unless `sorts_quickly`."""
SHORT: Final = 128
"""Longest row, in elements, that a network sorts on every target; with too wide keys it is merge-sorted."""
SHARED: Final = 1 << 15
"""Fewest elements of a row that threads share if it is sorted by quicksort."""
SLOTS: Final = 16
"""Number of long rows that are sorted at once, each with its own scratch memory."""


Method: TypeAlias = Literal["network", "quicksort", "radix"]


@dataclass(frozen=True, slots=True)
class KeySort:
    """The plan of a sort by keys: how the keys are packed into integers, and how these are sorted.

    A key is a number that the comparator compares, mapped to an unsigned integer of the same order.

    Attributes:
        groups: the keys, most significant first, in groups of at most 64 bits; the keys of a group are packed
            into one integer.
        record: the format of the records that are sorted: a key alone, or with the index of its element.
        without_indices: whether the keys of a single operand are sorted without indices; its elements are
            then computed from the sorted keys.
        method: how the records are sorted.
        on_stack: whether the records of a row are in stack memory; else they are in scratch memory.
    """

    groups: tuple[tuple[SortKey, ...], ...]
    record: SortRecord
    without_indices: bool
    method: Method
    on_stack: bool

    def __str__(self) -> str:
        how = {"network": "by a network", "quicksort": "by quicksort", "radix": "by digits"}[self.method]
        what = (
            "keys alone"
            if self.without_indices
            else f"keys in {plural(len(self.groups), 'integer')}, records"
        )
        return f"{what} of {self.record.bytes} B {how}"


@lru_cache(256)
def key_sort(i: HloInstruction, target: Target) -> KeySort | None:
    """Return the plan to sort ``i`` by keys; None if it is to be merge-sorted by its comparator.

    None is returned if the comparator does not compare keys in a known form, for rows of less than 2 or at
    least 2**31 elements, and for short rows whose keys have too many bits.
    """
    n = length(i)
    keys = sort_keys(i.called_computations[0]) if 2 <= n < 2**31 else None
    if keys is None:
        return None
    groups: list[list[SortKey]] = []
    for key in keys:
        if not groups or sum(k.bits for k in groups[-1]) + key.bits > 64:
            groups.append([])
        groups[-1].append(key)
    widest = max(sum(k.bits for k in group) for group in groups)
    narrow = len(groups) == 1 and widest <= 32
    if _sorts_without_indices(i, keys):
        record = SortRecord(max(32, keys[0].bits), keys[0].bits)
        method = _method(n, record, target, without_indices=True)
        return KeySort(((keys[0],),), record, True, method, n <= NETWORK)
    if not narrow and n < SHORT:
        return None
    record = SortRecord(64, widest, 32) if narrow else SortRecord(64, widest, 0, beside=True)
    method = _method(n, record, target, without_indices=False) if narrow else "radix"
    return KeySort(tuple(map(tuple, groups)), record, False, method, narrow and n <= NETWORK)


def _method(n: int, record: SortRecord, target: Target, *, without_indices: bool) -> Method:
    """Return the algorithm that sorts rows of ``n`` records, each a single integer.

    ``without_indices`` is true if the integers are keys without indices.
    """
    if not sorts_quickly(target):
        return "network" if n <= NETWORK else "radix"
    if n <= SHORT:
        return "network"
    few = n > NETWORK and record.key_bits <= _few_bits(n, target, without_indices=without_indices)
    return "radix" if few else "quicksort"


def _few_bits(n: int, target: Target, *, without_indices: bool) -> int:
    """Return the largest key width in bits for which radix sort beats quicksort on rows of ``n`` elements.

    Returns 0 if it never does. ``without_indices`` is true if keys are sorted without indices.
    """
    if n >= SHARED:
        return 0 if without_indices else 8
    if without_indices:
        return 8
    return 16 if target.has("avx512f") else 32


def _sorts_without_indices(i: HloInstruction, keys: Sequence[SortKey]) -> bool:
    """Return whether sort ``i`` can be done by sorting only the keys, without the indices of their elements.

    It must have a single operand whose elements can be computed from the keys; values such as NaN, of which
    several share a key, are exceptions.
    """
    kind = i.operands[0].shape.element_type
    is_single = len(keys) == len(i.operands) == 1 and keys[0].copies_element and keys[0].element_type is kind
    return is_single and kind.bits >= (16 if kind.is_floating else 8) and kind is not et.PRED


def length(i: HloInstruction) -> int:
    """Return the number of elements of a row, the size of the dimension along which ``i`` sorts."""
    (dimension,) = operation_of(i, Sort).dimensions
    return i.operands[0].shape.dimensions[dimension]


def padded(n: int) -> int:
    """Return the number of records, a power of two, to which a network pads a row of ``n`` elements."""
    return max(8, 1 << (n - 1).bit_length())


def slots(i: HloInstruction) -> int:
    """Return into how many regions of equal size the scratch memory of sort ``i`` is divided.

    In each region one row is sorted at a time; there are at most as many regions as rows.
    """
    return min(SLOTS, max(1, i.operands[0].shape.element_count // max(1, length(i))))


def area_bytes(plan: KeySort, n: int) -> int:
    """Return the size in bytes of a buffer that holds the records of one row of ``n`` elements."""
    return -(-n * plan.record.bytes // 64) * 64 + 64


def slot_bytes(plan: KeySort, n: int) -> int:
    """Return the bytes of scratch memory to sort a row of ``n`` elements in: two buffers of records."""
    return 2 * area_bytes(plan, n)


def counts_along(operand: HloInstruction, dimension: int) -> bool:
    """Return whether ``operand`` is an iota along ``dimension``, possibly broadcast.

    Its elements are then computed from their positions instead of loaded.
    """
    match operand.operation:
        case Iota(iota_dimension=along):
            return along == dimension
        case Broadcast(dimensions=places):
            source = operand.operands[0].operation
            return isinstance(source, Iota) and places[source.iota_dimension] == dimension
        case _:
            return False


def emit_rows(program: ProgramEmitter, i: HloInstruction, plan: KeySort, pointers: Sequence[Value]) -> None:
    """Emit a kernel that sorts every row of ``i`` by keys as ``plan`` says, and a call of it.

    ``pointers`` are the arguments of the call: the addresses of operands, results and scratch memory.
    """
    kernel = program.shared(lambda name: _rows_kernel(program.module, name, i, plan))
    program.call(i, kernel, pointers)


def _rows_kernel(module: Module, name: str, i: HloInstruction, plan: KeySort) -> LoopKernel:
    """Emit the function ``name(operands..., results..., workspace, begin, end)``; return it as a kernel.

    Its iterations [begin, end) can run on several threads. An iteration sorts one row on the stack or, if the
    plan sorts in scratch memory, an equal share of the rows, one after the other in the same `slots` region.
    """
    count = len(i.operands)
    function = module.function(name, [PTR] * (2 * count + 1) + [I64, I64])
    *_, begin, end = function.parameters
    sizes = i.operands[0].shape.dimensions
    n = length(i)
    rows = math.prod(sizes) // n
    trips = rows if plan.on_stack else slots(i)
    with function.loop(begin, end) as loop:
        if trips == rows:
            RowByKeys(module, function, i, plan).run(loop.index, loop.index)
        else:
            first, last = ((loop.index + n) * rows for n in range(2))
            with function.loop(first.unsigned_divide(trips), last.unsigned_divide(trips)) as inner:
                RowByKeys(module, function, i, plan).run(inner.index, loop.index)
    function.finish()
    work = math.prod(sizes) * count * max(1, n.bit_length()) * 2
    return LoopKernel(name, trips, 1, work, str(plan))


class RowByKeys:
    """Emits the code that sorts a row by integer keys; each call of `run` emits the sort of one row.

    Args:
        module: the module, to which helper functions such as sorting networks are added.
        function: the function to emit into; its parameters are the operands, results and scratch memory.
        i: the sort.
        plan: the method, and the layout of the keys.
    """

    def __init__(self, module: Module, function: Function, i: HloInstruction, plan: KeySort) -> None:
        self.module, self.f, self.i, self.plan = module, function, i, plan
        (self.dimension,) = operation_of(i, Sort).dimensions
        self.sizes = i.operands[0].shape.dimensions
        self.n: int = self.sizes[self.dimension]
        count = len(i.operands)
        views = {
            o: View(p, o.shape.element_type, self.sizes)
            for o, p in zip(i.operands, function.parameters, strict=False)
            if not counts_along(o, self.dimension)
        }
        self.results = [
            View(p, o.shape.element_type, self.sizes)
            for o, p in zip(i.operands, function.parameters[count:], strict=False)
        ]
        self.space = function.parameters[2 * count]
        self.others: list[Index] = []
        self.low: Value = function.constant(I64, 0)
        self.high: Value = function.constant(I64, self.n)
        self.is_aligned = True
        lanes = 16 if self.n >= 16 else 8
        self.e = Elements(function, lanes, views)
        # noncontiguous rows are stored element by element
        contiguous = math.prod(self.sizes[self.dimension + 1 :]) == 1
        self.out = self.e if contiguous else Elements(function, 0, views)

    # -- rows

    def run(self, row: Value, slot: Value) -> None:
        """Emit the sort of the row of index ``row``.

        ``slot`` is the index of the region of scratch memory for its records; it is unused if these are on
        the stack.
        """
        self.others = self.row_indices(row)
        if self.plan.method == "network":
            stack = self.f.allocate(I64, padded(self.n))
            areas = (stack, stack)
        elif self.plan.on_stack:
            areas = (self.f.allocate(I64, self.n), self.f.allocate(I64, self.n))
        else:
            size = slot_bytes(self.plan, self.n)
            first = self.f.offset(self.space, slot * size)
            areas = (first, self.f.offset(first, size // 2))
        if not self.plan.without_indices:
            self.by_records(areas)
            return
        differs = self.fill_keys(areas[0])
        self.write_sorted(self.sort(areas)[0])
        with self.f.when(differs):
            self.repair_shared_keys()

    def row_indices(self, row: Value) -> list[Index]:
        """Emit the multi-index of the first element of row ``row``: 0 in the sorted dimension."""
        numbers: list[Index] = [Index(0)] * len(self.sizes)
        for d in reversed(range(len(self.sizes))):
            if d == self.dimension or self.sizes[d] == 1:
                continue
            quotient = row.unsigned_divide(self.sizes[d])
            numbers[d] = self.e.opaque(row - quotient * self.sizes[d], self.sizes[d])
            row = quotient
        return numbers

    def at(self, place: Index) -> tuple[Index, ...]:
        """Return the multi-index of the element at position ``place`` of the current row."""
        return (*self.others[: self.dimension], place, *self.others[self.dimension + 1 :])

    def each(self, e: Elements, body: Callable[[Index], None]) -> None:
        """Emit a loop over the positions [``self.low``, ``self.high``) of the row, by default all.

        ``body(place)`` emits an iteration, for a vector of positions if ``e`` has lanes, else for one
        position.
        """
        variable = Variable(self.n, "s")
        loop_nest(
            e, [variable], lambda: body(Index.of(variable)), self.low, self.high, is_aligned=self.is_aligned
        )

    def area(self, pointer: Value, kind: Type) -> View:
        """Return a view of the buffer at ``pointer`` as an array of integers of type ``kind``.

        It has an integer for each record of a row.
        """
        return View(pointer, et.U32 if kind.bits == 32 else et.U64, (padded(self.n),))

    # -- keys alone

    def fill_keys(self, area: Value) -> Value:
        """Emit a loop that stores the key of each element of the row to the buffer ``area``, without indices.

        Returns an i1 that is true if the bits of some element cannot be computed from its key.
        """
        key = self.plan.groups[0][0]
        kind = key.element_type
        address = self.f.allocate(I32, self.e.lanes)
        wide, record = I32.vector(self.e.lanes), self.plan.record
        self.f.store(self.f.constant(wide, 0), address)
        target = self.area(area, record.type)

        def body(index: Index) -> None:
            element = self.e.element(self.i.operands[0], self.at(index))
            integer = key.integer(self.e, [element])
            plain = ~integer if key.descending else integer
            back = value_of(restored(plain, kind), kind)
            assert isinstance(element, Value)
            bits = integer_type(32 if kind.is_floating and kind.bits < 32 else max(8, kind.bits))
            element_bits, back_bits = (x.bitcast(bits.vector(x.type.lanes)) for x in (element, back))
            differs = element_bits.compare("ne", back_bits)
            if self.e.mask is not None:
                differs = differs & self.e.lane_mask()
            self.f.store(self.f.load(wide, address) | differs.cast("zext", I32), address)
            self.e.store(target, (index,), integer.cast("zext", record.type))

        self.each(self.e, body)
        if self.plan.method == "network":
            self.pad(area, record.type)
        return self.f.intrinsic("vector.reduce.or", self.f.load(wide, address), result=I32).compare("ne", 0)

    def write_sorted(self, area: Value) -> None:
        """Emit stores of the row's results, taken from the sorted keys or records in the buffer ``area``."""
        if self.plan.without_indices:
            self.write_alone(area)
        else:
            self.write(area)

    def write_alone(self, area: Value) -> None:
        """Emit a loop that computes elements from the sorted keys in ``area``, and stores them as results."""
        key = self.plan.groups[0][0]
        source = self.area(area, self.plan.record.type)

        def body(index: Index) -> None:
            integer = self.out.load(source, (index,))
            assert isinstance(integer, Value)
            narrow = integer.cast("trunc", integer_type(key.bits))
            value = restored(~narrow if key.descending else narrow, key.element_type)
            self.out.store(self.results[0], self.at(index), value_of(value, key.element_type))

        self.each(self.out, body)

    def repair_shared_keys(self) -> None:
        """Emit code that stores again those results whose bits could not be computed from their keys.

        They have keys that elements with different bits share, such as zeros of both signs. The elements of
        each shared key are copied from the operand's row, in its order.
        """
        key, f = self.plan.groups[0][0], self.f
        e = Elements(f, 0, self.e.views)
        for shared in key.ambiguous_values:
            value = key.integer(e, [f.constant(register_type(key.element_type), shared)])
            first = self.count(value, "ult")
            with f.when(first.compare("ne", self.count(value, "ule"))):
                self.store_equal(e, value, first)

    def store_equal(self, e: Elements, value: Value, first: Value) -> None:
        """Emit a loop that copies the row's elements whose key is ``value`` to the results, in their order.

        They are stored to positions of the row from ``first`` on; ``e`` emits scalar stores.
        """
        key, f, variable = self.plan.groups[0][0], self.f, Variable(self.n, "s")
        position = f.allocate(I64)
        f.store(first.cast("zext", I64), position)

        def body() -> None:
            element = self.e.element(self.i.operands[0], self.at(Index.of(variable)))
            equal = key.integer(self.e, [element]).compare("eq", self.e.wide(value))
            if self.e.mask is not None:
                equal = equal & self.e.lane_mask()
            lanes = equal.bitcast(integer_type(self.e.lanes)).cast("zext", I64)
            assert isinstance(variable.value, Value)
            with f.loop(0, f.intrinsic("ctpop", lanes), 1, [lanes]) as loop:
                (remaining,) = loop.values
                source = variable.value + f.intrinsic("cttz", remaining, f.constant(I1, 1))
                element = e.element(self.i.operands[0], self.at(e.opaque(source, self.n)))
                target = f.load(I64, position)
                e.store(self.results[0], self.at(e.opaque(target, self.n)), element)
                f.store(target + 1, position)
                loop.next(remaining & (remaining - 1))

        loop_nest(self.e, [variable], body)

    def count(self, value: Value, comparison: str) -> Value:
        """Emit the count of the row's elements whose key is below ``value``, as an i32.

        ``comparison`` is ``ult`` or, to count keys equal to the value too, ``ule``.
        """
        key, wide = self.plan.groups[0][0], I32.vector(self.e.lanes)
        counts, variable = self.f.allocate(I32, self.e.lanes), Variable(self.n, "s")
        self.f.store(self.f.constant(wide, 0), counts)

        def body() -> None:
            element = self.e.element(self.i.operands[0], self.at(Index.of(variable)))
            holds = key.integer(self.e, [element]).compare(comparison, self.e.wide(value))
            if self.e.mask is not None:
                holds = holds & self.e.lane_mask()
            self.f.store(self.f.load(wide, counts) + holds.cast("zext", I32), counts)

        loop_nest(self.e, [variable], body)
        return self.f.intrinsic("vector.reduce.add", self.f.load(wide, counts), result=I32)

    # -- keys with numbers

    def by_records(self, areas: tuple[Value, Value]) -> None:
        """Emit the sort of a row by records of a key and its element's index, and the stores of all results.

        The records are sorted by each group of keys in turn, the least significant group first. ``areas`` are
        the two buffers between which they are moved.
        """
        record = self.plan.record
        first, second = areas
        for number, group in enumerate(reversed(self.plan.groups)):
            if record.beside and number:
                first, second = self.renumber(group, first, second)
            else:
                self.fill(group, first)
            first, second = self.sort((first, second))
        self.write_sorted(first)

    def record_at(self, index: Index, group: Sequence[SortKey]) -> Value:
        """Emit the integer that is sorted in place of the element at position ``index`` of the row.

        It has the element's keys of ``group``; the index is in the lower 32 bits if the record format packs
        both into one integer.
        """
        if self.plan.without_indices:
            (key,) = group
            integer = key.integer(self.e, [self.e.element(self.i.operands[0], self.at(index))])
            return integer.cast("zext", self.plan.record.type)
        elements = [self.e.element(o, self.at(index)) for o in self.i.operands]
        integer = self.e.wide(self.group_integer(group, elements))
        return (
            integer if self.plan.record.beside else (integer << 32) | self.e.wide(self.e.index_value(index))
        )

    def indices_address(self, area: Value) -> Value:
        """Emit the address of the u32 indices of records, which follow the integers in buffer ``area``."""
        return self.f.offset(area, -(-self.n * 8 // 64) * 64)

    def group_integer(self, group: Sequence[SortKey], elements: Sequence[Element]) -> Value:
        """Emit the keys of a group as one i64, with the most significant key in the upper bits.

        ``elements`` are the elements of all operands at one position.
        """
        total: Value | None = None
        for key in group:
            part = key.integer(self.e, elements).cast("zext", I64)
            total = part if total is None else (total << key.bits) | part
        assert total is not None
        return total

    def fill(self, group: Sequence[SortKey], area: Value) -> None:
        """Emit a loop that stores each element's record, with its keys of ``group``, to buffer ``area``."""
        record = self.plan.record
        integers, numbers = self.area(area, I64), self.area(self.indices_address(area), I32)

        def body(index: Index) -> None:
            if record.beside:
                position = self.e.wide(self.e.index_value(index))
                self.e.store(numbers, (index,), position.cast("trunc", I32))
            self.e.store(integers, (index,), self.record_at(index, group))

        self.each(self.e, body)
        if self.plan.method == "network":
            self.pad(area, I64)

    def renumber(self, group: Sequence[SortKey], area: Value, other: Value) -> tuple[Value, Value]:
        """Emit a loop that replaces the keys of sorted records by those of the more significant ``group``.

        The records are read from the buffer ``area`` and stored to ``other`` in the same order. Returns
        (other, area): the buffer that has the records, and the free one.
        """
        old, numbers = self.area(self.indices_address(area), I32), self.area(self.indices_address(other), I32)
        integers = self.area(other, I64)

        def body(index: Index) -> None:
            number = self.e.load(old, (index,))
            assert isinstance(number, Value)
            position = self.e.opaque(number.cast("zext", I64), self.n)
            elements = [self.e.element(o, self.at(position)) for o in self.i.operands]
            self.e.store(integers, (index,), self.group_integer(group, elements))
            self.e.store(numbers, (index,), number)

        self.each(self.e, body)
        return other, area

    def write(self, area: Value) -> None:
        """Emit a loop that stores the results: the operands' elements at the indices of the sorted records.

        ``area`` is the buffer with the records.
        """
        record = self.plan.record
        source = self.area(self.indices_address(area), I32) if record.beside else self.area(area, I64)
        e = self.out

        def body(index: Index) -> None:
            number = e.load(source, (index,))
            assert isinstance(number, Value)
            position = number.cast("zext", I64) if record.beside else number & 0xFFFFFFFF
            if e.mask is not None:
                position = e.choose(e.mask, position, e.wide(self.f.constant(I64, 0)))
                assert isinstance(position, Value)
            there = self.at(e.opaque(position, self.n))
            for k in used_results(self.i):
                e.store(self.results[k], self.at(index), e.element(self.i.operands[k], there))

        self.each(e, body)

    # -- sorting

    def pad(self, area: Value, kind: Type) -> None:
        """Emit stores of the greatest integer after the row's records in ``area``.

        They pad the records to the size of the sorting network.
        """
        for position in range(self.n, padded(self.n)):
            if position - self.n < 32:
                self.f.store(self.f.constant(kind, -1), self.f.offset(area, position, kind))
        if padded(self.n) - self.n > 32:
            with self.f.loop(self.n + 32, padded(self.n)) as loop:
                self.f.store(self.f.constant(kind, -1), self.f.offset(area, loop.index, kind))

    def sort(self, areas: tuple[Value, Value]) -> tuple[Value, Value]:
        """Emit the sort of the records in the first of the two buffers ``areas``.

        Returns (buffer with the sorted records, other buffer).
        """
        f, record = self.f, self.plan.record
        if self.plan.method == "network":
            count = padded(self.n)
            if count <= block_size(record.type):
                f.call(None, small_network(self.module, record.type, count), areas[0])
            else:
                f.call(None, network(self.module, record.type), areas[0], f.constant(I64, count))
            return areas
        null = f.constant(PTR, 0)
        numbers = [self.indices_address(area) if record.beside else null for area in areas]
        if self.plan.method == "quicksort":
            start = f.constant(integer_type(1), 0)
            name = quick_sort(self.module, record.type)
            f.call(None, name, *areas, f.constant(I64, self.n), start)
            return areas
        name = radix_sort(self.module, record, self.n)
        swapped = f.call(
            integer_type(1), name, areas[0], areas[1], numbers[0], numbers[1], f.constant(I64, self.n)
        )
        return swapped.select(areas[1], areas[0]), swapped.select(areas[0], areas[1])
