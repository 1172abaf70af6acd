"""Element rule of ragged-dot: a dot whose right operand is selected by the group of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import nested_reduction
from hloom.codegen.elements import Elements, element_rule
from hloom.codegen.llvm import I64, Value
from hloom.codegen.rules.contraction import accumulator_type, converted, multiply_add
from hloom.codegen.types import Element, constant, round_to
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import RaggedDot


@element_rule("ragged-dot")
def _ragged_dot(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return _RaggedDot(e, instruction, indices).element()


class _RaggedDot:
    """Emitter of one element or vector; see `hloom.operations.contraction.RaggedDot` for the three kinds."""

    def __init__(self, e: Elements, instruction: HloInstruction, indices: Indices) -> None:
        self.e, self.f, self.i = e, e.function, instruction
        o = self.o = operation_of(instruction, RaggedDot)
        self.lhs, self.rhs, self.sizes = instruction.operands
        (self.ragged,) = o.lhs_ragged_dims
        self.contracting = self.ragged in o.lhs_contracting_dims
        groups = self.sizes.shape.dimensions[-1]
        self.groups = groups
        self.group = Index(0)
        if self.contracting:
            self.group, indices = indices[0], indices[1:]
        batch = len(o.lhs_batch_dims)
        lhs_free = [
            d for d in range(self.lhs.shape.rank) if d not in (*o.lhs_batch_dims, *o.lhs_contracting_dims)
        ]
        used = (*o.rhs_batch_dims, *o.rhs_contracting_dims, *o.rhs_group_dims)
        right = [d for d in range(self.rhs.shape.rank) if d not in used]
        self.terms = [Variable(self.lhs.shape.dimensions[d], "k") for d in o.lhs_contracting_dims]
        summed = [Index.of(v) for v in self.terms]
        self.of_lhs = dict(zip([*o.lhs_batch_dims, *lhs_free], indices[: batch + len(lhs_free)], strict=True))
        self.of_lhs.update(zip(o.lhs_contracting_dims, summed, strict=True))
        self.of_rhs = dict(zip(o.rhs_batch_dims, indices[:batch], strict=True))
        self.of_rhs.update(zip(right, indices[batch + len(lhs_free) :], strict=True))
        self.of_rhs.update(zip(o.rhs_contracting_dims, summed, strict=True))
        self.left = lhs_free

    def prefix(self) -> tuple[int, ...]:
        """Return the dimensions of the left operand on which group sizes depend."""
        if self.sizes.shape.rank == 1:
            return ()
        if self.ragged in self.o.lhs_batch_dims:
            return self.o.lhs_batch_dims[: self.o.lhs_batch_dims.index(self.ragged)]
        kin = self.o.lhs_contracting_dims if self.contracting else tuple(self.left)
        return (*self.o.lhs_batch_dims, *kin[: kin.index(self.ragged)])

    def sums(self, count: Callable[[Value, Value, Value], list[Value]], width: int) -> list[Value]:
        """Sum over the groups: ``count(number, size, first sum so far)`` returns the summands of a group."""
        e, f = self.e, self.f
        prefix = [self.of_lhs[d] for d in self.prefix()]
        zero = f.constant(I64, 0).splat(e.lanes)
        with f.loop(0, self.groups, 1, [zero] * width) as loop, e.scope():
            size = e.element(self.sizes, (*prefix, e.opaque(loop.index, self.groups)))
            assert isinstance(size, Value)
            signed = self.sizes.shape.element_type.is_signed
            wide = size if size.type.scalar is I64 else size.cast("sext" if signed else "zext", I64)
            added = count(loop.index.splat(e.lanes), e.wide(wide), loop.values[0])
            loop.next(*(old + new for old, new in zip(loop.values, added, strict=True)))
        return list(loop.values)

    def group_of_row(self) -> tuple[Value, Value]:
        """Return (group of the ragged row, whether it is in any group)."""
        e = self.e
        e.pin(self.of_lhs[self.ragged])
        row = e.wide(e.index_value(self.of_lhs[self.ragged]))

        def count(number: Value, size: Value, end: Value) -> list[Value]:
            return [size, (end + size).compare("sle", row).cast("zext", I64)]

        _, group = self.sums(count, 2)
        return group, group.compare("slt", self.groups)

    def limits(self) -> tuple[Value, Value]:
        """Return the first term of the result's group, and the one after its last."""
        self.e.pin(self.group)
        mine = self.e.wide(self.e.index_value(self.group))

        def count(number: Value, size: Value, first: Value) -> list[Value]:
            return [number.compare("slt", mine).select(size, 0), number.compare("sle", mine).select(size, 0)]

        start, end = self.sums(count, 2)
        return start, end

    def element(self) -> Element:
        """Emit the sum of products over the rows and terms that are in a group."""
        e, f = self.e, self.f
        kind = self.i.shape.element_type
        zero = constant(f, accumulator_type(kind), 0, e.lanes)
        if not self.groups:
            total = zero
        elif self.contracting:
            total = self.dot(zero, restricted=True)
        else:
            group, inside = self.group_of_row()
            if self.o.rhs_group_dims:
                clamped = f.intrinsic("umin", group, f.constant(group.type, self.groups - 1))
                self.of_rhs[self.o.rhs_group_dims[0]] = e.opaque(clamped, self.groups)
            total = e.choose(inside, self.dot(zero, restricted=False), zero)
        if isinstance(total, tuple) or accumulator_type(kind) is kind:
            return total
        return round_to(total, kind)

    def dot(self, zero: Element, *, restricted: bool) -> Element:
        """Emit the sum of products, which may be restricted to the terms of the result's group."""
        e = self.e
        by_term = not set(self.prefix()).isdisjoint(self.o.lhs_contracting_dims)
        limits = self.limits() if restricted and not by_term else None
        kind = accumulator_type(self.i.shape.element_type)
        lhs_index: Sequence[Index] = [self.of_lhs[d] for d in range(self.lhs.shape.rank)]
        right: Sequence[Index] = [self.of_rhs[d] for d in range(self.rhs.shape.rank)]

        def step(accumulators: list[Element]) -> list[Element]:
            a = converted(e.element(self.lhs, tuple(lhs_index)), self.lhs.shape.element_type, kind)
            b = converted(e.element(self.rhs, tuple(right)), self.rhs.shape.element_type, kind)
            total = multiply_add(e, kind, a, b, accumulators[0])
            if restricted:
                first, last = limits or self.limits()
                term = e.wide(e.index_value(self.of_lhs[self.ragged]))
                inside = term.compare("sge", first) & term.compare("slt", last)
                total = e.choose(inside, total, accumulators[0])
            return [total]

        return nested_reduction(e, self.terms, [zero], step)[0] if self.terms else step([zero])[0]
