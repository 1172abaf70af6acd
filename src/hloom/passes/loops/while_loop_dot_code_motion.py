"""while-loop-dot-code-motion: compute the dots of all iterations of a loop as one dot before or after it.

A loop over the rows of stacks (`analysis.stacks`) multiplies few rows by a matrix in each iteration, and
reads the whole matrix for them. One dot of the stack reads it once::

    while { y[t] = dot(x[t], w) }       →  y = dot(x, w); while { y[t] }
    while { s[t] = dot(v, w) }          →  while { t[t] = v }; s = dot(t, w)
    while { sum += dot(x[t]ᵀ, d) }      →  while { t[t] = d }; sum += dot(xᵀ, t)

The last one adds up the products of all iterations in another order, as the terms of a dot are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.stacks import StackRow, Stacks
from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import While
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Transpose
from hloom.operations.structure import GetTupleElement
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loop_invariant_code_motion import copy_out, invariants
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.rules.contraction import free_of, swapped_dot
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Inserter, Writer
from hloom.shape.shape import Shape


class WhileLoopDotCodeMotion(Pass, name="while-loop-dot-code-motion", of=While, needs={FLAT}):
    """``while (...) { y = dot(x[t], w) }`` → ``z = dot(x, w); while (...) { y = z[t] }``, and sums of dots.

    Attributes:
        most_rows: maximum number of rows of a dot that moves before or after the loop, and maximum number of
            terms of a dot whose results are added up; larger ones reuse what they read within an iteration.
        growth: the stacks that are added to a loop have at most this multiple of the bytes of its state.
    """

    most_rows: int = 64
    growth: float = 4.0

    def run(self, module: HloModule) -> bool:
        """Move dots out of every loop, inner ones first."""
        changed = False
        for loop in loops_of(module):
            count = trip_count(loop)
            if count is not None and count.iterations > 1:
                changed |= _Motion(self, loop, count).move()
        return changed


class MatrixProduct(NamedTuple):
    """A dot of rows and a loop-invariant matrix.

    Attributes:
        dot: the dot, without batch dimensions.
        side: operand number of the rows.
    """

    dot: HloInstruction
    side: int

    @property
    def rows(self) -> HloInstruction:
        """Return the operand that changes from iteration to iteration."""
        return self.dot.operands[self.side]

    @property
    def matrix(self) -> HloInstruction:
        """Return the loop-invariant operand."""
        return self.dot.operands[1 - self.side]

    @property
    def row_count(self) -> int:
        """Return the number of rows of one iteration."""
        free = free_of(self.dot, operation_of(self.dot, Dot), self.side)
        return math.prod(self.rows.shape.dimensions[d] for d in free)

    def of_stack(self, w: Inserter, stack: HloInstruction, matrix: HloInstruction) -> HloInstruction:
        """Return the dots of all rows of a stack, stacked, each with the rows' dimensions first."""
        dot = operation_of(self.dot, Dot)
        dot = swapped_dot(dot) if self.side else dot
        inner = tuple(d + 1 for d in dot.lhs_contracting_dims)
        return _typed(w.op(dot.replace(lhs_contracting_dims=inner), stack, matrix), self.dot)

    def reordered(self, w: Inserter, product: HloInstruction) -> HloInstruction:
        """Return products, which have the rows' dimensions first, with the dimensions in the dot's order.

        Stacked products keep the stack's dimension first.
        """
        if not self.side:
            return product
        outer = product.shape.rank - self.dot.shape.rank
        first = len(free_of(self.dot, operation_of(self.dot, Dot), self.side))
        dimensions = range(product.shape.rank)
        order = (*dimensions[:outer], *dimensions[outer + first :], *dimensions[outer : outer + first])
        return w.op(Transpose(dimensions=order), product)


def _typed(dot: HloInstruction, original: HloInstruction) -> HloInstruction:
    """Set the element type of a dot to that of another one, and return it."""
    dot.shape = dot.shape.with_element_type(original.shape.element_type)
    return dot


class _Motion:
    """The motion of dots out of one loop."""

    def __init__(self, options: WhileLoopDotCodeMotion, loop: TupleLoop, count: TripCount) -> None:
        self.most_rows = options.most_rows
        self.loop = loop
        self.count = count
        self.stacks = Stacks(loop, count)
        self.invariant = invariants(loop)
        self.room = int(options.growth * loop.instruction.shape.byte_size)
        """Bytes of stacks that may still be added."""
        self.copies: dict[HloInstruction, HloInstruction] = {}
        self.added: dict[tuple[HloInstruction, int], int] = {}
        """The state elements that stack values of the body, by value and step."""
        self.sunk: dict[int, Callable[[], HloInstruction]] = {}
        """Functions that add the value of an element after the loop, for elements that the loop drops."""

    def move(self) -> bool:
        """Move dots before and after the loop; return whether there were any."""
        changed = self.hoist_rows()
        for element in range(self.loop.count):
            if self.sink_sum(element) or self.sink_rows(element):
                changed = True
                unchanged = Writer(self.loop.body.root).op(GetTupleElement(index=element), self.loop.state)
                self.loop.body.root.replace_operand(element, unchanged)
        for element, value_after in self.sunk.items():
            value = value_after()
            for pick in picks(self.loop.instruction, element):
                pick.replace_all_uses_with(value)
        if changed:
            remove_dead(self.loop.body)
        return changed

    def product_of(self, i: HloInstruction) -> MatrixProduct | None:
        """Return an instruction as a dot of few rows and an invariant matrix; None for others."""
        if not _is_dot(i) or operation_of(i, Dot).lhs_batch_dims:
            return None
        varying = [side for side, o in enumerate(i.operands) if o not in self.invariant]
        if len(varying) != 1:
            return None
        product = MatrixProduct(i, varying[0])
        return product if product.row_count <= self.most_rows else None

    def matrix_outside(self, product: MatrixProduct) -> HloInstruction:
        """Return the matrix before the loop."""
        return copy_out(product.matrix, self.loop, self.copies)

    # -- dots of rows that the loop reads

    def hoist_rows(self) -> bool:
        """Hoist the dots of rows of invariant stacks; return whether there were any."""
        changed = False
        for i in self.loop.body.post_order():
            product = self.product_of(i)
            row = None if product is None else self.stacks.row_read(product.rows)
            if product is not None and row is not None and self.has_room_for([i]) and consume(f"%{i.name}"):
                self.hoist(product, row)
                changed = True
        return changed

    def hoist(self, product: MatrixProduct, row: StackRow) -> None:
        """Replace a dot by a row of the dot of the stack."""
        w = Writer(self.loop.instruction)
        stack = product.of_stack(w, self.loop.initial(row.element), self.matrix_outside(product))
        (inside,) = rebuild(self.loop, range(self.loop.count), [stack])
        w = Writer(product.dot)
        sizes = stack.shape.dimensions[1:]
        part = w.op(DynamicSlice(dynamic_slice_sizes=(1, *sizes)), inside, *_starts(w, inside, row.index))
        w.replace(product.reordered(w, w.reshape(part, sizes)))

    # -- dots that the loop writes

    def sink_rows(self, element: int) -> bool:
        """Sink a dot that is only written into a row of an element; return whether it is one."""
        written = self.stacks.row_written(element)
        product = None if written is None else self.product_of(written[0])
        if written is None or product is None or not _is_used_once(product.dot, self.loop.body.root):
            return False
        _, row = written
        if not self.has_room_for([product.rows], row.step) or not consume(f"%{product.dot.name}"):
            return False
        number = self.stack(product.rows, row)

        def value_after() -> HloInstruction:
            w = Writer(self.loop.instruction)
            rows = product.of_stack(w, self.after(number), self.matrix_outside(product))
            return product.reordered(w, rows)

        self.sunk[element] = value_after
        return True

    def sink_sum(self, element: int) -> bool:
        """Sink the dots that each iteration adds to an element; return whether it is such a sum."""
        following = self.loop.following[element]
        terms = _terms(following)
        if all(element_number(term, self.loop.state) != element for term in terms):
            return False
        before = self.stacks.used_once(element)
        if before is None or before is following or list(following.users) != [self.loop.body.root]:
            return False
        dots = [term for term in terms if term is not before]
        if len(dots) + 1 != len(terms) or not all(self.is_shallow_dot(dot) for dot in dots):
            return False
        factors = [o for dot in dots for o in dot.operands]
        rows = [row for o in factors if (row := self.stacks.row_read(o)) is not None]
        if not rows and abs(self.count.step) != 1:
            return False
        step = rows[0].step if rows else 1
        if not self.has_room_for(factors, step) or not consume(f"%{following.name}"):
            return False
        row = rows[0] if rows else self.row_of_counter()
        stacks = [(dot, [self.stack(o, row) for o in dot.operands]) for dot in dots]

        def value_after() -> HloInstruction:
            w = Writer(self.loop.instruction)
            total = self.loop.initial(element)
            for dot, numbers in stacks:
                product = w.op(_over_steps(operation_of(dot, Dot)), *map(self.after, numbers))
                total = w.op(Add(), total, _typed(product, dot))
            return total

        self.sunk[element] = value_after
        return True

    def is_shallow_dot(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a dot of varying operands that adds up few products."""
        if not _is_dot(i) or len(i.users) != 1 or not self.invariant.isdisjoint(i.operands):
            return False
        sizes = i.operands[0].shape.dimensions
        return math.prod(sizes[d] for d in operation_of(i, Dot).lhs_contracting_dims) <= self.most_rows

    # -- stacks

    def row_of_counter(self) -> StackRow:
        """Add the row number of the current iteration, in the order of the iterations, and return it."""
        w = Writer(self.loop.body.root)
        counter = w.op(GetTupleElement(index=self.count.element), self.loop.state)
        first = w.scalar(self.count.initial, counter.shape.element_type)
        difference = (counter, first) if self.count.step == 1 else (first, counter)
        return StackRow(self.count.element, w.op(Subtract(), *difference), 1)

    def is_stacked(self, value: HloInstruction, step: int) -> bool:
        """Return whether the loop already carries an array of a value's rows from all iterations."""
        row = self.stacks.row_read(value)
        return (value, step) in self.added or (row is not None and row.step == step)

    def has_room_for(self, values: Iterable[HloInstruction], step: int = 0) -> bool:
        """Return whether the stacks of values fit into the memory that may be added, and reserve it."""
        new = (v for v in dict.fromkeys(values) if not self.is_stacked(v, step))
        size = self.count.iterations * sum(v.shape.byte_size for v in new)
        if size > self.room:
            return False
        self.room -= size
        return True

    def stack(self, value: HloInstruction, order: StackRow) -> int:
        """Return the state element that collects a value from each iteration as a row.

        Add it if necessary.
        """
        row = self.stacks.row_read(value)
        if row is not None and row.step == order.step:
            return row.element
        if (value, order.step) not in self.added:
            sizes = value.shape.dimensions
            shape = Shape(value.shape.element_type, (self.count.iterations, *sizes))
            number = self.loop.count
            (inside,) = rebuild(self.loop, range(number), [Writer(self.loop.instruction).full(0, shape)])
            w = Writer(self.loop.body.root)
            part = w.reshape(value, (1, *sizes))
            update = w.op(DynamicUpdateSlice(), inside, part, *_starts(w, inside, order.index))
            self.loop.body.root.replace_operand(number, update)
            self.added[value, order.step] = number
        return self.added[value, order.step]

    def after(self, element: int) -> HloInstruction:
        """Return an element after the loop."""
        if self.loop.is_invariant(element):
            return self.loop.initial(element)
        return Writer(self.loop.instruction).op(GetTupleElement(index=element), self.loop.instruction)


def _is_dot(i: HloInstruction) -> bool:
    return isinstance(i.operation, Dot) and i.shape.is_static and not i.has_control_dependencies


def _terms(i: HloInstruction) -> list[HloInstruction]:
    """Return the terms of a sum, none of which is a sum that is used once."""
    terms: list[HloInstruction] = []
    waiting = [i]
    while waiting:
        term = waiting.pop()
        if isinstance(term.operation, Add) and len(term.users) == 1 and not term.has_control_dependencies:
            waiting.extend(reversed(term.operands))
        else:
            terms.append(term)
    return terms


def _over_steps(dot: Dot) -> Dot:
    """Return a dot of two stacks that sums the dots of their rows."""

    def after(dimensions: Sequence[int]) -> tuple[int, ...]:
        return tuple(d + 1 for d in dimensions)

    return dot.replace(
        lhs_batch_dims=after(dot.lhs_batch_dims),
        rhs_batch_dims=after(dot.rhs_batch_dims),
        lhs_contracting_dims=(0, *after(dot.lhs_contracting_dims)),
        rhs_contracting_dims=(0, *after(dot.rhs_contracting_dims)),
    )


def _is_used_once(i: HloInstruction, root: HloInstruction) -> bool:
    """Return whether each value on the chain of users from an instruction to ``root`` has only one user."""
    while i is not root:
        if len(i.users) != 1:
            return False
        (i,) = i.users
    return True


def _starts(w: Inserter, stack: HloInstruction, index: HloInstruction) -> list[HloInstruction]:
    """Return the start indices of row ``index`` of a stack."""
    return [index, *(w.scalar(0, index.shape.element_type) for _ in stack.shape.dimensions[1:])]
