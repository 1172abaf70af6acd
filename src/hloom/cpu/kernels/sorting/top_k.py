"""Emitter of topk: the first k elements of every row, by a candidate buffer that is sorted whenever full.

A record of the buffer holds an unsigned integer in the required order in its upper bits and the element's
index below, so that the first of equal elements wins. An element becomes a candidate only if it beats the
k-th best of the last sort. For any data, a row costs at most one sort per buffer of elements.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel, lanes_text, loop_nest, vector_loop
from hloom.cpu.kernels.sorting.sort_network import block_size, network, small_network
from hloom.cpu.kernels.sorting.sort_order import integer_type, ordered, restored, value_of
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.sorting import TopK
from hloom.plan.kernel import KernelPlan
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

LANES: Final = 64
"""Elements compared per iteration of the search."""
SMALLEST_BUFFER: Final = 128


def key_width(kind: ElementType) -> int:
    """Return the width in bits of the unsigned integer to which `ordered` maps elements of type ``kind``."""
    return 32 if kind.is_floating and kind.bits < 16 else max(8, kind.bits)


@KERNELS.register("topk")
def emit_top_k(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the kernel of a topk, and its call, for elements of at most 32 bits.

    For wider elements or a large k, `hloom.passes.expand.topk_decomposer` has replaced the topk by a sort.
    """
    i = plan.instruction
    values, numbers = program.view(i, (0,)), program.view(i, (1,))
    if not values.count:
        return
    kernel = program.shared(lambda name: _kernel(program.module, name, i))
    program.call(i, kernel, [program.pointer(i.operands[0]), values.pointer, numbers.pointer])


def _kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the function ``name(operand, values, indices, begin, end)``; return it as a kernel.

    The function stores the first k elements, and their indices, of the rows with indices in [begin, end).
    """
    function = module.function(name, [PTR] * 3 + [I64, I64])
    *_, begin, end = function.parameters
    sizes = i.operands[0].shape.dimensions
    rows = math.prod(sizes[:-1])
    row = _Row(module, function, i)
    with function.loop(begin, end) as loop:
        row.run(loop.index)
    function.finish()
    form = f"buffers of {row.size}, {lanes_text(row.lanes)}"
    return LoopKernel(name, rows, 1, 2 * math.prod(sizes), form)


class _Row:
    """Emits the code that finds the top k elements of one row, with a buffer of candidates on the stack."""

    def __init__(self, module: Module, function: Function, i: HloInstruction) -> None:
        self.module, self.f = module, function
        operation = operation_of(i, TopK)
        self.k, self.largest = operation.k, operation.largest
        operand = i.operands[0].shape
        self.kind = operand.element_type
        self.lanes = 16 if self.k >= 16 else 8 if self.k >= 8 else 0
        self.n = operand.dimensions[-1]
        self.rows = math.prod(operand.dimensions[:-1])
        self.size = min(max(SMALLEST_BUFFER, _power(2 * self.k)), max(8, _power(self.n)))
        source, values, numbers = function.parameters[:3]
        self.source = View(source, self.kind, (self.rows, self.n))
        self.values = View(values, self.kind, (self.rows, self.k))
        self.numbers = View(numbers, et.S32, (self.rows, self.k))
        self.buffer = function.allocate(I64, self.size)
        self.records = View(self.buffer, et.U64, (self.size,))

    def run(self, row: Value) -> None:
        """Emit the code for the row of index ``row``.

        It sorts the row's first elements in the buffer, searches the rest for better ones, and stores the
        results.
        """
        self.row = row
        first = min(self.n, self.size)
        self.fill(first)
        self.pad(self.f.constant(I64, first))
        self.sort()
        if self.n > self.size:
            self.search()
        self.write()

    def integer(self, e: Elements, place: Index) -> Value:
        """Emit a u32 integer for the row's element at position ``place``, by which elements are compared.

        Elements that come earlier in the result have smaller integers.
        """
        element = e.load(self.source, (self.row_index(e), place))
        assert isinstance(element, Value)
        key = ordered(element, self.kind)
        return (~key if self.largest else key).cast("zext", I32)

    def row_index(self, e: Elements) -> Index:
        """Return the index of the current row, a runtime value, as an `Index` for accesses by ``e``."""
        return e.opaque(self.row, self.rows)

    def fill(self, count: int) -> None:
        """Emit a loop that fills the buffer with the records of the first ``count`` elements of the row.

        A record has 64 bits: in the upper half the element's `integer`, in the lower half its position in the
        row.
        """
        e = Elements(self.f, 16 if count >= 16 else 8, {})
        variable = Variable(count, "s")

        def body() -> None:
            position = Index.of(variable)
            integer = self.integer(e, position).cast("zext", I64)
            e.store(self.records, (position,), (integer << 32) | e.wide(e.index_value(position)))

        loop_nest(e, [variable], body)

    def pad(self, count: Value) -> None:
        """Emit a loop that fills the buffer, from index ``count`` to its end, with records that sort last."""
        with self.f.loop(count, self.size) as loop:
            self.f.store(self.f.constant(I64, -1), self.f.offset(self.buffer, loop.index, I64))

    def sort(self) -> None:
        """Emit the sort of the buffer, padding included."""
        if self.size <= block_size(I64):
            self.f.call(None, small_network(self.module, I64, self.size), self.buffer)
        else:
            self.f.call(None, network(self.module, I64), self.buffer, self.f.constant(I64, self.size))

    def bound(self) -> Value:
        """Emit the load of the `integer` of the k-th record in the sorted buffer.

        Only elements with smaller integers are candidates for the result.
        """
        last = self.f.load(I64, self.f.offset(self.buffer, self.k - 1, I64))
        return last.logical_shift_right(32).cast("trunc", I32)

    def search(self) -> None:
        """Emit a search of the elements of the row after those with which the buffer was first filled.

        Elements that beat the k-th best so far are appended to the buffer, which is sorted at the end.
        """
        f = self.f
        e = Elements(f, LANES, {})
        address = f.allocate(I32)
        f.store(self.bound(), address)
        filled = f.allocate(I64)
        f.store(f.constant(I64, self.k), filled)
        variable = Variable(self.n, "s")

        def body() -> None:
            integer = self.integer(e, Index.of(variable))
            better = integer.compare("ult", f.load(I32, address).splat(LANES))
            if e.mask is not None:
                better = better & e.lane_mask()
            bits = better.bitcast(I64)
            assert isinstance(variable.value, Value)
            with f.when(bits.compare("ne", 0)):
                self.take(bits, variable.value, address, filled)

        low, high = f.constant(I64, self.size), f.constant(I64, self.n)
        vector_loop(e, variable, low, high, body, exact=(self.n - self.size) % LANES == 0)
        self.pad(f.load(I64, filled))
        self.sort()

    def take(self, bits: Value, start: Value, bound: Value, filled: Value) -> None:
        """Emit a loop that appends the elements marked in ``bits`` to the buffer, and sorts it when full.

        Bit n marks element ``start + n``. ``bound`` is the address of the integer that those of candidates
        must be below, ``filled`` that of the number of records in the buffer. A sort updates both: it keeps
        the first k records.
        """
        f = self.f
        scalar = Elements(f, 0, {})
        with f.loop(0, f.intrinsic("ctpop", bits), 1, [bits]) as loop:
            (remaining,) = loop.values
            number = start + f.intrinsic("cttz", remaining, f.constant(I1, 1))
            integer = self.integer(scalar, scalar.opaque(number, self.n))
            with f.when(integer.compare("ult", f.load(I32, bound))):
                at = f.load(I64, filled)
                record = (integer.cast("zext", I64) << 32) | number
                f.store(record, f.offset(self.buffer, at, I64))
                f.store(at + 1, filled)
                with f.when((at + 1).compare("eq", self.size)):
                    self.sort()
                    f.store(self.bound(), bound)
                    f.store(f.constant(I64, self.k), filled)
            loop.next(remaining & (remaining - 1))

    def write(self) -> None:
        """Emit a loop that stores the elements and positions of the first k records as values and indices."""
        e = Elements(self.f, self.lanes, {})
        variable = Variable(self.k, "s")

        def body() -> None:
            position = Index.of(variable)
            record = e.load(self.records, (position,))
            assert isinstance(record, Value)
            key = record.logical_shift_right(32).cast("trunc", integer_type(key_width(self.kind)))
            value = value_of(restored(~key if self.largest else key, self.kind), self.kind)
            e.store(self.values, (self.row_index(e), position), value)
            e.store(self.numbers, (self.row_index(e), position), record.cast("trunc", I32))

        loop_nest(e, [variable], body)


def _power(count: int) -> int:
    """Return the least power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()
