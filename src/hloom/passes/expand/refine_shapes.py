"""refine-shapes: specialize a program of unbounded sizes, ``f32[?]``, for arguments of known sizes.

Shapes are inferred from the arguments, instruction by instruction. A computation called with several shapes
is cloned for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.control_flow import Conditional, Fusion
from hloom.operations.conversion import BitcastConvert, Convert, StochasticConvert
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Parameter, parameter_number
from hloom.shape.shape import Shape

Rule: TypeAlias = Callable[[HloInstruction, HloInstruction], Shape]
_UNKNOWN: Final = Shape.UNBOUNDED


def is_unbounded(module: HloModule) -> bool:
    """Return whether any value of a program has an unbounded size."""
    return any(i.shape.is_unbounded for i in module.instructions())


def refined_module(module: HloModule, arguments: Sequence[Shape]) -> HloModule:
    """Return a copy of a program, specialized for arguments of given shapes, without unbounded sizes.

    Raises HloError (``refine-shapes.unbounded``) for an instruction whose size does not follow from the
    shapes of the arguments.
    """
    copy = clone_module(module)
    refinement = _Refinement(copy)
    old = list(copy.computations)
    entry = refinement.computation(copy.entry, tuple(arguments))
    for computation in old:
        copy.remove(computation)
    copy.remove(entry)
    copy.add(entry, entry=True)
    copy.config.entry_layout = None
    return copy


class _Refinement:
    """The computations specialized so far, by the shapes of their parameters."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.written: dict[tuple[HloComputation, tuple[Shape, ...]], HloComputation] = {}

    def computation(self, old: HloComputation, given: tuple[Shape, ...]) -> HloComputation:
        """Return a computation specialized for parameter shapes."""
        if (old, given) in self.written:
            return self.written[old, given]
        new = self.module.add(HloComputation(self.module.unique_name(old.name)))
        new.execution_thread = old.execution_thread
        self.written[old, given] = new
        copies: dict[HloInstruction, HloInstruction] = {}
        for i in old.post_order():
            copy = copies[i] = self.instruction(i, [copies[o] for o in i.operands], given)
            new.add(copy)
            for predecessor in i.control_predecessors:
                copies[predecessor].add_control_dependency_to(copy)
        new.root = copies[old.root]
        return new

    def instruction(
        self, i: HloInstruction, operands: list[HloInstruction], given: tuple[Shape, ...]
    ) -> HloInstruction:
        """Copy an instruction with refined operands."""
        called = [
            self.computation(c, _parameters(i, n, operands)) for n, c in enumerate(i.called_computations)
        ]
        name = self.module.unique_name(i.name)
        clone = i.clone(name, operands=operands, called_computations=called)
        if isinstance(i.operation, Parameter):
            clone.shape = given[parameter_number(i)]
        elif i.shape.is_unbounded:
            clone.shape = _completed(i.shape, _RULES.get(type(i.operation), _inferred)(i, clone))
        if clone.shape.is_unbounded:
            message = f"the size of {i.shape} does not follow from those of the arguments"
            raise HloError(message, rule="refine-shapes.unbounded", instruction=i.name)
        return clone


def _parameters(i: HloInstruction, number: int, operands: Sequence[HloInstruction]) -> tuple[Shape, ...]:
    """Return the parameter shapes of a called computation: those of the operands passed to it, if any."""
    shapes = tuple(o.shape for o in operands)
    if isinstance(i.operation, Conditional):
        return (shapes[1 + number],)
    if i.operation.calls_program or isinstance(i.operation, Fusion):
        return shapes
    return tuple(p.shape for p in i.called_computations[number].parameters)


def _completed(stated: Shape, known: Shape) -> Shape:
    """Return the stated shape, with unbounded sizes replaced by the known ones."""
    if stated.is_tuple:
        return Shape.tuple_(map(_completed, stated.tuple_shapes, known.tuple_shapes))
    if not stated.is_unbounded or known.rank != stated.rank:
        return stated
    flags = zip(stated.dimensions, stated.dynamic_dimensions, known.dynamic_dimensions, strict=True)
    return stated.with_dimensions(
        [k if s == _UNKNOWN else s for s, k in zip(stated.dimensions, known.dimensions, strict=True)],
        [k if s == _UNKNOWN else flag for s, flag, k in flags],
    )


# -- what is known about a shape


def _inferred(i: HloInstruction, made: HloInstruction) -> Shape:
    return made.infer_shape() if made.operation.infers else made.shape


def _same(i: HloInstruction, made: HloInstruction) -> Shape:
    shape = made.operands[0].shape
    return shape if shape.rank == made.shape.rank else made.shape


def _broadcast(i: HloInstruction, made: HloInstruction) -> Shape:
    (operand,) = (o.shape for o in made.operands)
    sizes, flags = list(i.shape.dimensions), list(i.shape.dynamic_dimensions)
    for d, result_dimension in enumerate(operation_of(i, Broadcast).dimensions):
        sizes[result_dimension], flags[result_dimension] = (
            operand.dimensions[d],
            operand.dynamic_dimensions[d],
        )
    return i.shape.with_dimensions(sizes, [f or n == _UNKNOWN for f, n in zip(flags, sizes, strict=True)])


def _reshape(i: HloInstruction, made: HloInstruction) -> Shape:
    """Infer a single unbounded size from the element count."""
    (operand,) = (o.shape for o in made.operands)
    open_ = [d for d, size in enumerate(i.shape.dimensions) if size == _UNKNOWN]
    if len(open_) != 1 or operand.is_dynamic:
        return i.shape
    sizes = list(i.shape.dimensions)
    others = math.prod(size for size in sizes if size != _UNKNOWN)
    sizes[open_[0]] = operand.element_count // others if others else 0
    flags = [flag and d not in open_ for d, flag in enumerate(i.shape.dynamic_dimensions)]
    return i.shape.with_dimensions(sizes, flags)


def _fusion(i: HloInstruction, made: HloInstruction) -> Shape:
    return made.called_computations[0].root.shape


_RULES: Final[dict[type[Operation], Rule]] = {
    **dict.fromkeys((Convert, StochasticConvert, BitcastConvert), _same),
    Broadcast: _broadcast,
    Reshape: _reshape,
    Fusion: _fusion,
}
