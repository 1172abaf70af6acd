"""Windows as shifted arrays: what an element of the window, a tap, reads at all positions of the window."""

from __future__ import annotations

from hloom.ir.window import PaddingDimension, SliceDimension, WindowDimension
from hloom.operations.convolution import under_tap


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
