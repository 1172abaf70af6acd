"""triangular-solve: substitution in blocks of four unknowns.

Lanes are right-hand sides; for many small systems, lanes are systems.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import unflatten
from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import Scratch, conjugate, minus_product, parts, quotient, scatter
from hloom.codegen.llvm import I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel, vector_loop
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.linear_algebra import TriangularSolve
from hloom.plan.kernel import KernelPlan

BLOCK: Final = 4
"""Number of unknowns of a block."""
SMALL: Final = 24
"""Number of unknowns up to which systems are solved in lanes if there are enough of them."""
ENOUGH: Final = 8
STACK_BYTES: Final = 1 << 18
"""Bytes of stack for noncontiguous unknowns; bounds the number of lanes."""


@KERNELS.register("triangular-solve")
def emit_triangular_solve(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a kernel for a triangular-solve, and the call of the kernel."""
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    kernel = program.shared(lambda name: _kernel(program.module, name, i))
    program.call(i, kernel, [program.pointer(i.operands[0]), program.pointer(i.operands[1]), target.pointer])


def _kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the kernel (a, b, x, begin, end) of a triangular-solve.

    Vector lanes are right-hand sides of one system, or different systems of the batch if these are small and
    many.
    """
    a, b = (o.shape for o in i.operands)
    batch, m = math.prod(a.dimensions[:-2]), a.dimensions[-1]
    columns = b.element_count // (batch * m)
    function = module.function(name, [PTR] * 3 + [I64, I64])
    *_, begin, end = function.parameters
    by_system = m <= SMALL and batch >= ENOUGH and columns <= 64
    lanes = max(8, 64 // storage_bytes(a.element_type)) * (1 if by_system else 2)
    side_by_side = batch if by_system else columns
    while lanes > 4 and (
        lanes // 2 >= side_by_side or m * lanes * storage_bytes(a.element_type) > STACK_BYTES
    ):
        lanes //= 2
    solver = _Solver(function, i, lanes, by_system)
    if by_system:
        solver.systems(begin, end)
        trips, grain = batch, lanes
    else:
        groups = -(-columns // lanes)
        with function.loop(begin, end) as loop:
            system = loop.index.unsigned_divide(groups)
            first = (loop.index - system * groups) * lanes
            solver.columns(system, first)
        trips, grain = batch * groups, 1
    function.finish()
    form = f"{lanes} lanes across " + ("systems" if by_system else "columns")
    return LoopKernel(name, trips, grain, batch * m * m * columns, form)


class _Solver:
    """Emits a triangular-solve's substitution for a vector of right-hand sides.

    These belong to one system, or each lane has a right-hand side of a system of its own.
    """

    def __init__(self, function: Function, i: HloInstruction, lanes: int, by_system: bool) -> None:
        self.f = function
        self.operation = operation_of(i, TriangularSolve)
        a, b = (o.shape for o in i.operands)
        self.kind = a.element_type
        self.batch, self.m = math.prod(a.dimensions[:-2]), a.dimensions[-1]
        self.count = b.element_count // (self.batch * self.m)
        sizes = (
            (self.batch, self.m, self.count) if self.operation.left_side else (self.batch, self.count, self.m)
        )
        source, right, result = function.parameters[:3]
        self.a = View(source, self.kind, (self.batch, self.m, self.m))
        self.b = View(right, self.kind, sizes)
        self.x = View(result, self.kind, sizes)
        self.e = Elements(function, lanes, {})
        self.scalars = Elements(function, 0, {})
        transposed = self.operation.transpose_a != "NO_TRANSPOSE"
        # x op(a) = b is op(a)^T x^T = b^T
        self.swapped = transposed == self.operation.left_side
        self.forward = self.operation.lower != self.swapped
        self.conjugated = self.operation.transpose_a == "ADJOINT"
        self.apart = by_system or not self.operation.left_side
        self.unknowns = Scratch(self.e, self.kind, [self.m]) if self.apart else None
        self.by_system = by_system

    # -- lanes

    def columns(self, system: Value, first: Value) -> None:
        """Emit the solution of one system for a vector of right-hand sides, from index ``first`` on.

        ``system`` is the index of the system in the batch.
        """
        self.system = self.e.opaque(system, self.batch)
        lane = Variable(max(self.count, 2), "c")
        self.column = Index.of(lane)
        end = self.f.intrinsic("smin", first + self.e.lanes, self.f.constant(I64, self.count))
        exact = self.count % self.e.lanes == 0
        vector_loop(self.e, lane, first, end, self.solve, exact=exact)

    def systems(self, begin: Value, end: Value) -> None:
        """Emit a loop that solves the systems begin <= s < end of the batch, with one system per lane.

        It has an inner loop over the right-hand sides.
        """
        lane = Variable(self.batch, "s")
        self.system = Index.of(lane)

        def body() -> None:
            with self.f.loop(0, self.count) as loop, self.e.scope():
                self.column = self.e.opaque(loop.index, self.count)
                self.solve()

        vector_loop(self.e, lane, begin, end, body, exact=self.batch % self.e.lanes == 0)

    # -- loads and stores

    def coefficient(self, row: Value, column: Value) -> Element:
        """Emit the load of the coefficient of unknown ``column`` in equation ``row``.

        This is an element of the matrix, of its transpose or of its adjoint, depending on the instruction.
        """
        e = self.e if self.by_system else self.scalars
        i, j = (self.e.opaque(v, self.m) for v in ((column, row) if self.swapped else (row, column)))
        element = e.load(self.a, (self.system, i, j))
        return conjugate(element) if self.conjugated else element

    def place(self, row: Value) -> tuple[Index, Index, Index]:
        """Return the index in ``b`` and ``x`` of unknown ``row`` for the current right-hand sides."""
        index = self.e.opaque(row, self.m)
        if self.operation.left_side:
            return self.system, index, self.column
        return self.system, self.column, index

    def known(self, row: Value) -> Element:
        """Emit the load of the value of unknown ``row``, which is solved already."""
        return self.unknowns.get(row) if self.unknowns is not None else self.e.load(self.x, self.place(row))

    def found(self, row: Value, value: Element) -> None:
        """Emit the store of the value of unknown ``row`` to the result, and to the stack if kept there."""
        if self.unknowns is not None:
            self.unknowns.set(value, row)
        scatter(self.e, self.x, self.place(row), value)

    # -- substitution

    def solve(self) -> None:
        """Emit the substitution for all unknowns of the current right-hand sides, a few of them at a time."""
        full_rows, remainder = self.m // BLOCK * BLOCK, self.m % BLOCK
        if self.forward:
            with self.f.loop(0, full_rows, BLOCK) as loop, self.e.scope():
                self.block(loop.index, BLOCK, self.f.constant(I64, 0), loop.index)
            if remainder:
                self.block(
                    self.f.constant(I64, full_rows),
                    remainder,
                    self.f.constant(I64, 0),
                    self.f.constant(I64, full_rows),
                )
            return
        last = self.f.constant(I64, self.m)
        with self.f.loop(0, full_rows, BLOCK) as loop, self.e.scope():
            end = last - loop.index
            self.block(end - BLOCK, BLOCK, end, last)
        if remainder:
            self.block(self.f.constant(I64, 0), remainder, self.f.constant(I64, remainder), last)

    def block(self, start: Value, size: int, low: Value, high: Value) -> None:
        """Emit the solution for the few unknowns start <= k < start + size, unrolled.

        The other unknowns of their equations, those in low <= k < high, are solved already.
        """
        rows = [start + k if k else start for k in range(size)]
        begun: list[Element] = [self.e.load(self.b, self.place(row)) for row in rows]
        flat = [self.e.wide(part) for element in begun for part in parts(element)]
        with self.f.loop(low, high, 1, flat) as loop, self.e.scope():
            totals = unflatten(loop.values, begun)
            x = self.known(loop.index)
            totals = [
                minus_product(self.e, total, self.coefficient(row, loop.index), x)
                for total, row in zip(totals, rows, strict=True)
            ]
            loop.next(*(self.e.wide(part) for element in totals for part in parts(element)))
        totals = unflatten(loop.values, begun)
        order = range(size) if self.forward else range(size - 1, -1, -1)
        solved: list[int] = []
        for k in order:
            for j in solved:
                totals[k] = minus_product(self.e, totals[k], self.coefficient(rows[k], rows[j]), totals[j])
            if not self.operation.unit_diagonal:
                totals[k] = quotient(self.e, totals[k], self.coefficient(rows[k], rows[k]))
            solved.append(k)
        # in ascending order, in which LLVM can keep a small array in registers
        for row, total in zip(rows, totals, strict=True):
            self.found(row, total)
