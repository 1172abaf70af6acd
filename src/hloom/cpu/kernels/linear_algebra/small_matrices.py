"""Factors of small matrices: LAPACK's getrf and potrf without their calls, many matrices in lanes.

LU goes column by column: each lane chooses its pivot, exchanges its rows by selections, and subtracts the
product of the column and the row of the pivot. Cholesky computes each element of the factor by its formula;
lanes whose pivot is not positive keep their elements from there on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from hloom.codegen.accumulators import unflatten
from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import (
    FailedSteps,
    Scratch,
    by_real,
    conjugate,
    copy_matrix,
    element,
    is_zero,
    minus_product,
    number,
    parts,
    pivot_size,
    quotient,
    real_part,
    scatter,
)
from hloom.codegen.llvm import I1, I32, I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel, lanes_text, loop_nest
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.linear_algebra.small_reflectors import SmallReflectors
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import LapackCall
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

SMALL: Final = 16
"""Rows and columns up to which matrices are factored in lanes."""
SMALL_COUNT: Final = 512
"""Elements up to which matrices are factored by reflectors in lanes: those of all lanes take 32 or 64 KiB."""
ENOUGH: Final = 4
"""Number of matrices from which lanes pay."""
SMALL_ALONE: Final = 6
"""Rows and columns up to which fewer matrices are factored one after the other, without LAPACK's calls."""


def factors_small_matrices(call: LapackCall) -> bool:
    """Return whether `emit_small_matrices` emits code for a LAPACK call, so that LAPACK is not needed.

    It does for LU, Cholesky and QR factorizations of small matrices, and products with the Q of a QR
    factorization.
    """
    arrays = [array for array in call.arrays if array.operand is not None or array.result is not None]
    extents = [extent for array in arrays for extent in array.dimensions]
    if min(extents, default=0) == 0:
        return False
    is_batch = call.batch >= ENOUGH
    if call.routine[1:] in _REFLECTORS and is_batch:
        return sum(array.count for array in arrays if array.operand is not None) <= SMALL_COUNT
    is_known = call.routine[1:] in (*_FACTORS, *_REFLECTORS) and call.batch > 0
    return is_known and max(extents) <= (SMALL if is_batch else SMALL_ALONE)


def emit_small_matrices(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the call of a kernel that computes what a LAPACK call does to small matrices, without LAPACK."""
    kind = i.operands[0].shape.element_type
    pointers = [*map(program.pointer, i.operands), *(target.pointer for target in program.targets(i))]
    kernel = program.shared(lambda name: _kernel(program.module, name, kind, call, len(pointers)))
    program.call(i, kernel, pointers)


def _kernel(module: Module, name: str, kind: ElementType, call: LapackCall, count: int) -> LoopKernel:
    """Emit the kernel (operands..., results..., begin, end) of a LAPACK routine for many small matrices.

    Each lane has a matrix; code is scalar if the batch is small. A call of the kernel computes the matrices
    begin <= n < end. ``count`` is the number of operands and results.
    """
    f = module.function(name, [PTR] * count + [I64, I64])
    lanes = max(8, 64 // storage_bytes(kind)) if call.batch >= ENOUGH else 0
    variable = Variable(call.batch, "b")
    e = Elements(f, lanes, {})
    factors = _FACTORS.get(call.routine[1:], SmallReflectors)(e, kind, call, Index.of(variable))
    loop_nest(e, [variable], factors.run, *f.parameters[-2:])
    f.finish()
    elements = max(array.count for array in call.arrays if array.is_matrix)
    work = call.batch * elements * min(call.arrays[0].dimensions)
    return LoopKernel(name, call.batch, lanes, work, lanes_text(lanes))


class _Factors(ABC):
    """Base of the emitters of LU and Cholesky factorizations, with one matrix per vector lane.

    Attributes:
        a: the elements of the matrices, on the stack.
        failed: the first failed step of each lane.
    """

    def __init__(self, e: Elements, kind: ElementType, call: LapackCall, matrix: Index) -> None:
        self.e, self.f, self.kind, self.call, self.matrix = e, e.function, kind, call, matrix
        self.rows, self.columns = call.arrays[0].dimensions
        source, factors, *self.others, info, _, _ = self.f.parameters
        sizes = (call.batch, self.rows, self.columns)
        self.source, self.factors = View(source, kind, sizes), View(factors, kind, sizes)
        self.info = View(info, et.S32, (call.batch,))
        self.a = Scratch(e, kind, [self.rows, self.columns])
        self.failed = FailedSteps(e)

    @abstractmethod
    def factor(self) -> None:
        """Emit the factorization of the matrices, in place on the stack, with one matrix per vector lane."""

    def run(self) -> None:
        """Emit the loads of the matrices, their factorization, and the stores of factors and failed steps."""
        copy_matrix(self.a, self.source, self.matrix, stores=False)
        self.failed.clear()
        self.factor()
        copy_matrix(self.a, self.factors, self.matrix, stores=True)
        scatter(self.e, self.info, (self.matrix,), self.failed.numbers)

    def number(self, i: Value) -> Value:
        """Emit the broadcast of a row index, as i32, to every lane."""
        return i.cast("trunc", I32).splat(self.e.lanes)


class _Lu(_Factors):
    """Emits LU factorizations with partial pivoting, with one matrix per vector lane.

    A step whose pivot is 0 is recorded as failed, but the factorization goes on, as in LAPACK.
    """

    def factor(self) -> None:
        """Emit the LU factorization: for each column, choose a pivot, exchange rows, and eliminate."""
        steps_count = min(self.rows, self.columns)
        pivots = View(self.others[0], et.S32, (self.call.batch, steps_count))
        with self.f.loop(0, steps_count) as steps, self.e.scope():
            k = steps.index
            row = self.pivot_row(k)
            scatter(self.e, pivots, (self.matrix, self.e.opaque(k, steps_count)), row + 1)
            self.exchange(k, row)
            self.eliminate(k, self.divisor(k))

    def pivot_row(self, k: Value) -> Value:
        """Emit the search for the largest element of column k, from row k on; return its row in each lane.

        Of several equally large elements, it takes the first one.
        """
        start = [pivot_size(self.e, self.a.get(k, k)), self.number(k)]
        with self.f.loop(k + 1, self.rows, 1, start) as loop, self.e.scope():
            largest, row = loop.values
            size = pivot_size(self.e, self.a.get(loop.index, k))
            is_larger = size.compare("ogt", largest)
            loop.next(is_larger.select(size, largest), is_larger.select(self.number(loop.index), row))
        return loop.values[1]

    def exchange(self, k: Value, row: Value) -> None:
        """Emit the exchange, in each lane, of row ``k`` with the lane's pivot row ``row``."""
        with self.f.loop(0, self.columns) as columns, self.e.scope():
            j = columns.index
            old = parts(self.a.get(k, j))
            with self.f.loop(k + 1, self.rows, 1, list(old)) as loop, self.e.scope():
                here = row.compare("eq", self.number(loop.index))
                current = parts(self.a.get(loop.index, j))
                below = [here.select(o, c) for o, c in zip(old, current, strict=True)]
                self.a.set(element(below), loop.index, j)
                loop.next(*(here.select(c, v) for c, v in zip(current, loop.values, strict=True)))
            self.a.set(element(loop.values), k, j)

    def divisor(self, k: Value) -> Element:
        """Emit the pivot of step ``k``, replaced by 1 where it is 0; such steps are recorded as failed."""
        pivot = parts(self.a.get(k, k))
        fails = is_zero(element(pivot))
        self.failed.note(fails, k)
        ones = parts(number(self.e, self.kind, 1))
        return element([fails.select(one, part) for one, part in zip(ones, pivot, strict=True)])

    def eliminate(self, k: Value, divisor: Element) -> None:
        """Emit step ``k`` of an LU factorization.

        It divides column k below the pivot by ``divisor``, and subtracts the product of that column and row k
        from the rest of the matrix.
        """
        with self.f.loop(k + 1, self.rows) as rows, self.e.scope():
            i = rows.index
            factor = quotient(self.e, self.a.get(i, k), divisor)
            self.a.set(factor, i, k)
            with self.f.loop(k + 1, self.columns) as columns, self.e.scope():
                j = columns.index
                self.a.set(minus_product(self.e, self.a.get(i, j), factor, self.a.get(k, j)), i, j)


class _Cholesky(_Factors):
    """Emits Cholesky factorizations in one triangle, with one matrix per vector lane.

    The other triangle keeps the operand's elements. A pivot that is not positive ends the factorization of
    its matrix: the pivot is stored without taking its root.
    """

    def __init__(self, e: Elements, kind: ElementType, call: LapackCall, matrix: Index) -> None:
        super().__init__(e, kind, call, matrix)
        # Rows are LAPACK's columns, so that it gets the letter of the other triangle.
        self.is_lower = call.arguments[0] == b"U"

    def get(self, i: Value, j: Value) -> Element:
        """Emit the load of element (i, j) of the lower factor, or of the operand if it is not yet replaced.

        If the factor is stored in the upper triangle, this is the conjugate of that triangle's element (j,
        i).
        """
        return self.a.get(i, j) if self.is_lower else conjugate(self.a.get(j, i))

    def set(self, changes: Value, value: Element, i: Value, j: Value) -> None:
        """Emit the store of element (i, j) of the lower factor, only in the lanes of the mask ``changes``.

        If the factor is stored in the upper triangle, the conjugate is stored at (j, i).
        """
        current = parts(self.get(i, j))
        chosen = element([changes.select(new, old) for new, old in zip(parts(value), current, strict=True)])
        if self.is_lower:
            self.a.set(chosen, i, j)
        else:
            self.a.set(conjugate(chosen), j, i)

    def factor(self) -> None:
        """Emit the Cholesky factorization, column by column.

        In each column, it subtracts the products of earlier columns, takes the root of the diagonal element,
        and divides the elements below by it. Matrices of failed lanes keep their elements from then on.
        """
        with self.f.loop(0, self.rows) as columns, self.e.scope():
            j = columns.index
            active = real_part(self.failed.numbers).compare("eq", 0)
            square = real_part(self.reduced(j, j))
            is_positive = square.compare("ogt", 0.0)
            root = is_positive.select(self.f.intrinsic("sqrt", square), square)
            zero = self.f.constant(square.type, 0.0)
            self.set(active, (root, zero) if self.kind.is_complex else root, j, j)
            in_every_lane = self.f.constant(I1.vector(self.e.lanes), 1)
            self.failed.note(is_positive ^ in_every_lane, j)
            with self.f.loop(j + 1, self.rows) as rows, self.e.scope():
                value = by_real(self.reduced(rows.index, j), root)
                self.set(active & is_positive, value, rows.index, j)

    def reduced(self, i: Value, j: Value) -> Element:
        """Emit a[i, j] - sum of l[i, k] * conj(l[j, k]) over k < j; l is the lower factor of a."""
        start = self.get(i, j)
        with self.f.loop(0, j, 1, list(parts(start))) as loop, self.e.scope():
            total = element(loop.values)
            left, right = self.get(i, loop.index), conjugate(self.get(j, loop.index))
            loop.next(*parts(minus_product(self.e, total, left, right)))
        return unflatten(loop.values, [start])[0]


_FACTORS: Final[dict[str, type[_Factors]]] = {"getrf": _Lu, "potrf": _Cholesky}
_REFLECTORS: Final = ("geqrf", "orgqr", "ungqr", "ormqr", "unmqr")
