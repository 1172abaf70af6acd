"""cholesky: many small matrices in lanes, or a large matrix by blocks of rows.

A large matrix is factored as a^T = u^T u in the rows of the result, four rows at a time: one sweep subtracts
their rank-4 update from all rows below. The lower factor is u transposed.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import unflatten
from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import (
    Scratch,
    by_real,
    conjugate,
    minus_product,
    number,
    parts,
    real_part,
    scatter,
)
from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load, masked_store
from hloom.codegen.llvm.structured import choose
from hloom.codegen.loops import LoopKernel, lanes_text, loop_nest
from hloom.codegen.types import Element, register_type, storage_bytes
from hloom.cpu.kernels.linear_algebra.row_matrix import BLOCK, RowMatrix
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import LapackCall
from hloom.operations.linear_algebra import Cholesky
from hloom.plan.kernel import KernelPlan
from hloom.shape.element_type import ElementType

SMALL: Final = 32
"""Rows up to which matrices are factored in lanes, or in scalars if there are few."""
LEAST_ROWS: Final = 20
"""Rows from which real matrices of LAPACK's calls are factored without the library."""
MOST_BYTES: Final = 1 << 23
"""Bytes of a matrix up to which they are: larger ones take the library's blocks."""


@KERNELS.register("cholesky")
def emit_cholesky(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a cholesky: the call of a kernel for small or complex matrices, or of one for large real ones."""
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    shape = i.shape
    n, batch = shape.dimensions[-1], math.prod(shape.dimensions[:-2])
    if shape.element_type.is_complex or n <= SMALL:
        kernel = program.shared(lambda name: _small_kernel(program.module, name, i, n, batch))
    else:
        kernel = program.shared(lambda name: _large_kernel(program.module, name, i, n, batch))
    program.call(i, kernel, [program.pointer(i.operands[0]), target.pointer])


# -- small matrices


def _small_kernel(module: Module, name: str, i: HloInstruction, n: int, batch: int) -> LoopKernel:
    """Emit the kernel (a, result, begin, end) of Cholesky factorizations of small or complex matrices.

    Small matrices are factored one per vector lane, if there are enough of them. ``n`` is the number of rows
    of a matrix, ``batch`` the number of matrices.
    """
    function = module.function(name, [PTR, PTR, I64, I64])
    *_, begin, end = function.parameters
    kind = i.shape.element_type
    lanes = max(8, 64 // storage_bytes(kind)) if batch >= 4 and n <= SMALL else 0
    e = Elements(function, lanes, {})
    variable = Variable(batch, "b")
    factorization = _Small(e, i, n, batch, Index.of(variable))
    loop_nest(e, [variable], factorization.run, begin, end)
    function.finish()
    return LoopKernel(name, batch, max(lanes, 1), batch * n * n * n, lanes_text(lanes))


class _Small:
    """Emits Cholesky factorizations element by element: one matrix per vector lane, or one in scalar code."""

    def __init__(self, e: Elements, i: HloInstruction, n: int, batch: int, place: Index) -> None:
        self.e, self.f, self.n, self.matrix = e, e.function, n, place
        self.lower = operation_of(i, Cholesky).lower
        self.kind = i.shape.element_type
        source, result = self.f.parameters[:2]
        self.source = View(source, self.kind, (batch, n, n))
        self.result = View(result, self.kind, (batch, n, n))
        self.factor = Scratch(e, self.kind, [n, n]) if n <= SMALL else None

    def given(self, i: Value, j: Value) -> Element:
        """Emit the load of element (i, j), i >= j, of the Hermitian matrix to factor.

        Only one triangle of the operand is given: if it is the upper one, this is the conjugate of element
        (j, i).
        """
        row, column = self.e.opaque(i, self.n), self.e.opaque(j, self.n)
        if self.lower:
            return self.e.load(self.source, (self.matrix, row, column))
        return conjugate(self.e.load(self.source, (self.matrix, column, row)))

    def get(self, i: Value, j: Value) -> Element:
        """Emit the load of element (i, j), i >= j, of the lower factor, computed before.

        It comes from the stack if matrices are small, else from the result.
        """
        if self.factor is not None:
            return self.factor.get(i, j)
        row, column = self.e.opaque(i, self.n), self.e.opaque(j, self.n)
        if self.lower:
            return self.e.load(self.result, (self.matrix, row, column))
        return conjugate(self.e.load(self.result, (self.matrix, column, row)))

    def set(self, value: Element, i: Value, j: Value) -> None:
        """Emit the store of element (i, j) of the lower factor.

        It goes to the stack if matrices are small, else to the result.
        """
        if self.factor is not None:
            self.factor.set(value, i, j)
        else:
            self.write(value, i, j)

    def write(self, value: Element, i: Value, j: Value) -> None:
        """Emit the store of element (i, j) of the lower factor to the result.

        If the result is the upper factor, the conjugate is stored at (j, i).
        """
        row, column = self.e.opaque(i, self.n), self.e.opaque(j, self.n)
        if self.lower:
            scatter(self.e, self.result, (self.matrix, row, column), value)
        else:
            scatter(self.e, self.result, (self.matrix, column, row), conjugate(value))

    def run(self) -> None:
        """Emit a Cholesky factorization and the stores of its result: all NaN if a pivot is not positive."""
        with self.f.loop(0, self.n) as columns, self.e.scope():
            j = columns.index
            square = real_part(self.reduced(j, j, j))
            not_positive = self.f.constant(square.type, math.nan)
            root = square.compare("ogt", 0.0).select(self.f.intrinsic("sqrt", square), not_positive)
            zero = self.f.constant(square.type, 0.0)
            self.set((root, zero) if self.kind.is_complex else root, j, j)
            with self.f.loop(j + 1, self.n) as rows, self.e.scope():
                self.set(by_real(self.reduced(rows.index, j, j), root), rows.index, j)
        last = self.f.constant(I64, self.n - 1)
        failed = real_part(self.get(last, last)).compare("uno", 0.0)
        nothing = number(self.e, self.kind, 0)
        nan = number(self.e, self.kind, math.nan)
        with self.f.loop(0, self.n) as rows, self.f.loop(0, self.n) as columns, self.e.scope():
            i, j = rows.index, columns.index
            inside = j.compare("sle", i)
            current = self.get(i, inside.select(j, i))
            masked = [
                self.e.choose(inside, a, b) for a, b in zip(parts(current), parts(nothing), strict=True)
            ]
            checked = [self.e.choose(failed, a, b) for a, b in zip(parts(nan), masked, strict=True)]
            values = [v for v in checked if isinstance(v, Value)]
            self.write((values[0], values[1]) if len(values) == 2 else values[0], i, j)

    def reduced(self, i: Value, j: Value, count: Value) -> Element:
        """Emit a[i, j] - sum of l[i, k] * conj(l[j, k]) over k < count; l is the lower factor of a."""
        start = self.given(i, j)
        flat = [self.e.wide(part) for part in parts(start)]
        with self.f.loop(0, count, 1, flat) as loop, self.e.scope():
            (total,) = unflatten(loop.values, [start])
            left, right = self.get(i, loop.index), conjugate(self.get(j, loop.index))
            total = minus_product(self.e, total, left, right)
            loop.next(*(self.e.wide(part) for part in parts(total)))
        return unflatten(loop.values, [start])[0]


# -- large matrices


def _large_kernel(module: Module, name: str, i: HloInstruction, n: int, batch: int) -> LoopKernel:
    """Emit the kernel (a, result, begin, end) of Cholesky factorizations of large real matrices.

    They are factored one by one.
    """
    function = module.function(name, [PTR, PTR, I64, I64])
    source, result, begin, end = function.parameters
    kind = i.shape.element_type
    with function.loop(begin, end) as loop:
        offset = loop.index * (n * n)
        element = register_type(kind)
        a, u = function.offset(source, offset, element), function.offset(result, offset, element)
        _Large(function, kind, n, operation_of(i, Cholesky).lower, a, u).run()
    function.finish()
    return LoopKernel(name, batch, 1, batch * n * n * n // 4)


def factors_by_cholesky(call: LapackCall) -> bool:
    """Return whether `emit_cholesky_call` emits code for a LAPACK call: Cholesky factors of real numbers."""
    if call.routine not in ("spotrf", "dpotrf"):
        return False
    matrix = call.arrays[0]
    return matrix.dimensions[0] >= LEAST_ROWS and matrix.bytes <= MOST_BYTES


def emit_cholesky_call(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the call of a kernel that computes LAPACK's Cholesky factors of large real matrices."""
    pointers = [*map(program.pointer, i.operands), *(target.pointer for target in program.targets(i))]
    kind = i.operands[0].shape.element_type
    kernel = program.shared(lambda name: _lapack_kernel(program.module, name, kind, call))
    program.call(i, kernel, [*pointers, program.workspace(i)])


def _lapack_kernel(module: Module, name: str, kind: ElementType, call: LapackCall) -> LoopKernel:
    """Emit the kernel (a, factors, info, workspace, begin, end) of LAPACK's potrf for large real matrices.

    A task factors the matrices begin <= n < end in the same workspace.
    """
    function = module.function(name, [PTR] * 4 + [I64, I64])
    source, result, info, space, begin, end = function.parameters
    n, element = call.arrays[0].dimensions[0], register_type(kind)
    with function.loop(begin, end) as loop:
        a, factor = (function.offset(base, loop.index * (n * n), element) for base in (source, result))
        # Rows are LAPACK's columns, so that it gets the letter of the other triangle.
        large = _Large(function, kind, n, call.arguments[0] == b"U", a, space)
        large.factor()
        large.keep(factor)
        function.store(large.failed_at(), function.offset(info, loop.index, I32))
    function.finish()
    return LoopKernel(name, call.batch, call.batch, call.batch * n * n * n // 4)


class _Large(RowMatrix):
    """Emits the Cholesky factorization of one large real matrix, computed in the memory of the result."""

    def __init__(self, f: Function, kind: ElementType, n: int, lower: bool, a: Value, u: Value) -> None:
        super().__init__(f, kind, n)
        self.lower, self.a, self.u = lower, a, u

    def run(self) -> None:
        """Emit a Cholesky factorization: copy a triangle to the result, factor it, zero the other triangle.

        The result is NaN throughout if the matrix is not positive definite.
        """
        self.factor()
        last = self.f.load(self.type, self.at(self.u, self.n - 1, self.n - 1))
        with choose(self.f, last.compare("uno", 0.0)) as failed:
            with self.f.loop(0, self.n * self.n) as loop:
                nan = self.f.constant(self.type, math.nan)
                self.f.store(nan, self.f.offset(self.u, loop.index, self.type))
            failed.otherwise()
            self.tiles(self.u, self.u, self.lower, zeroed=True)

    def factor(self) -> None:
        """Emit the copy of the operand's triangle, and its factorization in the upper triangle."""
        self.tiles(self.a, self.u, self.lower, zeroed=False)
        full_rows, remainder = self.n // BLOCK * BLOCK, self.n % BLOCK
        with self.f.loop(0, full_rows, BLOCK) as loop:
            self.block(loop.index, BLOCK)
        if remainder:
            self.block(self.f.constant(I64, full_rows), remainder)

    def failed_at(self) -> Value:
        """Emit the number, from 1, of the first pivot that is not positive, as i32; 0 if all are.

        The diagonal of the factor is NaN from this pivot on.
        """
        f = self.f
        with f.loop(0, self.n, 1, [f.constant(I32, 0)]) as loop:
            root = f.load(self.type, self.at(self.u, loop.index, loop.index))
            loop.next(loop.values[0] + root.compare("ord", 0.0).cast("zext", I32))
        (count,) = loop.values
        return count.compare("eq", self.n).select(f.constant(I32, 0), count + 1)

    # -- triangles

    def keep(self, target: Value) -> None:
        """Emit a loop that stores the factor in its triangle, and the operand's elements in the other one.

        The target may be the operand's memory.
        """
        size = self.lanes
        with self.f.loop(0, self.n, size) as rows, self.f.loop(rows.index, self.n, size) as columns:
            i, j = rows.index, columns.index
            vectors = self.load_tile(self.u, i, j)
            moved = transposed(vectors) if self.lower else vectors
            here, there = ((j, i), (i, j)) if self.lower else ((i, j), (j, i))
            others, given = self.load_tile(self.a, *there), self.load_tile(self.a, *here)
            self.store_tile(target, *there, others)
            beside = i.compare("ne", j).splat(size)
            for k, vector in enumerate(moved):
                lanes = [int(lane <= k if self.lower else lane >= k) for lane in range(size)]
                moved[k] = (self.f.constant(I1.vector(size), lanes) | beside).select(vector, given[k])
            self.store_tile(target, *here, moved)

    def tiles(self, source: Value, target: Value, swap: bool, *, zeroed: bool) -> None:
        """Emit a loop that copies a triangle of a matrix tile by tile, transposed if ``swap``.

        Before the factorization (``zeroed`` is false) the operand's triangle is copied to the upper triangle
        of ``target``. After it (``zeroed`` is true) the factor in the upper triangle is moved to the triangle
        that the result has it in, and the other triangle is filled with zeros.
        """
        size = self.lanes
        with self.f.loop(0, self.n, size) as rows, self.f.loop(rows.index, self.n, size) as columns:
            i, j = rows.index, columns.index
            if not zeroed:
                vectors = self.load_tile(source, *((j, i) if swap else (i, j)))
                self.store_tile(target, i, j, transposed(vectors) if swap else vectors)
            else:
                self.store_factor(target, i, j, self.load_tile(source, i, j), swap)

    def store_factor(self, target: Value, i: Value, j: Value, vectors: list[Value], swap: bool) -> None:
        """Emit the stores of tile (i, j) of the upper factor and of zeros in the mirrored tile (j, i).

        ``vectors`` are the rows of the tile. If ``swap``, the tile's transpose is stored at (j, i) instead,
        and zeros at (i, j).
        """
        diagonal = i.compare("eq", j)
        masked = [self.upper(v, k, diagonal) for k, v in enumerate(vectors)]
        if swap:
            masked = transposed(masked)
            i, j = j, i
        zeros = [diagonal.select(vector, 0.0) for vector in masked]
        self.store_tile(target, j, i, zeros)
        self.store_tile(target, i, j, masked)

    def upper(self, vector: Value, row: int, diagonal: Value) -> Value:
        """Return row ``row`` of a tile, with zeros left of the matrix's diagonal if the tile is on that.

        ``vector`` is the row as it was loaded. ``diagonal`` is an i1: whether the tile is on the diagonal.
        """
        keep = self.f.constant(I1.vector(self.lanes), [int(lane >= row) for lane in range(self.lanes)])
        return (keep | (diagonal ^ 1).splat(self.lanes)).select(vector, 0.0)

    def load_tile(self, base: Value, row: Value, column: Value) -> list[Value]:
        """Emit the load of a square tile of a matrix; return a vector for each of its rows.

        ``row`` and ``column`` are those of the tile's first element. Elements outside the matrix are
        undefined.
        """
        f = self.f
        last = f.constant(I64, self.n - 1)
        mask = self.mask(f.constant(I64, self.n) - column)
        vectors: list[Value] = []
        for k in range(self.lanes):
            line = f.intrinsic("smin", row + k, last)
            vectors.append(masked_load(self.wide, self.at(base, line, column), mask))
        return vectors

    def store_tile(self, base: Value, row: Value, column: Value, vectors: list[Value]) -> None:
        """Emit the store of a square tile of a matrix; elements outside the matrix are not stored.

        ``row`` and ``column`` are those of the tile's first element, ``vectors`` are the tile's rows.
        """
        f = self.f
        mask = self.mask(f.constant(I64, self.n) - column)
        for k, vector in enumerate(vectors):
            inside = (row + k).compare("slt", self.n)
            masked_store(vector, self.at(base, row + k, column), mask & inside.splat(self.lanes))

    # -- the factorization

    def block(self, k: Value, size: int) -> None:
        """Emit the computation of rows k <= i < k + size of the upper factor.

        Then the products of these rows are subtracted from the rows below.
        """
        f = self.f
        corner, inverses = self.corner(k, size)
        first = k + size

        def panel(j: Value, mask: Value | None) -> None:
            rows: list[Value] = []
            for p in range(size):
                t = self.load(self.at(self.u, k + p, j), mask)
                for r in range(p):
                    t = f.fma(-(corner[r][p].splat(self.lanes)), rows[r], t)
                rows.append(t * inverses[p].splat(self.lanes))
            for p, row in enumerate(rows):
                self.store(row, self.at(self.u, k + p, j), mask)

        self.sweep(first, panel)
        if size < BLOCK:
            return
        self.groups(first, lambda i, count: self.subtract_below(k, i, count))

    def corner(self, k: Value, size: int) -> tuple[list[list[Value]], list[Value]]:
        """Emit the factorization of the square block of rows and columns k <= i < k + size, and its store.

        Returns (elements of the upper factor by row and column, reciprocals of the factor's diagonal).
        """
        f = self.f
        u = [[f.load(self.type, self.at(self.u, k + p, k + q)) for q in range(size)] for p in range(size)]
        inverses: list[Value] = []
        for p in range(size):
            square = u[p][p]
            for r in range(p):
                square = f.fma(-u[r][p], u[r][p], square)
            positive = square.compare("ogt", 0.0)
            u[p][p] = positive.select(f.intrinsic("sqrt", square), math.nan)
            inverses.append(f.constant(self.type, 1.0) / u[p][p])
            for q in range(p + 1, size):
                value = u[p][q]
                for r in range(p):
                    value = f.fma(-u[r][p], u[r][q], value)
                u[p][q] = value * inverses[p]
            for q in range(p, size):
                f.store(u[p][q], self.at(self.u, k + p, k + q))
        return u, inverses

    def subtract_below(self, k: Value, i: Value, count: int) -> None:
        """Emit the subtraction of a rank-4 update from ``count`` rows of the matrix, from row i on.

        The update is the product of the transpose of rows k to k + 3 of the upper factor with these rows.
        Elements left of the diagonal become undefined.
        """
        factors = [
            [self.f.load(self.type, self.at(self.u, k + p, i + c)).splat(self.lanes) for p in range(BLOCK)]
            for c in range(count)
        ]
        self.subtract(self.u, i, k, i & -self.lanes, factors)
