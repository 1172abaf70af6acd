"""rotation-calls: the call of XLA's partitioner that rotates an array along a dimension.

``_SPMDInternalOp_RotateRight`` with ``dimension=D,amount=N`` has element i - N, modulo the extent, at i. The
partitioner makes such calls of concatenated slices, as ``jnp.roll`` writes them, since their tiles need one
halo; those that stay are written out as slices again.
"""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.custom_call import ROTATE_RIGHT, CustomCall, rotation_of
from hloom.operations.movement import Concatenate, Slice
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer


class RotationCalls(OpExpander, name="rotation-calls", of=CustomCall):
    """``custom-call(x)`` of the target → ``concatenate(slice(x), slice(x))``. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        rotation = rotation_of(i)
        if rotation is None:
            return None
        d, amount = rotation
        (x,) = i.operands
        extent = x.shape.dimensions[d]
        rotation = rotate_left(w, x, d, extent - amount % extent if extent else 0)
        rotation.shape, rotation.sharding = i.shape, i.sharding
        return rotation


def rotated(i: HloInstruction) -> tuple[HloInstruction, int, int] | None:
    """Return the array that a concatenation rotates, the dimension, and by how much; None if it does not."""
    if not isinstance(i.operation, Concatenate) or len(i.operands) != 2:
        return None
    (d,) = i.operation.dimensions
    first, second = i.operands
    if not isinstance(first.operation, Slice) or not isinstance(second.operation, Slice):
        return None
    (x,) = first.operands
    start = first.operation.slice[d].start
    behind = _slice(x, d, start, x.shape.dimensions[d])
    if second.operands[0] is not x or (first.operation, second.operation) != (behind, _slice(x, d, 0, start)):
        return None
    return x, d, x.shape.dimensions[d] - start


def rotation_call(i: HloInstruction, x: HloInstruction, d: int, amount: int) -> HloInstruction:
    """Write the call that rotates an array, in place of an instruction whose annotations it takes."""
    call = Writer(i).op(
        CustomCall(custom_call_target=ROTATE_RIGHT, custom_call_has_side_effect=False), x, shape=i.shape
    )
    call.backend_config = f"dimension={d},amount={amount}"
    call.sharding, call.frontend_attributes = i.sharding, i.frontend_attributes
    Writer(i).replace(call)
    return call


def _slice(x: HloInstruction, d: int, start: int, limit: int) -> Slice:
    """Return the slice of a range of one dimension."""
    ranges = [SliceDimension(0, extent) for extent in x.shape.dimensions]
    ranges[d] = SliceDimension(start, limit)
    return Slice(slice=tuple(ranges))


def rotate_left(w: Writer, x: HloInstruction, d: int, start: int) -> HloInstruction:
    """Concatenate the elements of a dimension from ``start`` with those before it."""
    ranges = (start, x.shape.dimensions[d]), (0, start)
    return w.op(Concatenate(dimensions=(d,)), *(w.op(_slice(x, d, *bounds), x) for bounds in ranges))
