"""stencil-windows: write reductions of small windows as combinations of shifted arrays.

A reduction of small windows, such as pooling, is a stencil: the maximum or sum of shifted arrays, padded with
the initial value. As elementwise operations it is a loop over vectors of the minor dimension, with bounds
checks at the edges only, and fuses with the operations around it.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.movement import Pad, Slice
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.expand.window_taps import lies_inside, neutral_combiner, tap_ranges
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32


class StencilWindows(OpExpander, name="stencil-windows", of=ReduceWindow):
    """``reduce-window(x, v, f)`` → ``f(f(v, pad(slice(x), v)), pad(slice(x), v)) ...``.

    Within the rounding errors of sums in the order of the window.

    Attributes:
        most: maximum number of elements of a window.
        shortest: minimum extent of the minor dimension.
    """

    most: int = 9
    shortest: int = 16

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Write a reduction of small windows, whose initial value is neutral, as a combination of arrays."""
        windows, combine = operation_of(i, ReduceWindow).window, neutral_combiner(i)
        minor = [size for size in i.shape.dimensions if size > 1][-1:] or [0]
        if combine is None or minor[0] < self.shortest:
            return None
        if not all(map(lies_inside, windows, i.operands[0].shape.dimensions)):
            return None
        return _combined(w, i, combine) if 1 < math.prod(d.size for d in windows) <= self.most else None


def _combined(w: Writer, i: HloInstruction, combine: Operation) -> HloInstruction:
    """Write the combination of the elements of each window, in row-major order of the window."""
    windows, kind = operation_of(i, ReduceWindow).window, i.shape.element_type
    rounds = isinstance(combine, Add | Multiply) and kind.is_floating and kind.bits < 32
    x, initial = (w.convert(o, F32 if rounds else kind) for o in i.operands)
    total = w.broadcast(initial, i.shape.dimensions)
    for tap in np.ndindex(*(d.size for d in windows)):
        ranges = list(map(tap_ranges, tap, windows, x.shape.dimensions, i.shape.dimensions))
        if None in ranges:
            continue
        read, padding = zip(*ranges, strict=True)
        element = w.op(Pad(padding=padding), w.op(Slice(slice=read), x), initial)
        total = w.op(combine, total, element)
    return w.convert(total, kind)
