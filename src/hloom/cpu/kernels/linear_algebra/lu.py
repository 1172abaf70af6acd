"""LU factors of large real matrices by LAPACK's definition: getrf without the library.

The matrix is factored in the rows of the result, four columns at a time. A panel of four columns is copied to
the stack, where columns are contiguous: pivots are chosen, and rows exchanged in the panel and the matrix.
Then the rows of the four pivots are solved for, and their rank-4 update is subtracted from the rows below.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.linear_algebra.row_matrix import BLOCK, RowMatrix
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import LapackCall
from hloom.shape.element_type import ElementType

LEAST_ROWS: Final = 10
"""Rows from which matrices of LAPACK's calls are factored without the library."""
MOST_ROWS: Final = 1000
"""Rows up to which they are: the library updates larger matrices by larger blocks."""


def factors_by_lu(call: LapackCall) -> bool:
    """Return whether `emit_lu_call` emits code for a LAPACK call: LU factors of square real matrices."""
    if call.routine not in ("sgetrf", "dgetrf"):
        return False
    rows, columns = call.arrays[0].dimensions
    return rows == columns and LEAST_ROWS <= rows <= MOST_ROWS


def emit_lu_call(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the call of a kernel that computes LAPACK's LU factors."""
    pointers = [*map(program.pointer, i.operands), *(target.pointer for target in program.targets(i))]
    kind = i.operands[0].shape.element_type
    program.call(i, program.shared(lambda name: _kernel(program.module, name, kind, call)), pointers)


def _kernel(module: Module, name: str, kind: ElementType, call: LapackCall) -> LoopKernel:
    """Emit the kernel (a, factors, pivots, info, begin, end) of the matrices begin <= n < end."""
    function = module.function(name, [PTR] * 4 + [I64, I64])
    source, result, pivots, info, begin, end = function.parameters
    n, batch = call.arrays[0].dimensions[0], call.batch
    lu = _Lu(function, kind, n)
    with function.loop(begin, end) as loop:
        a, factors = (function.offset(base, loop.index * (n * n), lu.type) for base in (source, result))
        with function.when(a.compare("ne", factors)):
            copy_bytes(factors, a, function.constant(I64, n * n * lu.type.size))
        lu.run(factors, function.offset(pivots, loop.index * n, I32), function.offset(info, loop.index, I32))
    function.finish()
    return LoopKernel(name, batch, 1, batch * n * n * n // 2)


class _Lu(RowMatrix):
    """Emits the LU factorization of one matrix, with partial pivoting, in place.

    A pivot of 0 is recorded, and the factorization goes on, as in LAPACK.
    """

    def __init__(self, f: Function, kind: ElementType, n: int) -> None:
        super().__init__(f, kind, n)
        room = n + 2 * self.lanes
        self.columns = [f.allocate(self.type, room) for _ in range(BLOCK)]
        self.failed = f.allocate(I32, 1)

    def run(self, a: Value, pivots: Value, info: Value) -> None:
        """Emit the factorization, and the stores of pivots and of the first step whose pivot is 0, or 0."""
        f, self.a, self.pivots = self.f, a, pivots
        f.store(f.constant(I32, 0), self.failed)
        full = self.n // BLOCK * BLOCK
        with f.loop(0, full, BLOCK) as loop:
            self.block(loop.index, BLOCK)
        if self.n % BLOCK:
            self.block(f.constant(I64, full), self.n % BLOCK)
        f.store(f.load(I32, self.failed), info)

    def block(self, k: Value, size: int) -> None:
        """Emit the steps k <= step < k + size."""
        self.read_panel(k, size)
        for p in range(size):
            self.step(k, p, size)
        self.write_panel(k, size)
        if size == BLOCK:
            self.solve(k)
            self.groups(k + BLOCK, lambda i, count: self.subtract_below(k, i, count))

    # -- the panel

    def element(self, column: int, row: Value) -> Value:
        """Return the address of an element of the panel."""
        return self.f.offset(self.columns[column], row, self.type)

    def read_panel(self, k: Value, size: int) -> None:
        """Emit the copy of columns of the matrix to the stack."""
        f = self.f
        with f.loop(k, self.n) as rows:
            line = self.at(self.a, rows.index, k)
            for p in range(size):
                f.store(f.load(self.type, f.offset(line, p, self.type)), self.element(p, rows.index))

    def write_panel(self, k: Value, size: int) -> None:
        """Emit the copy of the panel to the matrix."""
        f = self.f
        with f.loop(k, self.n) as rows:
            line = self.at(self.a, rows.index, k)
            for p in range(size):
                f.store(f.load(self.type, self.element(p, rows.index)), f.offset(line, p, self.type))

    def step(self, k: Value, p: int, size: int) -> None:
        """Emit step k + p: find the pivot, exchange rows, and eliminate the column in the panel."""
        f, at = self.f, k + p
        row = self.pivot_row(p, at)
        f.store(row.cast("trunc", I32) + 1, f.offset(self.pivots, at, I32))
        with f.when(row.compare("ne", at)):
            self.exchange(at, row, size)
        pivot = f.load(self.type, self.element(p, at))
        is_zero, earlier = pivot.compare("oeq", 0.0), f.load(I32, self.failed)
        is_first = is_zero & earlier.compare("eq", 0)
        f.store(is_first.select(at.cast("trunc", I32) + 1, earlier), self.failed)
        divisor = is_zero.select(1.0, pivot).splat(self.lanes)
        others = [f.load(self.type, self.element(q, at)).splat(self.lanes) for q in range(p + 1, size)]

        def eliminate(i: Value, mask: Value | None) -> None:
            factor = self.load(self.element(p, i), mask) / divisor
            self.store(factor, self.element(p, i), mask)
            for q, other in enumerate(others, p + 1):
                self.store(
                    f.fma(-factor, other, self.load(self.element(q, i), mask)), self.element(q, i), mask
                )

        self.sweep(at + 1, eliminate)

    def pivot_row(self, p: int, first: Value) -> Value:
        """Emit the search for the first of the largest elements of a column; a leading NaN is the pivot.

        Lanes beyond the last row hold 0, which is no larger than what lane 0 finds before.
        """
        f, lanes = self.f, self.lanes
        indices = I64.vector(lanes)
        numbers = f.constant(indices, list(range(lanes)))
        start = [f.constant(self.wide, -1.0), f.constant(indices, self.n)]
        with f.loop(first, self.n, lanes, start) as loop:
            largest, place = loop.values
            rest = f.constant(I64, self.n) - loop.index
            size = f.intrinsic("fabs", self.load(self.element(p, loop.index), self.mask(rest)))
            is_larger = size.compare("ogt", largest)
            here = loop.index.splat(lanes) + numbers
            loop.next(is_larger.select(size, largest), is_larger.select(here, place))
        largest, place = loop.values
        # Halves: LLVM 22 miscompiles comparisons of rotated vectors of 8 doubles of which one lane is read.
        while lanes > 1:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            (size, other), (there, after) = (
                (vector.shuffle(low), vector.shuffle(high)) for vector in (largest, place)
            )
            takes = other.compare("ogt", size) | (other.compare("oeq", size) & after.compare("slt", there))
            largest, place = takes.select(other, size), takes.select(after, there)
        leading = f.load(self.type, self.element(p, first))
        return leading.compare("uno", 0.0).select(first, place.extract(0))

    def exchange(self, at: Value, row: Value, size: int) -> None:
        """Emit the exchange of two rows of the panel, and of the matrix."""
        f = self.f
        for q in range(size):
            first, second = self.element(q, at), self.element(q, row)
            old, new = f.load(self.type, first), f.load(self.type, second)
            f.store(new, first)
            f.store(old, second)

        def swap(j: Value, mask: Value | None) -> None:
            first, second = self.at(self.a, at, j), self.at(self.a, row, j)
            old, new = self.load(first, mask), self.load(second, mask)
            self.store(new, first, mask)
            self.store(old, second, mask)

        self.sweep(f.constant(I64, 0), swap)

    # -- the rest of the matrix

    def factors(self, row: Value) -> list[Value]:
        """Emit the loads of the factors of a row: its elements in the panel, in every lane."""
        return [self.f.load(self.type, self.element(p, row)).splat(self.lanes) for p in range(BLOCK)]

    def solve(self, k: Value) -> None:
        """Emit the rows of the pivots, to the right of the panel."""
        f = self.f
        factors = [self.factors(k + p)[:p] for p in range(BLOCK)]

        def columns(j: Value, mask: Value | None) -> None:
            rows: list[Value] = []
            for p in range(BLOCK):
                total = self.load(self.at(self.a, k + p, j), mask)
                for r in range(p):
                    total = f.fma(-factors[p][r], rows[r], total)
                rows.append(total)
                self.store(total, self.at(self.a, k + p, j), mask)

        self.sweep(k + BLOCK, columns)

    def subtract_below(self, k: Value, i: Value, count: int) -> None:
        """Emit the subtraction of the rank-4 update from ``count`` rows, from row i on."""
        self.subtract(self.a, i, k, k + BLOCK, [self.factors(i + c) for c in range(count)])
