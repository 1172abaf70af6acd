"""Static form of programs with dynamic sizes: padded arrays with explicit actual sizes.

Every array of dynamic size becomes an array of its bounds, beside the actual sizes. Elements beyond the
actual sizes are padding of arbitrary value; where an operation would read it, it is first replaced by a
neutral value. Operations without a rule (`hloom.passes.expand.dynamic_rules`) are evaluated by the host on
arrays of their actual sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, Protocol, TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import And
from hloom.operations.asynchronous import AsyncStart
from hloom.operations.comparison import Clamp, Select
from hloom.operations.control_flow import Conditional, While
from hloom.operations.custom_call import CustomCall
from hloom.operations.structure import (
    AddDependency,
    Domain,
    GetTupleElement,
    Iota,
    OptimizationBarrier,
    Parameter,
    Tuple,
)
from hloom.passes.expand.dynamic_form import HOST_TARGET, static_form
from hloom.passes.writing import Body, Inserter
from hloom.records import dataclass
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape


@dataclass(slots=True)
class Sized:
    """An array (or a token) with the actual sizes of its dynamic dimensions, s32 scalars."""

    array: HloInstruction
    sizes: dict[int, HloInstruction] = field(default_factory=dict[int, HloInstruction])


Carried: TypeAlias = "Sized | list[Carried]"
Rule: TypeAlias = "Callable[[DynamicWriter, HloInstruction, list[Sized]], Carried | None]"
RULES: Final[dict[str, Rule]] = {}
"""Rules by opcode; a rule returns None to leave an instruction to the host."""


class Computations(Protocol):
    """The computations of a module that is rewritten."""

    module: HloModule

    def computation(self, old: HloComputation, result: Shape) -> HloComputation:
        """Return the static form of a computation of control flow, its result fitted to a shape."""
        ...


class DynamicWriter(Inserter):
    """Writes the static form of one computation."""

    def __init__(self, owner: Computations, old: HloComputation, new: HloComputation, result: Shape) -> None:
        self.owner, self.old, self.root_shape = owner, old, result
        self.computation, self.module = new, owner.module
        self.values: dict[HloInstruction, Carried] = {}

    def run(self) -> None:
        """Add the static form of every instruction and set the root."""
        copies: dict[HloInstruction, HloInstruction] = {}
        for i in self.old.post_order():
            self.metadata = i.metadata
            count = len(self.computation)
            self.values[i] = self.instruction(i)
            written = list(self.computation)[count:]
            if written:
                copies[i] = written[-1]
                for predecessor in i.control_predecessors:
                    if predecessor in copies:
                        copies[predecessor].add_control_dependency_to(written[-1])
        self.computation.root = self.packed(self.fitted(self.values[self.old.root], self.root_shape))

    # -- the two forms of a value

    def packed(self, value: Carried) -> HloInstruction:
        """Return a value as one instruction of the static form."""
        if isinstance(value, list):
            return self.op(Tuple(), *map(self.packed, value))
        if not value.sizes:
            return value.array
        return self.op(Tuple(), value.array, *(value.sizes[d] for d in sorted(value.sizes)))

    def unpacked(self, i: HloInstruction, shape: Shape) -> Carried:
        """Return the parts of an instruction of the static form of a shape."""
        if shape.is_tuple:
            parts = enumerate(shape.tuple_shapes)
            return [self.unpacked(self.op(GetTupleElement(index=n), i), s) for n, s in parts]
        if not shape.is_array or not shape.is_dynamic:
            return Sized(i)
        dynamic = [d for d, flag in enumerate(shape.dynamic_dimensions) if flag]
        array = self.op(GetTupleElement(index=0), i)
        sizes = {d: self.op(GetTupleElement(index=n + 1), i) for n, d in enumerate(dynamic)}
        return Sized(array, sizes)

    def fitted(self, value: Carried, shape: Shape) -> Carried:
        """Return a value with sizes for exactly the dynamic dimensions of a shape.

        A dimension that is static in the value but dynamic in the shape gets its bound as the size.
        """
        if isinstance(value, list):
            return [self.fitted(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True)]
        if not shape.is_array:
            return value
        flags = enumerate(shape.dynamic_dimensions)
        return Sized(value.array, {d: self.size(value, d) for d, flag in flags if flag})

    # -- instructions

    def instruction(self, i: HloInstruction) -> Carried:
        """Return the static form of an instruction."""
        operands = [self.values[o] for o in i.operands]
        if isinstance(i.operation, Tuple):
            return self.fitted(operands, i.shape)
        if isinstance(i.operation, GetTupleElement):
            (operand,) = operands
            assert isinstance(operand, list)
            return self.fitted(operand[i.operation.index], i.shape)
        if isinstance(i.operation, (OptimizationBarrier, AddDependency, Domain)):
            operands = [self.fitted(operands[0], i.shape), *operands[1:]]
            operand = self.copy(i, [self.packed(o) for o in operands], static_form(i.shape))
            return self.unpacked(operand, i.shape)
        if isinstance(i.operation, Parameter):
            return self.unpacked(self.copy(i, [], static_form(i.shape)), i.shape)
        if i.operation.calls_program and not isinstance(i.operation, AsyncStart):
            called: list[HloComputation] = []
            for computation in i.called_computations:
                condition = isinstance(i.operation, While) and computation.root.shape.is_scalar
                result = computation.root.shape if condition else i.shape
                called.append(self.owner.computation(computation, result))
            # A conditional passes one operand to each branch, after the branch index; others pass all.
            shapes = (
                [i.operands[0].shape, *(c.parameters[0].shape for c in i.called_computations)]
                if isinstance(i.operation, Conditional)
                else [p.shape for p in i.called_computations[0].parameters]
            )
            fitted = [self.fitted(o, shape) for o, shape in zip(operands, shapes, strict=True)]
            packed = self.copy(i, [self.packed(o) for o in fitted], static_form(i.shape), called)
            return self.unpacked(packed, i.shape)
        if not i.shape.is_dynamic and not any(o.shape.is_dynamic for o in i.operands):
            return self.unpacked(self.copy(i, [self.packed(o) for o in operands], i.shape), i.shape)
        rule = RULES.get("elementwise" if i.operation.elementwise else i.opcode)
        flat = [o for o in operands if isinstance(o, Sized)]
        rewritten = rule(self, i, flat) if rule is not None and len(flat) == len(operands) else None
        return rewritten if rewritten is not None else self.by_host(i, operands)

    def on_bounds(self, i: HloInstruction, operands: Sequence[HloInstruction]) -> HloInstruction:
        """Apply the operation to the padded arrays."""
        return self.copy(i, operands, i.shape.to_static().without_layout())

    def by_host(self, i: HloInstruction, operands: Sequence[Carried]) -> Carried:
        """Add a host call that evaluates the instruction on arrays of their actual sizes."""
        body = Body(self.module, f"{i.name}_computation")
        parameters = [body.parameter(o.shape, "p") for o in i.operands]
        body.computation.add(i.clone(operands=parameters), root=True)
        call = self.op(
            CustomCall(custom_call_target=HOST_TARGET, custom_call_has_side_effect=i.has_side_effect),
            *map(self.packed, operands),
            shape=static_form(i.shape),
            computations=[body.computation],
        )
        return self.unpacked(call, i.shape)

    # -- sizes

    def number(self, value: int) -> HloInstruction:
        """Return a known size as a constant."""
        return self.scalar(value, S32)

    def size(self, value: Sized, dimension: int) -> HloInstruction:
        """Return the actual size of a dimension."""
        extent = value.sizes.get(dimension)
        return extent if extent is not None else self.number(value.array.shape.dimensions[dimension])

    def carried_sizes(
        self, i: HloInstruction, operands: Sequence[Sized], *, static_fits: bool = False
    ) -> dict[int, HloInstruction] | None:
        """Return the sizes of result dimensions that operands have too, by the operation's sharding rule.

        None if these dimensions differ in size; ``static_fits`` lets static ones be longer.
        """
        sizes: dict[int, HloInstruction] = {}
        for factor in i.operation.sharding_rule(i, [o.shape for o in i.operands]):
            if factor.kind == "plain" and factor.result is not None:
                extents = [operands[n].sizes.get(d) for n, d in factor.operands.items()]
                dynamic = [size for size in extents if size is not None]
                if len(set(dynamic if static_fits else extents)) > 1:
                    return None
                if dynamic:
                    sizes[factor.result] = dynamic[0]
        return sizes

    def limited(self, size: HloInstruction, low: int, high: int) -> HloInstruction:
        """Clamp a size between two numbers."""
        return self.op(Clamp(), self.number(low), size, self.number(high))

    def result(self, i: HloInstruction, array: HloInstruction, sizes: dict[int, HloInstruction]) -> Sized:
        """Return an array with sizes for the dimensions that are dynamic in the instruction's shape."""
        flags = i.shape.dynamic_dimensions
        return Sized(
            array,
            {d: sizes.get(d) or self.number(i.shape.dimensions[d]) for d, flag in enumerate(flags) if flag},
        )

    def inside(self, value: Sized, dimensions: Sequence[int]) -> HloInstruction | None:
        """Return a mask of the indices below the actual sizes; None if the dimensions are static."""
        shape = Shape(S32, value.array.shape.dimensions)
        mask: HloInstruction | None = None
        for d in dimensions:
            if d in value.sizes:
                position = self.op(Iota(iota_dimension=d), shape=shape)
                here = self.compare(position, "LT", self.broadcast(value.sizes[d], shape.dimensions))
                mask = here if mask is None else self.op(And(), mask, here)
        return mask

    def masked(self, value: Sized, fill: HloInstruction, dimensions: Sequence[int]) -> HloInstruction:
        """Replace the padding along some dimensions by a scalar."""
        mask = self.inside(value, dimensions)
        if mask is None:
            return value.array
        return self.op(Select(), mask, value.array, self.broadcast(fill, value.array.shape.dimensions))

    def zero(self, value: Sized) -> HloInstruction:
        """Return a zero of the array's type."""
        return self.scalar(0, value.array.shape.element_type)

    def agreed(self, pairs: Sequence[tuple[Sized, int]]) -> HloInstruction | None:
        """Return the common size of several dimensions; None if they are not the same instruction."""
        sizes = list(dict.fromkeys(v.sizes.get(d) for v, d in pairs))
        return sizes[0] if len(sizes) == 1 else None


def padding(*opcodes: str) -> Callable[[Rule], Rule]:
    """Register the rule of some opcodes."""

    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            RULES[opcode] = function
        return function

    return register
