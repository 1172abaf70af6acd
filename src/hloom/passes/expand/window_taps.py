"""Windows as shifted arrays: what an element of the window, a tap, reads at all positions of the window."""

from __future__ import annotations

from hloom.ir.window import PaddingDimension, SliceDimension, WindowDimension
from hloom.operations.convolution import under_tap


def tap_ranges(
    tap: int, d: WindowDimension, size: int, positions: int
) -> tuple[SliceDimension, PaddingDimension] | None:
    """Return the elements of a dimension under a tap, and the positions before and after those over one.

    None if there are none. The base has no holes.
    """
    assert d.base_dilation == 1
    over, under = under_tap(tap, positions, d, size)
    if over.stop == over.start:
        return None
    read = SliceDimension(under.start, under.stop, under.step)
    return read, PaddingDimension(over.start, positions - over.stop)
