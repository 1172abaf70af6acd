"""Windows as shifted arrays: what an element of the window, a tap, reads at all positions of the window.

Also what passes over reductions of windows ask first: the operation, and whether windows lie in the array.
"""

from __future__ import annotations

from hloom.analysis.values import combiner, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension, WindowDimension
from hloom.operations.convolution import under_tap


def neutral_combiner(i: HloInstruction) -> Operation | None:
    """Return the operation by which a static reduce-window combines real numbers from its neutral element.

    Returns None for other computations, initial values and types, and for numbers of less than a byte.
    """
    operation, kind = combiner(i), i.shape.element_type
    if operation is None or not all(x.shape.is_static for x in (i, *i.operands)):
        return None
    neutral = None if kind.is_complex or kind.bits < 8 else operation.neutral_element(kind)
    return None if neutral is None or number(i.operands[1]) != neutral else operation


def lies_inside(d: WindowDimension, size: int) -> bool:
    """Return whether most windows lie inside of an undilated base; those of cumulative sums do not."""
    return d.base_dilation == 1 and 2 * (d.dilated_size - 1) <= size


def tap_ranges(
    tap: int, d: WindowDimension, size: int, positions: int
) -> tuple[SliceDimension, PaddingDimension] | None:
    """Return what one tap reads along a dimension, as the slice of the base and the padding of the result.

    The padding counts the window positions at which the tap is outside of the base. Returns None if it is at
    all positions.

    Args:
        tap: the number of the element in the window.
        d: the window along the dimension, without base dilation.
        size: the extent of the base.
        positions: the extent of the result.
    """
    assert d.base_dilation == 1
    over, under = under_tap(tap, positions, d, size)
    if over.stop == over.start:
        return None
    read = SliceDimension(under.start, under.stop, under.step)
    return read, PaddingDimension(over.start, positions - over.stop)
