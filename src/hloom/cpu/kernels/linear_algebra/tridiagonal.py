"""Solutions of tridiagonal systems: LAPACK's gtsv without its calls, in lanes.

Lanes are systems; if these are few, right-hand sides of one system. Each lane eliminates its lower diagonal
row by row. Where the element below the diagonal is larger than the
one on it, the lane exchanges the two rows by selections; the upper factor then has a second diagonal, which
is stored in place of the lower one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Final

from hloom.codegen.elements import Elements, View
from hloom.codegen.lane_algebra import (
    FailedSteps,
    Scratch,
    element,
    is_zero,
    minus_product,
    number,
    parts,
    pivot_size,
    quotient,
)
from hloom.codegen.llvm import I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel, lanes_text, loop_nest
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import LapackCall
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

ENOUGH: Final = 4
"""Number of systems, or of right-hand sides, from which lanes pay."""
STACK_BYTES: Final = 1 << 18
"""Bytes of stack for the systems of all lanes."""
TILE: Final = 8
"""Largest side of the squares that are transposed in registers."""


def solves_tridiagonal_systems(call: LapackCall) -> bool:
    """Return whether `emit_tridiagonal_solve` emits code for a LAPACK call, so that LAPACK is not needed."""
    if call.routine[1:] != "gtsv" or not call.batch or 0 in call.arrays[3].dimensions:
        return False
    return _side_by_side(call) >= ENOUGH and _lane_bytes(call) * ENOUGH <= STACK_BYTES


def emit_tridiagonal_solve(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the call of a kernel that solves the tridiagonal systems of a LAPACK call, without LAPACK."""
    kind = i.operands[0].shape.element_type
    pointers = [*map(program.pointer, i.operands), *(target.pointer for target in program.targets(i))]
    kernel = program.shared(lambda name: _kernel(program.module, name, kind, call, len(pointers)))
    program.call(i, kernel, pointers)


def _side_by_side(call: LapackCall) -> int:
    """Return the number of systems that lanes may have, or of right-hand sides if the systems are few."""
    return call.batch if call.batch >= ENOUGH else call.arrays[3].dimensions[1]


def _lane_bytes(call: LapackCall) -> int:
    lower, _, _, b = call.arrays[:4]
    return 3 * lower.bytes + (b if call.batch >= ENOUGH else lower).bytes


def _kernel(module: Module, name: str, kind: ElementType, call: LapackCall, count: int) -> LoopKernel:
    """Emit the kernel (operands..., results..., begin, end) that solves tridiagonal systems.

    It loops over systems, or over the right-hand sides of the only one.
    """
    f = module.function(name, [PTR] * count + [I64, I64])
    lanes, side_by_side = max(8, 64 // storage_bytes(kind)), _side_by_side(call)
    while lanes > ENOUGH and (lanes > side_by_side or _lane_bytes(call) * lanes > STACK_BYTES):
        lanes //= 2
    e, system = Elements(f, lanes, {}), Variable(call.batch, "b")
    variables = [system]
    if call.batch >= ENOUGH:
        solver: _Solver = _Systems(e, kind, call, system)
    else:
        column = Variable(side_by_side, "c")
        solver = _Columns(e, kind, call, system, column)
        variables = [system, column] if call.batch > 1 else [column]
    loop_nest(e, variables, solver.run, *f.parameters[-2:], repeats=True)
    f.finish()
    work = 16 * call.batch * sum(array.count for array in call.arrays[:4])
    form = f"{lanes_text(lanes)} across {'systems' if call.batch >= ENOUGH else 'columns'}"
    return LoopKernel(name, variables[0].extent, lanes if len(variables) == 1 else 1, work, form)


class _Solver(ABC):
    """Emits the solution of tridiagonal systems, one in each lane.

    Attributes:
        columns: the number of right-hand sides of each lane.
        lower, diagonal, upper: the diagonals, on the stack; row k has elements number k of all three.
        b: the right-hand sides, on the stack.
        failed: the row of each lane whose pivot is 0.
    """

    def __init__(self, e: Elements, kind: ElementType, call: LapackCall, columns: int) -> None:
        self.e, self.f, self.kind, self.columns = e, e.function, kind, columns
        self.rows, all_columns = call.arrays[3].dimensions
        sizes = [(self.rows,)] * 3
        views = [
            View(pointer, kind, (call.batch, *size))
            for pointer, size in zip(self.f.parameters, [*sizes, (self.rows, all_columns)] * 2, strict=False)
        ]
        self.operands, self.results = views[:4], views[4:]
        self.info = View(self.f.parameters[8], et.S32, (call.batch,))
        self.arrays = [Scratch(e, kind, size) for size in (*sizes, (self.rows, columns))]
        self.lower, self.diagonal, self.upper, self.b = self.arrays
        self.failed = FailedSteps(e)

    @abstractmethod
    def copy(self, view: View, array: Scratch, *, stores: bool) -> None:
        """Emit the copy of an operand's part of all lanes to the stack, or of a result's part back."""

    @abstractmethod
    def store_info(self) -> None:
        """Emit the stores of the rows at which systems failed."""

    def run(self) -> None:
        """Emit the loads of systems, elimination, substitution, and the stores of factors and solutions.

        A system with a pivot of 0 keeps what it has at that step.
        """
        f = self.f
        for view, array in zip(self.operands, self.arrays, strict=True):
            self.copy(view, array, stores=False)
        self.failed.clear()
        last = self.rows - 1
        with f.loop(0, max(last - 1, 0)) as loop, self.e.scope():
            self._eliminate(loop.index, has_row_after_next=True)
        if last:
            self._eliminate(f.constant(I64, last - 1), has_row_after_next=False)
        end = f.constant(I64, last)
        self.failed.note(is_zero(self.diagonal.get(end)), end)
        with f.loop(0, self.columns) as loop, self.e.scope():
            self._substitute(loop.index)
        for view, array in zip(self.results, self.arrays, strict=True):
            self.copy(view, array, stores=True)
        self.store_info()

    def _eliminate(self, k: Value, *, has_row_after_next: bool) -> None:
        """Emit the elimination of the element below row ``k`` of the diagonal."""
        below = k + 1
        pivot, low, high = self.diagonal.get(k), self.lower.get(below), self.upper.get(k)
        next_pivot = self.diagonal.get(below)
        keeps = pivot_size(self.e, pivot).compare("oge", pivot_size(self.e, low))
        self.failed.note(keeps & is_zero(pivot), k)
        active = self.failed.none
        divisor = _select(keeps, pivot, low)
        one = number(self.e, self.kind, 1)
        factor = quotient(self.e, _select(keeps, low, pivot), _select(active, divisor, one))
        above, rest = _select(keeps, high, next_pivot), _select(keeps, next_pivot, high)
        self._set(active, self.diagonal, _select(keeps, pivot, low), k)
        self._set(active, self.diagonal, minus_product(self.e, rest, factor, above), below)
        self._set(active, self.upper, above, k)
        if has_row_after_next:
            zero, after = number(self.e, self.kind, 0), self.upper.get(below)
            self._set(active, self.lower, _select(keeps, zero, after), below)
            filled = minus_product(self.e, zero, factor, after)
            self._set(active, self.upper, _select(keeps, after, filled), below)
        with self.f.loop(0, self.columns) as loop, self.e.scope():
            upper, lower = self.b.get(k, loop.index), self.b.get(below, loop.index)
            first, second = _select(keeps, upper, lower), _select(keeps, lower, upper)
            self._set(active, self.b, first, k, loop.index)
            self._set(active, self.b, minus_product(self.e, second, factor, first), below, loop.index)

    def _substitute(self, column: Value) -> None:
        """Emit the substitution from the last row upwards for a right-hand side."""
        f, active, zero = self.f, self.failed.none, number(self.e, self.kind, 0)
        count = len(parts(zero))
        end = f.constant(I64, self.rows - 1)
        x = quotient(self.e, self.b.get(end, column), self.diagonal.get(end))
        self._set(active, self.b, x, end, column)
        if self.rows == 1:
            return
        k = f.constant(I64, self.rows - 2)
        x_before = minus_product(self.e, self.b.get(k, column), self.upper.get(k), x)
        x_before = quotient(self.e, x_before, self.diagonal.get(k))
        self._set(active, self.b, x_before, k, column)
        with f.loop(0, self.rows - 2, 1, [*parts(x_before), *parts(x)]) as loop, self.e.scope():
            k = f.constant(I64, self.rows - 3) - loop.index
            first, second = element(loop.values[:count]), element(loop.values[count:])
            total = minus_product(self.e, self.b.get(k, column), self.upper.get(k), first)
            total = minus_product(self.e, total, self.lower.get(k + 1), second)
            total = quotient(self.e, total, self.diagonal.get(k))
            self._set(active, self.b, total, k, column)
            loop.next(*parts(total), *parts(first))

    def _set(self, active: Value, array: Scratch, value: Element, *index: Value) -> None:
        """Emit the store of an element in the lanes of the mask ``active``."""
        array.set(_select(active, value, array.get(*index)), *index)


class _Systems(_Solver):
    """Emits the solution of a system in each lane."""

    def __init__(self, e: Elements, kind: ElementType, call: LapackCall, system: Variable) -> None:
        super().__init__(e, kind, call, call.arrays[3].dimensions[1])
        self.system = system

    def copy(self, view: View, array: Scratch, *, stores: bool) -> None:
        """Emit the copy of an array as transposed squares."""
        f, lanes, system = self.f, self.e.lanes, self.system.value
        assert isinstance(system, Value)
        part = array.type.scalar
        count = math.prod(array.sizes) * array.count
        side = min(TILE, lanes, 1 << (count.bit_length() - 1))
        vector = part.vector(side)
        with f.loop(0, -(-count // side)) as squares, f.loop(0, lanes, side) as groups:
            first = f.intrinsic("smin", squares.index * side, f.constant(I64, count - side))
            of_systems = [
                f.offset(view.pointer, (system + groups.index + k) * count + first, part) for k in range(side)
            ]
            of_lanes = [
                f.offset(array.pointer, (first + k) * lanes + groups.index, part) for k in range(side)
            ]
            sources, targets = (of_lanes, of_systems) if stores else (of_systems, of_lanes)
            lines = [f.load(vector, address, align=part.size) for address in sources]
            for line, address in zip(transposed(lines), targets, strict=True):
                f.store(line, address, align=part.size)

    def store_info(self) -> None:
        """Emit the store of a number in each lane."""
        self.e.store(self.info, (Index.of(self.system),), self.failed.numbers)


class _Columns(_Solver):
    """Emits the solution of one system, for a right-hand side in each lane; all have the same factors."""

    def __init__(
        self, e: Elements, kind: ElementType, call: LapackCall, system: Variable, column: Variable
    ) -> None:
        super().__init__(e, kind, call, 1)
        self.system = Index.of(system) if call.batch > 1 else Index(0)
        self.column = Index.of(column)

    def copy(self, view: View, array: Scratch, *, stores: bool) -> None:
        """Emit the copy of right-hand sides, or of a diagonal from or to its only place."""
        is_diagonal, first = array is not self.b, self.f.constant(I64, 0)
        with self.f.loop(0, self.rows) as rows, self.e.scope():
            k = self.e.opaque(rows.index, self.rows)
            index = (self.system, k) if is_diagonal else (self.system, k, self.column)
            place = [rows.index] if is_diagonal else [rows.index, first]
            if not stores:
                array.set(self.e.load(view, index), *place)
            elif is_diagonal:
                self.e.store(view, index, _first_lane(array.get(*place)))
            else:
                self.e.store(view, index, array.get(*place))

    def store_info(self) -> None:
        """Emit the store of the only number."""
        self.e.store(self.info, (self.system,), _first_lane(self.failed.numbers))


def _first_lane(x: Element) -> Element:
    return element([part.extract(0) for part in parts(x)])


def _select(mask: Value, chosen: Element, other: Element) -> Element:
    return element([mask.select(a, b) for a, b in zip(parts(chosen), parts(other), strict=True)])
