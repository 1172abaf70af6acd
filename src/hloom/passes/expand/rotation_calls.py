"""rotation-calls: the call of XLA's partitioner that rotates an array along a dimension.

``_SPMDInternalOp_RotateRight`` with ``dimension=D,amount=N`` has element i - N, modulo the extent, at i. The
partitioner makes such calls of concatenated slices, as ``jnp.roll`` writes them, since their tiles need one
halo; those that stay are written out as slices again.
"""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import ROTATE_RIGHT, CustomCall, rotation_of
from hloom.operations.movement import Concatenate, Rotation, range_slice
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


def rotation_call(i: HloInstruction, rotation: Rotation) -> HloInstruction:
    """Replace an instruction by the custom call that rotates an array, and return the call.

    The call gets the annotations of the instruction.
    """
    x, d, start = rotation
    call = Writer(i).op(
        CustomCall(custom_call_target=ROTATE_RIGHT, custom_call_has_side_effect=False), x, shape=i.shape
    )
    call.backend_config = f"dimension={d},amount={x.shape.dimensions[d] - start}"
    call.sharding, call.frontend_attributes = i.sharding, i.frontend_attributes
    Writer(i).replace(call)
    return call


def rotate_left(w: Writer, x: HloInstruction, d: int, start: int) -> HloInstruction:
    """Add the rotation of an array along dimension ``d``: elements from ``start`` on, then those before."""
    ranges = (start, x.shape.dimensions[d]), (0, start)
    return w.op(Concatenate(dimensions=(d,)), *(w.op(range_slice(x, d, *bounds), x) for bounds in ranges))
