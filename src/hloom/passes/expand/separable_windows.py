"""separable-windows: reduce windows along one dimension after another, over rows that fill vectors.

A window of 11 x 11 elements combines 121 of them at every position, its rows and then its columns 22. A long
row is divided again, into windows of windows: one of 100 elements into 5 of 5 of 4. Where the windows lie
along positions of few channels, as in an image of RGB colors, positions and channels become one dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import Window, WindowDimension
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.expand.window_taps import lies_inside, neutral_combiner
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer

STORE: Final = 4
"""Cost of storing and loading one element between two reductions; combining two elements costs 1."""
LONGEST: Final = 9
"""Maximum size of a factor of a long window."""
FULL: Final = 16
"""Minimum length of a row that fills a vector."""


class SeparableWindows(OpExpander, name="separable-windows", of=ReduceWindow):
    """``reduce-window(x)`` → ``reduce-window(reduce-window(x))``, each along one dimension.

    Within the rounding errors of sums in another order. Sums of narrower floats, which are rounded once, and
    products of floats, whose partial products may overflow, stay as they are.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Write a reduction of windows as one or several ones of fewer combinations or of longer rows."""
        windows, combine = operation_of(i, ReduceWindow).window, neutral_combiner(i)
        if combine is None or not all(map(_is_row_major, (i, *i.operands))):
            return None
        kind, sizes = i.shape.element_type, i.operands[0].shape.dimensions
        if 0 in (*sizes, *i.shape.dimensions):
            return None
        ordered = kind.is_floating and (
            isinstance(combine, Multiply) or (isinstance(combine, Add) and kind.bits < 32)
        )
        steps = [windows] if ordered else _steps(sizes, windows)
        if len(steps) == 1 and _joined(sizes, windows) == (sizes, windows):
            return None
        x = i.operands[0]
        for step in steps:
            x = _reduced(w, i, x, step)
        return x


def _is_row_major(i: HloInstruction) -> bool:
    return i.shape.layout is None or i.shape.layout.is_default


def _reduced(w: Writer, i: HloInstruction, x: HloInstruction, windows: Window) -> HloInstruction:
    """Write the reduction of windows of an array, as instruction ``i`` combines and starts them."""
    sizes = tuple(map(WindowDimension.output_size, windows, x.shape.dimensions))
    joined, joined_windows = _joined(x.shape.dimensions, windows)
    step = w.op(
        ReduceWindow(window=joined_windows),
        w.reshape(x, joined),
        i.operands[1],
        computations=i.called_computations,
    )
    return w.reshape(step, sizes)


def _joined(sizes: Sequence[int], windows: Window) -> tuple[tuple[int, ...], Window]:
    """Return the dimensions of an array, and the windows, with the last dimensions as one if they are short.

    Windows have single elements along them. If even together they do not fill vectors, they become one with
    the dimension before them, in which the elements of a window lie as far apart as they are long.
    """
    count = next((n for n, d in enumerate(reversed(windows)) if d != WindowDimension(1)), len(windows))
    last = len(windows) - count
    inner = math.prod(sizes[last:])
    if count == 0 or sizes[-1] >= FULL:
        return tuple(sizes), windows
    if inner >= FULL or last == 0:
        return (*sizes[:last], inner), (*windows[:last], WindowDimension(1))
    d = windows[last - 1]
    if d.stride != 1 or not lies_inside(d, sizes[last - 1]):
        return tuple(sizes), windows
    wide = replace(
        d,
        window_dilation=d.window_dilation * inner,
        padding_low=d.padding_low * inner,
        padding_high=d.padding_high * inner,
    )
    return (*sizes[: last - 1], sizes[last - 1] * inner), (*windows[: last - 1], wide)


def _steps(sizes: Sequence[int], windows: Window) -> list[Window]:
    """Return the windows of successive reductions that take the fewest combinations together."""
    steps: list[Window] = [windows]
    parts = [
        tuple(part if m == n else WindowDimension(1) for m in range(len(windows)))
        for n, d in enumerate(windows)
        if d != WindowDimension(1)
        for part in _parts(d, sizes[n])
    ]
    return parts if _cost(sizes, parts) < _cost(sizes, steps) else steps


def _cost(sizes: Sequence[int], steps: Sequence[Window]) -> int:
    """Return the cost of successive reductions: their combinations, and the stores of their results."""
    cost = 0
    for windows in steps:
        sizes = tuple(map(WindowDimension.output_size, windows, sizes))
        cost += math.prod(sizes) * (math.prod(d.size for d in windows) + STORE)
    return cost


def _parts(d: WindowDimension, size: int) -> Iterator[WindowDimension]:
    """Yield windows along one dimension whose successive reductions equal that of the given window.

    Only the first has padding.
    """
    factors = _factors(d.size) if d.stride == 1 and lies_inside(d, size) else []
    if len(factors) < 2:
        yield d
        return
    first, *others = factors
    # The first windows begin where the given ones do, and at every position inside of these.
    yield replace(d, size=first)
    length = first
    for factor in others:
        yield WindowDimension(factor, window_dilation=d.window_dilation * length)
        length *= factor


def _factors(size: int) -> list[int]:
    """Return the fewest factors of a size, the smallest of these; the size itself if one is large."""
    if size <= LONGEST:
        return [size]
    choices = [[a, *_factors(size // a)] for a in range(2, LONGEST + 1) if size % a == 0]
    choices = [c for c in choices if max(c) <= LONGEST]
    return min(choices, key=lambda c: (len(c), sum(c))) if choices else [size]
