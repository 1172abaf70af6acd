"""Creation of instructions from operations, with inferred shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata
from hloom.ir.module import HloModule
from hloom.ir.operation import Array, Operation
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add
from hloom.operations.comparison import Compare
from hloom.operations.conversion import Convert
from hloom.operations.movement import Broadcast, Pad, Slice
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Parameter
from hloom.shape.element_type import PRED, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape


class Inserter:
    """A builder that adds instructions to the computation of an instruction.

    Attributes:
        computation, module: the computation and its module.
        metadata: the metadata of the instruction, which new instructions get.
    """

    def __init__(self, source: HloInstruction) -> None:
        assert source.parent is not None and source.parent.module is not None
        self.metadata = source.metadata
        self.computation: HloComputation = source.parent
        self.module: HloModule = source.parent.module

    def op(
        self,
        operation: Operation,
        *operands: HloInstruction,
        shape: Shape | None = None,
        computations: Sequence[HloComputation] = (),
    ) -> HloInstruction:
        """Add an instruction; infer its shape from the operands unless it is stated."""
        instruction = HloInstruction(
            self.module.unique_name(operation.opcode),
            operation,
            shape or Shape.token(),
            operands,
            computations,
        )
        if shape is None:
            instruction.shape = instruction.infer_shape()
        instruction.metadata = self.metadata
        return self.computation.add(instruction)

    def copy(
        self,
        i: HloInstruction,
        operands: Sequence[HloInstruction] | None = None,
        shape: Shape | None = None,
        computations: Sequence[HloComputation] | None = None,
    ) -> HloInstruction:
        """Add a copy of an instruction; operands, shape and called computations may be replaced."""
        name = self.module.unique_name(i.name)
        copy = i.clone(name, operands=operands, shape=shape, called_computations=computations)
        return self.computation.add(copy)

    # -- frequent instructions

    def scalar(self, value: complex | Array, element_type: ElementType) -> HloInstruction:
        """Add a scalar constant."""
        with np.errstate(all="ignore"):
            literal = Literal(np.asarray(value).astype(element_type.numpy_dtype), Shape(element_type))
        return self.op(Constant(literal=literal), shape=literal.shape)

    def full(self, value: complex | Array, shape: Shape) -> HloInstruction:
        """Add an array whose elements all have one value."""
        return self.broadcast(self.scalar(value, shape.element_type), shape.dimensions)

    def broadcast(
        self, x: HloInstruction, dimensions: Sequence[int], into: Sequence[int] = ()
    ) -> HloInstruction:
        """Broadcast ``x``; its dimension n becomes dimension ``into[n]``. Return ``x`` if nothing changes."""
        if x.shape.dimensions == tuple(dimensions) and tuple(into) == tuple(range(x.shape.rank)):
            return x
        shape = Shape(x.shape.element_type, tuple(dimensions))
        return self.op(Broadcast(dimensions=tuple(into)), x, shape=shape)

    def convert(self, x: HloInstruction, element_type: ElementType) -> HloInstruction:
        """Convert an array to an element type; return it unchanged if it has that type."""
        if x.shape.element_type is element_type:
            return x
        return self.op(Convert(), x, shape=Shape(element_type, x.shape.dimensions))

    def reshape(self, x: HloInstruction, dimensions: Sequence[int]) -> HloInstruction:
        """Reshape an array; return it unchanged if it has these dimensions."""
        while isinstance(x.operation, Reshape) and x.operands[0].shape.is_static:
            x = x.operands[0]
        if x.shape.dimensions == tuple(dimensions):
            return x
        return self.op(Reshape(), x, shape=Shape(x.shape.element_type, tuple(dimensions)))

    def resize(self, x: HloInstruction, sizes: Sequence[int], fill: complex | Array = 0) -> HloInstruction:
        """Cut an array, or extend it with ``fill``, at the ends of its dimensions up to ``sizes``."""
        overlap = tuple(map(min, x.shape.dimensions, sizes))
        if overlap != x.shape.dimensions:
            x = self.op(Slice(slice=tuple(SliceDimension(0, size) for size in overlap)), x)
        if overlap == tuple(sizes):
            return x
        added = (PaddingDimension(0, size - n) for n, size in zip(overlap, sizes, strict=True))
        return self.op(Pad(padding=tuple(added)), x, self.scalar(fill, x.shape.element_type))

    def compare(self, a: HloInstruction, direction: str, b: HloInstruction) -> HloInstruction:
        """Add an elementwise comparison in a direction: ``EQ``, ``LT`` ..."""
        return self.op(Compare(direction=direction), a, b, shape=Shape(PRED, a.shape.dimensions))

    def sum(self, x: HloInstruction, dimensions: Sequence[int]) -> HloInstruction:
        """Add the sum of an array along some dimensions."""
        kind = x.shape.element_type
        return self.op(
            Reduce(dimensions=tuple(dimensions)),
            x,
            self.scalar(0, kind),
            computations=[self.combiner(Add(), kind)],
        )

    def combiner(self, operation: Operation, element_type: ElementType) -> HloComputation:
        """Add a computation that applies an operation to two scalars."""
        body = Body(self.module, operation.opcode)
        x, y = (body.parameter(Shape(element_type), name) for name in ("x", "y"))
        body.computation.root = body.op(operation, x, y, shape=Shape(element_type))
        return body.computation


class Writer(Inserter):
    """A builder that adds instructions in place of an instruction, the source."""

    def __init__(self, source: HloInstruction) -> None:
        super().__init__(source)
        self.source = source

    def like(self, operation: Operation, *operands: HloInstruction) -> HloInstruction:
        """Add an operation with the source's element type and configuration."""
        new = self.op(operation, *operands)
        new.shape = new.shape.with_element_type(self.source.shape.element_type)
        new.backend_config = self.source.backend_config
        return new

    def replace(self, new: HloInstruction) -> None:
        """Replace all uses of the source by ``new`` and remove it."""
        old = self.source
        old.hand_over_control_dependencies(new)
        old.replace_all_uses_with(new)
        self.computation.remove(old)


def copy_into(computation: HloComputation, value: HloInstruction) -> HloInstruction:
    """Copy an instruction, with all from which it is computed, into another computation."""
    assert computation.module is not None
    name = computation.module.unique_name(value.name)
    copy = value.clone(name, operands=[copy_into(computation, o) for o in value.operands])
    copy.sharding = None
    return computation.add(copy)


class Body(Inserter):
    """A builder of a new computation of a module."""

    def __init__(self, module: HloModule, name: str, *, entry: bool = False) -> None:
        self.module = module
        self.computation = module.add(HloComputation(module.unique_name(name)), entry=entry)
        self.metadata: OpMetadata | None = None
        self.count = 0

    def parameter(self, shape: Shape, name: str = "parameter") -> HloInstruction:
        """Add the next parameter."""
        operation = Parameter(parameter_number=self.count)
        self.count += 1
        return self.computation.add(HloInstruction(self.module.unique_name(name), operation, shape))
