"""Windows over a base area: rules and array operations shared by convolutions and window reductions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloom.errors import ShapeError, plural
from hloom.ir.affine import Index
from hloom.ir.indexing import Addressing, Condition, undilated
from hloom.ir.operation import Array
from hloom.ir.window import Window, WindowDimension, dilate, fits_int64
from hloom.shape.shape import Shape


def check_window(opcode: str, window: Window) -> None:
    """Refuse windows with sizes, strides or dilations below 1."""
    for number, d in enumerate(window):
        for name, value in (
            ("size", d.size),
            ("stride", d.stride),
            ("base dilation", d.base_dilation),
            ("window dilation", d.window_dilation),
        ):
            if value < 1:
                message = f"dimension {number} of the window has the {name} {value}, which must be positive"
                raise ShapeError(message, rule=f"{opcode}.window-{name.replace(' ', '-')}")


def output_dimension(opcode: str, d: WindowDimension, size: int) -> int:
    """Return the number of window positions over a base dimension; unbounded where the base is."""
    if any(not fits_int64(extent) for extent in d.extents(max(size, 0))):
        message = f"{d} over {plural(size, 'element')} needs numbers of more than 64 bits"
        raise ShapeError(message, rule=f"{opcode}.window-range")
    return Shape.UNBOUNDED if size == Shape.UNBOUNDED else d.output_size(size)


def windowed_shape(opcode: str, base: Shape, window: Window) -> Shape:
    """Return the shape of one element per window position."""
    if len(window) != base.rank:
        message = f"the window has {plural(len(window), 'dimension')}, the operand is {base}"
        raise ShapeError(message, rule=f"{opcode}.window-rank")
    check_window(opcode, window)
    sizes = tuple(output_dimension(opcode, d, size) for d, size in zip(window, base.dimensions))
    return Shape(base.element_type, sizes, base.dynamic_dimensions)


def dilated_and_padded(base: Array, window: Mapping[int, WindowDimension], fill: Array) -> Array:
    """Return the base area: dilate, then pad, both with ``fill``; negative padding crops.

    Args:
        base: the array.
        window: by dimension of the array; other dimensions are unchanged.
        fill: a scalar of the array's type.
    """
    changed = {
        axis: d for axis, d in window.items() if d.base_dilation != 1 or d.padding_low or d.padding_high
    }
    if not changed:
        return base
    shape = list(base.shape)
    target: list[slice] = [slice(None)] * base.ndim
    source: list[slice] = [slice(None)] * base.ndim
    for axis, d in changed.items():
        size = base.shape[axis]
        shape[axis] = max(0, dilate(size, d.base_dilation) + d.padding_low + d.padding_high)
        # Element i lands at low + i * dilation; those that land outside are cropped.
        first = max(0, -(d.padding_low // d.base_dilation)) if d.padding_low < 0 else 0
        last = min(size, (shape[axis] - 1 - d.padding_low) // d.base_dilation + 1) if shape[axis] else 0
        last = max(first, last)
        start = d.padding_low + first * d.base_dilation
        source[axis] = slice(first, last)
        target[axis] = slice(start, start + dilate(last - first, d.base_dilation), d.base_dilation)
    result = np.full(shape, fill, base.dtype)
    if all(s.start < s.stop for s in source if s.start is not None):
        result[tuple(target)] = base[tuple(source)]
    return result


def window_element(
    x: Addressing[Condition], window: Index, position: Index, d: WindowDimension, size: int
) -> tuple[Index, Condition | None]:
    """Return the base index of an element of a window, and the condition that there is one.

    Args:
        x: the interpreter.
        window: index of the window along the dimension.
        position: index inside the window.
        d: the dimension of the window.
        size: of the base before dilation.
    """
    element = position * -1 + (d.size - 1) if d.window_reversal else position
    index = window * d.stride + element * d.window_dilation - d.padding_low
    return undilated(x, index, d.base_dilation, size)
