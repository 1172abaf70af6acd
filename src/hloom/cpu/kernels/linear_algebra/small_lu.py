"""LU decompositions of many small matrices in lanes: LAPACK's getrf without its calls.

Column by column each lane chooses its pivot, exchanges its rows by selections, and subtracts the product of
the column and the row of the pivot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import Scratch, minus_product, number, parts, quotient, scatter
from hloom.codegen.llvm import I32, I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel, lanes_text, loop_nest
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import LapackCall
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

SMALL: Final = 16
"""Rows and columns up to which matrices are decomposed in lanes."""
ENOUGH: Final = 4
"""Number of matrices from which lanes pay."""


def decomposes_in_lanes(call: LapackCall) -> bool:
    """Return whether a call decomposes enough small matrices."""
    extents = call.rooms[0].dimensions
    is_small = min(extents, default=0) > 0 and max(extents) <= SMALL
    return call.routine[1:] == "getrf" and is_small and call.batch >= ENOUGH


def emit_small_lu(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the decompositions of a batch."""
    rows, columns = call.rooms[0].dimensions
    kind = i.operands[0].shape.element_type
    kernel = program.shared(lambda name: _kernel(program.module, name, kind, call.batch, rows, columns))
    results = [target.pointer for target in program.targets(i)]
    program.call(i, kernel, [program.pointer(i.operands[0]), *results])


def _kernel(module: Module, name: str, kind: ElementType, batch: int, rows: int, columns: int) -> LoopKernel:
    """Emit the kernel (a, factors, pivots, info, begin, end) over matrices."""
    f = module.function(name, [PTR] * 4 + [I64, I64])
    lanes = max(8, 64 // storage_bytes(kind))
    variable = Variable(batch, "b")
    lu = _Decomposition(f, kind, lanes, (batch, rows, columns), Index.of(variable))
    loop_nest(lu.e, [variable], lu.run, *f.parameters[-2:])
    f.finish()
    return LoopKernel(name, batch, lanes, batch * rows * columns * min(rows, columns), lanes_text(lanes))


class _Decomposition:
    """Decomposes the matrices of all lanes, on the stack."""

    def __init__(
        self, f: Function, kind: ElementType, lanes: int, sizes: tuple[int, int, int], matrix: Index
    ) -> None:
        batch, self.rows, self.columns = sizes
        self.f, self.kind, self.matrix = f, kind, matrix
        self.steps = min(self.rows, self.columns)
        self.e = Elements(f, lanes, {})
        source, factors, pivots, info, *_ = f.parameters
        self.source, self.factors = View(source, kind, sizes), View(factors, kind, sizes)
        self.pivots = View(pivots, et.S32, (batch, self.steps))
        self.info = View(info, et.S32, (batch,))
        self.a = Scratch(self.e, kind, [self.rows, self.columns])
        self.first_zero = Scratch(self.e, et.S32, [])

    def run(self) -> None:
        """Load, decompose and store; the info is the number of the first pivot that is 0, from 1 on, or 0."""
        self.copy(stores=False)
        self.first_zero.set(self.f.constant(I32.vector(self.e.lanes), 0))
        with self.f.loop(0, self.steps) as steps, self.e.scope():
            k = steps.index
            row = self.pivot_row(k)
            indices = (self.matrix, self.e.opaque(k, self.steps))
            scatter(self.e, self.pivots, indices, row + 1)
            self.exchange(k, row)
            self.eliminate(k, self.divisor(k))
        self.copy(stores=True)
        scatter(self.e, self.info, (self.matrix,), self.first_zero.get())

    def copy(self, *, stores: bool) -> None:
        """Load the matrices, or store them."""
        with self.f.loop(0, self.rows) as rows, self.f.loop(0, self.columns) as columns, self.e.scope():
            i, j = rows.index, columns.index
            indices = (self.matrix, self.e.opaque(i, self.rows), self.e.opaque(j, self.columns))
            if stores:
                scatter(self.e, self.factors, indices, self.a.get(i, j))
            else:
                self.a.set(self.e.load(self.source, indices), i, j)

    def pivot_row(self, k: Value) -> Value:
        """Return the number of the first row from k on with the largest element of column k."""
        start = [self.size(self.a.get(k, k)), self.number(k)]
        with self.f.loop(k + 1, self.rows, 1, start) as loop, self.e.scope():
            largest, row = loop.values
            size = self.size(self.a.get(loop.index, k))
            is_larger = size.compare("ogt", largest)
            loop.next(is_larger.select(size, largest), is_larger.select(self.number(loop.index), row))
        return loop.values[1]

    def size(self, x: Element) -> Value:
        """Return |x|; for complex numbers |re| + |im|, as LAPACK does."""
        real, *imaginary = (self.f.intrinsic("fabs", self.e.wide(part)) for part in parts(x))
        return real + imaginary[0] if imaginary else real

    def number(self, i: Value) -> Value:
        """Return a row number in every lane."""
        return i.cast("trunc", I32).splat(self.e.lanes)

    def exchange(self, k: Value, row: Value) -> None:
        """Exchange row k with the row of the pivot."""
        with self.f.loop(0, self.columns) as columns, self.e.scope():
            j = columns.index
            old = parts(self.a.get(k, j))
            with self.f.loop(k + 1, self.rows, 1, list(old)) as loop, self.e.scope():
                here = row.compare("eq", self.number(loop.index))
                current = parts(self.a.get(loop.index, j))
                below = [here.select(o, c) for o, c in zip(old, current, strict=True)]
                self.a.set(self.element(below), loop.index, j)
                loop.next(*(here.select(c, v) for c, v in zip(current, loop.values, strict=True)))
            self.a.set(self.element(loop.values), k, j)

    def element(self, registers: Sequence[Value]) -> Element:
        """Return registers as an element."""
        return (registers[0], registers[1]) if self.kind.is_complex else registers[0]

    def divisor(self, k: Value) -> Element:
        """Return the pivot, or 1 in place of 0; note the first pivot that is 0."""
        pivot = parts(self.a.get(k, k))
        is_zero = pivot[0].compare("oeq", 0.0)
        for part in pivot[1:]:
            is_zero = is_zero & part.compare("oeq", 0.0)
        earlier = parts(self.first_zero.get())[0]
        is_first = is_zero & earlier.compare("eq", 0)
        self.first_zero.set(is_first.select(self.number(k) + 1, earlier))
        ones = parts(number(self.e, self.kind, 1))
        return self.element([is_zero.select(one, part) for one, part in zip(ones, pivot, strict=True)])

    def eliminate(self, k: Value, divisor: Element) -> None:
        """Divide column k below the pivot, and subtract its product with row k."""
        with self.f.loop(k + 1, self.rows) as rows, self.e.scope():
            i = rows.index
            factor = quotient(self.e, self.a.get(i, k), divisor)
            self.a.set(factor, i, k)
            with self.f.loop(k + 1, self.columns) as columns, self.e.scope():
                j = columns.index
                self.a.set(minus_product(self.e, self.a.get(i, j), factor, self.a.get(k, j)), i, j)
