"""Properties of single instructions: the operation by class, the value of uniform constants."""

from __future__ import annotations

from typing import TypeVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation
from hloom.operations.gather_scatter import Gather
from hloom.operations.structure import Constant, GetTupleElement

T = TypeVar("T", bound=Operation)


def operation_of(i: HloInstruction, cls: type[T]) -> T:
    """Return the operation of an instruction that has the given class, typed as it."""
    operation = i.operation
    assert isinstance(operation, cls), f"{i.name} is {operation.opcode}, not {cls.__name__}"
    return operation


def splat(i: HloInstruction) -> Array | None:
    """Return the common value of all elements as a rank-0 array: of a scalar constant or its broadcasts."""
    while i.operation.scalar_identity and i.shape.is_array and _keeps_type(i):
        i = i.operands[0]
    if not isinstance(i.operation, Constant) or not i.shape.is_array or i.shape.element_count != 1:
        return None
    literal = i.operation.literal
    return None if literal.is_elided or literal.shape.is_dynamic else literal.array.reshape(())


def loads_single_elements(i: HloInstruction) -> bool:
    """Return whether an instruction is a gather whose adjacent elements come from separate addresses."""
    return isinstance(i.operation, Gather) and i.shape.rank - 1 not in i.operation.offset_dims


def used_results(i: HloInstruction) -> list[int]:
    """Return the numbers of the used results: the elements of a tuple, or 0 for any other shape."""
    if not i.shape.is_tuple:
        return [0]
    elements = {u.operation.index for u in i.users if isinstance(u.operation, GetTupleElement)}
    uses_all = i.is_root or any(not isinstance(u.operation, GetTupleElement) for u in i.users)
    return list(range(len(i.shape.tuple_shapes))) if uses_all else sorted(elements)


def _keeps_type(i: HloInstruction) -> bool:
    return i.shape.element_type is i.operands[0].shape.element_type
