"""Generators of operations that move elements: exact on every element type."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import EVERY, INDEX_TYPES, Array, Draw
from hloom.shape.shape import Shape


def braces(numbers: Sequence[int]) -> str:
    """Return numbers in braces, as in ``{1,0}``."""
    return "{" + ",".join(map(str, numbers)) + "}"


def plain_shape(array: Array) -> str:
    """Return the text of an array's shape with the default layout."""
    return str(Shape.of(array))


@family("broadcast")
def broadcast(draw: Draw, body: CaseBody) -> Case:
    """Draw a broadcast: operand dimensions in any order, and new dimensions anywhere."""
    element_type = draw.element_type(EVERY)
    sizes = draw.sizes(high=3)
    added = draw.integer(0, 2)
    order = draw.subset(range(len(sizes) + added), len(sizes))
    result = [draw.size(4) for _ in range(len(sizes) + added)]
    for dimension, size in zip(order, sizes, strict=True):
        result[dimension] = size
    operand = body.parameter(draw.any_values(element_type, sizes))
    root = body.let(f"{draw.shape(element_type, result)} broadcast({operand}), dimensions={braces(order)}")
    return body.case("broadcast", root)


def factors(draw: Draw, count: int) -> list[int]:
    """Return `count` random sizes with a given product."""
    sizes: list[int] = []
    while count > 1 and len(sizes) < 4:
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        sizes.append(draw.one(divisors))
        count //= sizes[-1]
    sizes += [count] * (count != 1) + [1] * draw.integer(0, 1)
    return draw.subset(sizes, len(sizes))


@family("reshape")
def reshape(draw: Draw, body: CaseBody) -> Case:
    """Draw a reshape to other dimensions."""
    element_type = draw.element_type(EVERY)
    sizes = draw.sizes()
    count = math.prod(sizes)
    result = factors(draw, count) if count else draw.subset([0, *(draw.size(4) for _ in range(2))], 3)
    operand = body.parameter(draw.any_values(element_type, sizes))
    return body.case("reshape", body.let(f"{draw.shape(element_type, result)} reshape({operand})"))


@family("transpose")
def transpose(draw: Draw, body: CaseBody) -> Case:
    """Draw a transpose by any permutation."""
    sizes = draw.sizes(high=5, largest=4)
    operand = body.parameter(draw.any_values(draw.element_type(EVERY), sizes))
    return body.case(
        "transpose", body.let(f"transpose({operand}), dimensions={braces(draw.permutation(len(sizes)))}")
    )


@family("reverse")
def reverse(draw: Draw, body: CaseBody) -> Case:
    """Draw a reverse of any dimensions."""
    sizes = draw.sizes()
    operand = body.parameter(draw.any_values(draw.element_type(EVERY), sizes))
    return body.case(
        "reverse", body.let(f"reverse({operand}), dimensions={braces(draw.subset(range(len(sizes))))}")
    )


@family("slice")
def slice_(draw: Draw, body: CaseBody) -> Case:
    """Draw a slice with any starts, limits and strides; empty ranges too."""
    sizes = draw.sizes(largest=9)
    ranges: list[str] = []
    result: list[int] = []
    for size in sizes:
        start, limit = sorted((draw.integer(0, size), draw.integer(0, size)))
        stride = draw.integer(1, 3)
        ranges.append(f"[{start}:{limit}:{stride}]")
        result.append(-((start - limit) // stride))
    element_type = draw.element_type(EVERY)
    operand = body.parameter(draw.any_values(element_type, sizes))
    root = body.let(f"{draw.shape(element_type, result)} slice({operand}), slice={{{', '.join(ranges)}}}")
    return body.case("slice", root)


@family("pad")
def pad(draw: Draw, body: CaseBody) -> Case:
    """Draw a pad with edges that add or crop, and interior padding."""
    element_type = draw.element_type(EVERY)
    sizes = draw.sizes(low=1)
    paddings: list[str] = []
    for size in sizes:
        interior = draw.integer(0, 2) if draw.chance(0.4) else 0
        dilated = size + max(size - 1, 0) * interior
        low = draw.integer(-min(dilated, 3), 3)
        high = draw.integer(-min(dilated + min(low, 0), 3), 3)
        paddings.append(f"{low}_{max(high, -(dilated + low))}_{interior}")
    operand = body.parameter(draw.any_values(element_type, sizes))
    value = body.parameter(draw.any_values(element_type, ()))
    return body.case("pad", body.let(f"pad({operand}, {value}), padding={'x'.join(paddings)}"))


@family("concatenate", corners=True)
def concatenate(draw: Draw, body: CaseBody) -> Case:
    """Draw a concatenation of one to five operands, empty ones too.

    XLA's process ends for integers narrower than a byte.
    """
    narrow = ("s2", "s4", "u2", "u4", "f4e2m1fn") if draw.restricted else ()
    element_type = draw.element_type([t for t in EVERY if t not in narrow])
    sizes = draw.sizes(low=1)
    axis = draw.integer(0, len(sizes) - 1)
    operands: list[str] = []
    for _ in range(draw.integer(1, 5)):
        operand_sizes = (*sizes[:axis], draw.size(5), *sizes[axis + 1 :])
        operands.append(body.parameter(draw.any_values(element_type, operand_sizes)))
    return body.case("concatenate", body.let(f"concatenate({', '.join(operands)}), dimensions={{{axis}}}"))


@family("iota")
def iota(draw: Draw, body: CaseBody) -> Case:
    """Draw an iota of any numeric type, also of types that cannot represent the numbers."""
    element_type = draw.element_type(EVERY[1:])
    sizes = list(draw.sizes(low=1, high=3))
    axis = draw.integer(0, len(sizes) - 1)
    if draw.chance(0.2):
        sizes = [min(size, 2) for size in sizes]
        sizes[axis] = draw.one([20, 130, 300, 3000])
    root = body.let(f"{shape_of(element_type, sizes)} iota(), iota_dimension={axis}")
    return body.case(f"iota {element_type}", root)


@family("copy")
def copy(draw: Draw, body: CaseBody) -> Case:
    """Draw a copy of an array to another layout."""
    element_type = draw.element_type(EVERY)
    sizes = draw.sizes(low=2)
    operand = body.parameter(draw.any_values(element_type, sizes))
    layout = braces(draw.permutation(len(sizes)))
    return body.case("copy", body.let(f"{shape_of(element_type, sizes)}{layout} copy({operand})"))


def start_index(draw: Draw, index_type: str, size: int) -> np.ndarray:
    """Draw a start index, often out of bounds."""
    if draw.chance(0.3):
        return draw.any_values(index_type, ())
    low = -3 if index_type[0] == "s" else 0
    return np.asarray(draw.integer(low, size + 2)).astype(draw.small_values(index_type, ()).dtype)


def sliced_sizes(draw: Draw, index_type: str, low: int) -> list[int]:
    """Draw dimensions to slice, from rank `low`.

    Where the index type cannot hold the largest start, XLA wraps it or crashes: such sizes are avoided.
    """
    sizes = list(draw.sizes(low=low, largest=7))
    narrow = draw.restricted and index_type in ("s8", "u8")
    if sizes and not narrow and draw.chance(0.1):
        sizes = [300, *sizes[1:2]]
    return sizes


@family("dynamic-slice", corners=True)
def dynamic_slice(draw: Draw, body: CaseBody) -> Case:
    """Draw a dynamic slice with start indices of all types, in bounds and out.

    Slices of scalars are removed on the way to XLA.
    """
    index_type = draw.one(INDEX_TYPES)
    sizes = sliced_sizes(draw, index_type, int(draw.restricted))
    window = [draw.integer(0 if draw.chance(0.1) else min(1, size), size) for size in sizes]
    element_type = draw.element_type(EVERY)
    operand = body.parameter(draw.values(element_type, sizes))
    starts = [body.parameter(start_index(draw, index_type, size)) for size in sizes]
    names = ", ".join([operand, *starts])
    root = body.let(
        f"{shape_of(element_type, window)} dynamic-slice({names}), dynamic_slice_sizes={braces(window)}"
    )
    return body.case(f"dynamic-slice {index_type}", root)


@family("dynamic-update-slice", corners=True)
def dynamic_update_slice(draw: Draw, body: CaseBody) -> Case:
    """Draw a dynamic update slice with start indices of all types, in bounds and out."""
    element_type = draw.element_type(EVERY)
    index_type = draw.one(INDEX_TYPES)
    sizes = sliced_sizes(draw, index_type, 0)
    window = [draw.integer(0 if draw.chance(0.1) else min(1, size), size) for size in sizes]
    operand = body.parameter(draw.values(element_type, sizes))
    update = body.parameter(draw.values(element_type, window))
    starts = [body.parameter(start_index(draw, index_type, size)) for size in sizes]
    root = body.let(
        f"{shape_of(element_type, sizes)} dynamic-update-slice({', '.join([operand, update, *starts])})"
    )
    return body.case(f"dynamic-update-slice {index_type}", root)
