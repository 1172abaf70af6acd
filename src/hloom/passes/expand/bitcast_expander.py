"""bitcast-expander: expand bitcasts between layouts into transposes, pads, slices and reshapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.ir.instruction import HloInstruction
from hloom.operations.conversion import Bitcast, BitcastConvert
from hloom.operations.movement import Transpose
from hloom.operations.reshaping import Reshape
from hloom.passes.expand.element_bits import reinterpret
from hloom.passes.op_expander import OpExpander
from hloom.passes.rules.dimensions import inverse
from hloom.passes.writing import Writer
from hloom.shape.element_type import F16, U16
from hloom.shape.index import physical_form
from hloom.shape.literal import padding_element
from hloom.shape.shape import Shape


class BitcastExpander(OpExpander, name="bitcast-expander", of=Bitcast):
    """``bitcast(x)`` → ``from_memory(reinterpret(to_memory(x)))``.

    ``to_memory`` is the pad, reshape and transpose of each tile of the operand's layout; ``from_memory``
    inverts those of the result's. Padding is zero, as in the evaluator. Bitcasts of dynamic shape stay,
    for the host.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the result, in the bitcast's layout; None for dynamic shapes."""
        (x,) = i.operands
        source, target = x.shape, i.shape
        if not (source.is_static and target.is_static):
            return None
        if _places(source) == _places(target):
            return x if source.dimensions == target.dimensions else w.op(Reshape(), x, shape=target)
        elements = reinterpret(w, _to_memory(w, x), _moved(source), _moved(target))
        return _from_memory(w, elements, target)


def _places(shape: Shape) -> tuple[object, ...]:
    """Return a key of how elements are stored: a bitcast between shapes of equal keys is a reshape.

    It consists of the element type, and the order, sizes and tiling of the dimensions. Dimensions of size 1
    count only if they are tiled: ``[1,8,128]{2,1,0:T(8,128)}`` lies in memory as ``[8,128]{1,0:T(8,128)}``
    does.
    """
    form = physical_form(shape)
    tiled_from = min((0 if t.added else t.untouched for t in form.tilings), default=shape.rank)
    dimensions = [n for n, size in enumerate(form.padded) if size > 1 or n >= tiled_from]
    numbers = sorted(form.major_to_minor[n] for n in dimensions)
    order = tuple(numbers.index(form.major_to_minor[n]) for n in dimensions)
    tiles = shape.layout.tiles if shape.layout is not None else ()
    sizes = tuple((form.bounds[n], form.padded[n]) for n in dimensions)
    return shape.element_type, shape.element_bits, order, sizes, tiles


def _moved(shape: Shape) -> Shape:
    """Return the shape in which elements are moved: f16 as u16, because moves may quiet signaling NaNs."""
    return Shape(U16, shape.dimensions, layout=shape.layout) if shape.element_type is F16 else shape


def _to_memory(writer: Writer, x: HloInstruction) -> HloInstruction:
    """Return the elements, with the layout's padding, in the order of memory: an array of rank 1."""
    form, fill = physical_form(x.shape), padding_element(x.shape)
    if x.shape.element_type is F16:
        x, fill = writer.op(BitcastConvert(), x, shape=_moved(x.shape)), fill.view("u2")
    x = writer.resize(_transposed(writer, x, form.major_to_minor), form.padded, fill)
    for tiling in form.tilings:
        x = writer.resize(writer.reshape(x, tiling.joined), tiling.padded)
        x = _transposed(writer, writer.reshape(x, tiling.split), tiling.order)
    return writer.resize(writer.reshape(x, [x.shape.element_count]), [form.element_count])


def _from_memory(writer: Writer, x: HloInstruction, target: Shape) -> HloInstruction:
    """Return the array of shape ``target`` whose elements, in the order of memory, are ``x``.

    Drop the padding.
    """
    form = physical_form(target)
    x = writer.resize(x, [math.prod(form.dimensions)])
    for tiling in reversed(form.tilings):
        tiled = writer.reshape(x, [tiling.split[d] for d in tiling.order])
        x = writer.reshape(_transposed(writer, tiled, inverse(tiling.order)), tiling.padded)
        x = writer.reshape(writer.resize(x, tiling.joined), tiling.bounds[tiling.added :])
    x = writer.resize(writer.reshape(x, form.padded), form.bounds)
    x = _transposed(writer, x, inverse(form.major_to_minor))
    return writer.op(BitcastConvert() if target.element_type is F16 else Reshape(), x, shape=target)


def _transposed(writer: Writer, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
    if tuple(order) == tuple(range(x.shape.rank)):
        return x
    return writer.op(Transpose(dimensions=tuple(order)), x)
