"""The instructions of a kernel: what it reads, computes and writes.

Points are arrays of N x 3, images of height x width x 3. A pad, a slice or a rotation along N moves whole
points, as one along the N * 3 numbers does. Loops over the numbers run over whole vectors, while those over
the dimension of 3 do not fill one: such narrow dimensions are merged with their neighbour if every operation
of a kernel treats both as one.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.purity import is_free
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.traits import Family
from hloom.operations.control_flow import Fusion
from hloom.operations.structure import Parameter, Tuple
from hloom.records import dataclass
from hloom.shape.shape import Shape

NARROW: Final = 64
"""Number of elements from which a minor dimension is not narrow: most of a loop over it is whole vectors."""


@dataclass(frozen=True, slots=True)
class KernelParts:
    """The instructions of a kernel: of a fusion's computation, or a single operation.

    Attributes:
        inputs: the instructions that are read from memory.
        roots: the instructions that are written; a tuple-shaped one is repeated for each leaf.
        members: the computed instructions, operands first.
    """

    inputs: tuple[HloInstruction, ...]
    roots: tuple[HloInstruction, ...]
    members: tuple[HloInstruction, ...]

    @property
    def moves_elements(self) -> bool:
        """Whether a member moves elements other than by relabeling them, as pads and concatenations do."""
        return any(m.operation.family is Family.MOVEMENT and not is_free(m) for m in self.members)


def kernel_parts(i: HloInstruction) -> KernelParts:
    """Return the inputs, roots and members of a fusion, or of a single operation."""
    if not isinstance(i.operation, Fusion):
        inputs = tuple(o for o in dict.fromkeys(i.operands) if o.shape.is_array)
        return KernelParts(inputs, (i,) * _width(i), (i,))
    body = i.called_computations[0]
    members = tuple(m for m in body.post_order() if not isinstance(m.operation, Parameter))
    root = body.root
    roots = tuple(root.operands) if isinstance(root.operation, Tuple) else (root,) * _width(root)
    return KernelParts(tuple(p for p in body.parameters if p.shape.is_array), roots, members)


def _width(i: HloInstruction) -> int:
    return len(i.shape.tuple_shapes) if i.shape.is_tuple else 1


# -- narrow dimensions


def merge_narrow_dimensions(parts: KernelParts) -> KernelParts:
    """Return the parts of the same kernel, its narrow minor dimensions merged with the next outer one.

    Operations that only relabel or combine elements need no merged dimensions: their loops are merged by the
    strides of their accesses. Returns ``parts`` if no operation moves elements otherwise, or if one tells the
    dimensions apart. The instructions of the result are copies, and its inputs parameters.
    """
    moves = parts.moves_elements
    while moves:
        merged = _merged(parts)
        if merged is None:
            break
        parts = merged
    return parts


def _merged(parts: KernelParts) -> KernelParts | None:
    """Return the parts with the two minor dimensions of the results merged; None if they must stay apart."""
    shape = parts.roots[0].shape
    if not shape.is_array or shape.rank < 2 or 0 in shape.dimensions or shape.dimensions[-1] >= NARROW:
        return None
    if any(root.shape.dimensions != shape.dimensions for root in parts.roots):
        return None
    outer: dict[HloInstruction, int | None] = dict.fromkeys(parts.roots, shape.rank - 2)
    operations: dict[HloInstruction, Operation] = {}
    known = {*parts.inputs, *parts.members}
    for i in reversed(parts.members):
        d = outer.setdefault(i, None)
        merged = None if d is None else i.operation.merge_dimensions(i, d)
        if not i.shape.is_static or (d is not None and merged is None):
            return None
        operations[i] = i.operation if merged is None else merged.operation
        dimensions = [None] * len(i.operands) if merged is None else merged.outer
        for operand, dimension in zip(i.operands, dimensions, strict=True):
            if operand not in known or outer.setdefault(operand, dimension) != dimension:
                return None
    copies = {
        i: HloInstruction(i.name, Parameter(parameter_number=n), _without(i.shape, outer.get(i)))
        for n, i in enumerate(parts.inputs)
    }
    for i in parts.members:
        operands, shape = [copies[o] for o in i.operands], _without(i.shape, outer[i])
        copies[i] = i.clone(operands=operands, shape=shape, operation=operations[i])
        copies[i].annotations = i.annotations
    inputs, roots, members = (
        (copies[i] for i in each) for each in (parts.inputs, parts.roots, parts.members)
    )
    return KernelParts(tuple(inputs), tuple(roots), tuple(members))


def _without(shape: Shape, d: int | None) -> Shape:
    """Return a shape whose dimensions ``d`` and ``d`` + 1 are one; the same one if ``d`` is None."""
    if d is None:
        return shape
    sizes = shape.dimensions
    return Shape(shape.element_type, (*sizes[:d], math.prod(sizes[d : d + 2]), *sizes[d + 2 :]))
