"""QR factors of small matrices: LAPACK's geqrf, orgqr and ormqr without their calls, many matrices in lanes.

A reflector is H = 1 - tau v v^H, where v is zero above row k, 1 in it, and stored below the diagonal in
column k. Q is the product of the reflectors in the order of their columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloom.codegen.bits import bits_of, from_bits
from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import (
    Scratch,
    conjugate,
    copy_matrix,
    element,
    minus_product,
    number,
    parts,
    quotient,
    scatter,
)
from hloom.codegen.llvm import Value
from hloom.codegen.types import Element
from hloom.ir.affine import Index
from hloom.operations.lapack.calls import LapackCall
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

_EXPONENT: Final = {et.F32: 0xFF << 23, et.F64: 0x7FF << 52}
"""The bits of the exponent of a number."""
_LEAST: Final = {et.F32: 2.0**-126, et.F64: 2.0**-1022}
"""The least power of two whose reciprocal is finite, and which is not denormal."""


class SmallReflectors:
    """Emits QR factorizations of small matrices, or products with Q, with one matrix per vector lane.

    Attributes:
        v: the matrices, on the stack, with the vectors of the Householder reflectors below the diagonal.
        count: number of reflectors.
    """

    def __init__(self, e: Elements, kind: ElementType, call: LapackCall, matrix: Index) -> None:
        self.e, self.f, self.kind, self.call, self.matrix = e, e.function, kind, call, matrix
        self.rows, self.columns = call.arrays[0].dimensions
        (self.count,) = call.arrays[1].dimensions
        self.v = Scratch(e, kind, [self.rows, self.columns])
        self.views = [
            View(pointer, kind, (call.batch, *call.arrays[number].dimensions))
            for pointer, number in zip(self.f.parameters, self.array_numbers(), strict=False)
        ]

    def array_numbers(self) -> list[int]:
        """Return the indices, in the LAPACK call's list of arrays, of its operands and then of its results.

        This is the order of the kernel's parameters. A result that overwrites an operand has the same index.
        """
        arrays = self.call.arrays
        operands = [n for n, array in enumerate(arrays) if array.operand is not None]
        results = {array.result: n for n, array in enumerate(arrays) if array.result is not None}
        return operands + [results[k] for k in sorted(results)]

    def run(self) -> None:
        """Emit what a LAPACK routine (geqrf, orgqr, ormqr) does: load operands, compute, store results."""
        copy_matrix(self.v, self.views[0], self.matrix, stores=False)
        match self.call.routine[1:]:
            case "geqrf":
                self.factor()
                copy_matrix(self.v, self.views[1], self.matrix, stores=True)
            case "orgqr" | "ungqr":
                self.multiply()
                copy_matrix(self.v, self.views[2], self.matrix, stores=True)
            case _:
                self.apply_all()

    # -- factors

    def factor(self) -> None:
        """Emit a loop over columns that makes a Householder reflector and applies it to the later columns."""
        taus = self.views[2]
        with self.f.loop(0, self.count) as steps, self.e.scope():
            k = steps.index
            tau = self.reflector(k)
            scatter(self.e, taus, (self.matrix, self.e.opaque(k, self.count)), tau)
            self.apply(k, conjugate(tau), self.v.get, self.v.set, self.rows, k + 1, self.columns)

    def reflector(self, k: Value) -> Element:
        """Emit the Householder reflector of column ``k``; return its factor tau.

        It replaces the column, from row k on, by the diagonal element of R and the reflector's vector v.
        Before that the column is scaled by a power of two, so that no square overflows and the largest square
        is not 0.
        """
        e, f, v = self.e, self.f, self.v
        real, *imaginary = parts(v.get(k, k))
        start = f.intrinsic("fabs", imaginary[0]) if imaginary else f.constant(real.type, 0.0)
        with f.loop(k + 1, self.rows, 1, [start]) as loop, e.scope():
            sizes = [f.intrinsic("fabs", part) for part in parts(v.get(loop.index, k))]
            largest = loop.values[0]
            for size in sizes:
                largest = f.intrinsic("maximum", largest, size)
            loop.next(largest)
        is_zero = loop.values[0].compare("oeq", 0.0)
        scale = self.power_of_two(f.intrinsic("maximum", loop.values[0], f.intrinsic("fabs", real)))
        inverse = f.constant(scale.type, 1.0) / scale
        with f.loop(k, self.rows, 1, [f.constant(real.type, 0.0)]) as loop, e.scope():
            total = loop.values[0]
            scaled = [part * inverse for part in parts(v.get(loop.index, k))]
            for part in scaled:
                total = f.fma(part, part, total)
            v.set(element(scaled), loop.index, k)
            loop.next(total)
        real, *imaginary = parts(v.get(k, k))
        beta = f.intrinsic("copysign", f.intrinsic("sqrt", loop.values[0]), -real)
        zero = f.constant(real.type, 0.0)
        tau = [is_zero.select(zero, part / beta) for part in (beta - real, *(-part for part in imaginary))]
        factor = quotient(e, number(e, self.kind, 1), element([real - beta, *imaginary]))
        factor = element([is_zero.select(zero, part) for part in parts(factor)])
        with f.loop(k + 1, self.rows) as rows, e.scope():
            v.set(self.product(v.get(rows.index, k), factor), rows.index, k)
        diagonal = is_zero.select(real, beta) * scale
        v.set(element([diagonal, *(zero for _ in imaginary)]), k, k)
        return element(tau)

    def power_of_two(self, size: Value) -> Value:
        """Emit the largest power of two up to ``size``, but at least the smallest normal number.

        The reciprocal of the result is finite.
        """
        kind = self.kind.component if self.kind.is_complex else self.kind
        power = from_bits(bits_of(size, kind) & _EXPONENT[kind], kind)
        assert isinstance(power, Value)
        return self.f.intrinsic("maximum", power, self.f.constant(size.type, _LEAST[kind]))

    def product(self, a: Element, b: Element) -> Element:
        """Emit the product a * b, of complex or real numbers."""
        negative = element([-part for part in parts(a)])
        return minus_product(self.e, number(self.e, self.kind, 0), negative, b)

    # -- products

    def tau(self, k: Value) -> Element:
        """Emit the load of the factor tau of Householder reflector ``k``, which is 1 - tau v v^H."""
        return self.e.load(self.views[1], (self.matrix, self.e.opaque(k, self.count)))

    def apply(
        self,
        k: Value,
        tau: Element,
        get: Callable[[Value, Value], Element],
        put: Callable[[Element, Value, Value], None],
        rows: int,
        first: Value | int,
        columns: int,
    ) -> None:
        """Emit the multiplication of some columns of a matrix by the reflector 1 - tau v v^H, from the left.

        Args:
            k: the index of the reflector.
            get, put: emit the load and the store of the matrix's element at (row, column).
            rows: number of rows of the matrix.
            first, columns: the columns are first <= j < columns.
        """
        e, f = self.e, self.f
        with f.loop(first, columns) as loop_of_columns, e.scope():
            j = loop_of_columns.index
            start = [-part for part in parts(get(k, j))]
            with f.loop(k + 1, rows, 1, start) as loop, e.scope():
                total, v = element(loop.values), conjugate(self.v.get(loop.index, k))
                loop.next(*parts(minus_product(e, total, v, get(loop.index, j))))
            step = minus_product(e, number(e, self.kind, 0), tau, element(loop.values))
            put(element([a - b for a, b in zip(parts(get(k, j)), parts(step), strict=True)]), k, j)
            with f.loop(k + 1, rows) as below, e.scope():
                i = below.index
                put(minus_product(e, get(i, j), self.v.get(i, k), step), i, j)

    def multiply(self) -> None:
        """Emit code to replace the reflectors' vectors by the leading columns of the product Q (orgqr)."""
        e, f, v = self.e, self.f, self.v
        zero, one = number(e, self.kind, 0), number(e, self.kind, 1)
        with f.loop(self.count, self.columns) as columns, f.loop(0, self.rows) as rows, e.scope():
            v.set(zero, rows.index, columns.index)
        with f.loop(self.count, self.columns) as columns, e.scope():
            v.set(one, columns.index, columns.index)
        with f.loop(0, self.count) as steps, e.scope():
            k = f.constant(steps.index.type, self.count - 1) - steps.index
            tau = self.tau(k)
            self.apply(k, tau, v.get, v.set, self.rows, k + 1, self.columns)
            with f.loop(0, k) as rows, e.scope():
                v.set(zero, rows.index, k)
            v.set(element([a - b for a, b in zip(parts(one), parts(tau), strict=True)]), k, k)
            with f.loop(k + 1, self.rows) as rows, e.scope():
                v.set(minus_product(e, zero, tau, v.get(rows.index, k)), rows.index, k)

    def apply_all(self) -> None:
        """Emit the multiplication of a matrix C by Q or its adjoint, from the left or the right (ormqr).

        A multiplication from the right is done as one of the adjoint of C from the left.
        """
        is_left, is_adjoint = self.call.arguments[0] == b"L", self.call.arguments[1] != b"N"
        sizes = self.call.arrays[2].dimensions
        c = Scratch(self.e, self.kind, sizes)
        copy_matrix(c, self.views[2], self.matrix, stores=False)
        rows, columns = sizes if is_left else sizes[::-1]

        def get(i: Value, j: Value) -> Element:
            return c.get(i, j) if is_left else conjugate(c.get(j, i))

        def put(value: Element, i: Value, j: Value) -> None:
            if is_left:
                c.set(value, i, j)
            else:
                c.set(conjugate(value), j, i)

        with self.f.loop(0, self.count) as steps, self.e.scope():
            k = steps.index
            if is_left != is_adjoint:
                k = self.f.constant(k.type, self.count - 1) - k
            tau = self.tau(k)
            self.apply(k, conjugate(tau) if is_left == is_adjoint else tau, get, put, rows, 0, columns)
        copy_matrix(c, self.views[3], self.matrix, stores=True)
