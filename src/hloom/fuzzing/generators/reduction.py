"""Generators of reductions: of dimensions, of windows, of several arrays; select-and-scatter; map."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import EVERY, FLOATS, INTEGERS, Array, Draw
from hloom.fuzzing.generators.movement import braces, plain_shape
from hloom.fuzzing.generators.opcodes import neutral, reducers, rounds
from hloom.operations.arithmetic import Add, Multiply
from hloom.shape.element_type import ElementType

REAL = (*INTEGERS, *FLOATS)
_finfo: Any = ml_dtypes.finfo


def reduction(draw: Draw) -> tuple[str, str, Array, bool]:
    """Draw a reduction's opcode, element type and initial value, and whether values are combined exactly."""
    usual = ("f32", "s32", "bf16", "u8", *draw.types)
    element_type = draw.element_type(usual if draw.chance(0.4) else EVERY)
    opcode = draw.one(reducers(element_type))
    init = neutral(opcode, element_type)  # others count as often as the implementation likes, or not at all
    exact = not rounds(opcode, element_type) or draw.chance(0.5)
    return opcode, element_type, init, exact


def values_for(draw: Draw, opcode: str, element_type: str, sizes: tuple[int, ...], exact: bool) -> Array:
    """Return values to reduce: any if the order does not matter, else values with bounded rounding.

    Factors are few enough that no product of some of them, in any order, overflows or is rounded to 0.
    """
    kind = ElementType.parse(element_type)
    if not rounds(opcode, element_type):
        return draw.values(element_type, sizes)
    if opcode == Multiply.opcode:
        factors = draw.numbers.choice(np.array([1, -1, 2, 0.5, 1, 1]), sizes)
        least = float(_finfo(kind.component.numpy_dtype).smallest_subnormal)
        for factor, end in ((2, kind.component.limits[1]), (0.5, least)):
            most = int(abs(math.log2(end)))
            factors.reshape(-1)[np.flatnonzero(factors == factor)[most:]] = 1
        return factors.astype(kind.numpy_dtype)
    return draw.small_values(element_type, sizes) if exact else draw.ordinary_values(element_type, sizes)


@family("reduce", weight=2)
def reduce(draw: Draw, body: CaseBody) -> Case:
    """Draw a reduction of one array along any dimensions."""
    opcode, element_type, init, exact = reduction(draw)
    sizes = draw.sizes()
    if draw.chance(0.1):
        sizes = (draw.one([33, 70, 130]), *sizes[:1])
    dimensions = draw.subset(range(len(sizes)))
    operand = body.parameter(values_for(draw, opcode, element_type, sizes, exact))
    start = body.parameter(init)
    function = body.binary(element_type, opcode)
    root = body.let(f"reduce({operand}, {start}), dimensions={braces(dimensions)}, to_apply={function}")
    return body.case(f"reduce {opcode} {element_type}", root)


def argument_of_extreme(body: CaseBody, value: str, index: str, direction: str) -> str:
    """Add JAX's combiner for the index of the largest or smallest element, and return its name.

    NaN comes first; of equal elements, the one with the lower index.
    """
    return body.computation(
        [f"{value}[]", f"{index}[]"] * 2,
        f"better = compare(a, c), direction={direction}",
        "unordered = compare(a, a), direction=NE",
        "wins = or(better, unordered)",
        "same = compare(a, c), direction=EQ",
        "earlier = compare(b, d), direction=LT",
        "tie = and(same, earlier)",
        "first = or(wins, tie)",
        "v = select(wins, a, c)",
        "i = select(first, b, d)",
        "r = tuple(v, i)",
    )


@family("reduce-several")
def reduce_several(draw: Draw, body: CaseBody) -> Case:
    """Draw a reduction of two arrays: the index of the extreme, or two independent reductions.

    XLA requires one layout for both, including element sizes, and one float type.
    """
    sizes = draw.sizes(low=1)
    dimensions = braces(draw.subset(range(len(sizes)), draw.integer(1, len(sizes))))
    if draw.chance(0.5):
        value = draw.one([t for t in REAL if ElementType.parse(t).bits >= 8])
        index = draw.one(["s32", "s64", "u32"])
        direction = draw.one(["GT", "LT"])
        with np.errstate(all="ignore"):
            numbers = np.arange(math.prod(sizes)).reshape(sizes).astype(ElementType.parse(index).numpy_dtype)
        operands = [body.parameter(a, plain_shape(a)) for a in (draw.values(value, sizes), numbers)]
        worst = neutral("maximum" if direction == "GT" else "minimum", value)
        inits = [body.parameter(worst), body.parameter(np.array(np.iinfo(numbers.dtype).max, numbers.dtype))]
        function = argument_of_extreme(body, value, index, direction)
        label = f"reduce argmax {value}"
    else:
        types = [draw.one(["s32", "f32", "u8", "s64"]) for _ in range(2)]
        pairs = [(draw.one(reducers(t)), t) for t in types]
        operands = [
            body.parameter(a, plain_shape(a)) for a in (draw.small_values(t, sizes) for _, t in pairs)
        ]
        inits = [body.parameter(neutral(o, t)) for o, t in pairs]
        scalars = [f"{t}[]" for t in types]
        (first, _), (second, _) = pairs
        function = body.computation(
            [*scalars, *scalars], f"x = {first}(a, c)", f"y = {second}(b, d)", "r = tuple(x, y)"
        )
        label = "reduce two"
    root = body.let(f"reduce({', '.join([*operands, *inits])}), dimensions={dimensions}, to_apply={function}")
    return body.case(label, *body.elements(root, 2))


def window_text(draw: Draw, sizes: tuple[int, ...], *, dilations: bool = True) -> tuple[str, list[int]]:
    """Return a random window as text, and the dimensions of the result."""
    window = [draw.integer(1, min(max(size, 1), 4)) for size in sizes]
    stride = [draw.integer(1, 3) if draw.chance(0.4) else 1 for _ in sizes]
    base = [draw.integer(1, 2) if dilations and draw.chance(0.2) else 1 for _ in sizes]
    holes = [draw.integer(1, 2) if dilations and draw.chance(0.2) else 1 for _ in sizes]
    pads: list[str] = []
    result: list[int] = []
    for number, size in enumerate(sizes):
        extent = (window[number] - 1) * holes[number] + 1
        dilated = (size - 1) * base[number] + 1 if size else 0
        low, high = (draw.integer(0, extent - 1) if draw.chance(0.4) else 0 for _ in range(2))
        high = max(high, extent - dilated - low)
        pads.append(f"{low}_{high}")
        result.append((low + dilated + high - extent) // stride[number] + 1)
    fields = [
        f"size={'x'.join(map(str, window))}",
        f"stride={'x'.join(map(str, stride))}",
        f"pad={'x'.join(pads)}",
    ]
    if max(base, default=1) > 1:
        fields.append(f"lhs_dilate={'x'.join(map(str, base))}")
    if max(holes, default=1) > 1:
        fields.append(f"rhs_dilate={'x'.join(map(str, holes))}")
    return "{" + " ".join(fields) + "}", result


@family("reduce-window", weight=2)
def reduce_window(draw: Draw, body: CaseBody) -> Case:
    """Draw a windowed reduction with strides, padding and both dilations; windows up to the whole axis."""
    opcode, element_type, init, exact = reduction(draw)
    sizes = draw.sizes(low=1, high=3)
    if draw.chance(0.15):
        sizes = (draw.one([9, 40, 100]),)
        window = f"{{size={sizes[0]} pad={sizes[0] - 1}_0}}"
    else:
        window = window_text(draw, sizes)[0]
    operand = body.parameter(values_for(draw, opcode, element_type, sizes, exact))
    start = body.parameter(init)
    function = body.binary(element_type, opcode)
    root = body.let(f"reduce-window({operand}, {start}), window={window}, to_apply={function}")
    return body.case(f"reduce-window {opcode} {element_type}", root)


@family("reduce-window-several")
def reduce_windows(draw: Draw, body: CaseBody) -> Case:
    """Draw a windowed reduction of two arrays: the index of the extreme in every window."""
    sizes = draw.sizes(low=1, high=3)
    value = draw.one(["f32", "s32", "u8", "f64", "s16"])
    direction = draw.one(["GT", "LT"])
    numbers = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    operands = [body.parameter(a, plain_shape(a)) for a in (draw.values(value, sizes), numbers)]
    worst = neutral("maximum" if direction == "GT" else "minimum", value)
    inits = [body.parameter(worst), body.parameter(np.array(2**31 - 1, np.int32))]
    function = argument_of_extreme(body, value, "s32", direction)
    window, result = window_text(draw, sizes)
    shape = f"({shape_of(value, result)}, {shape_of('s32', result)})"
    names = ", ".join([*operands, *inits])
    root = body.let(f"{shape} reduce-window({names}), window={window}, to_apply={function}")
    return body.case(f"reduce-window argmax {value}", *body.elements(root, 2))


@family("select-and-scatter")
def select_and_scatter(draw: Draw, body: CaseBody) -> Case:
    """Draw a select-and-scatter, the gradient of pooling, with overlapping windows and equal elements.

    XLA visits a window in the order of a layout that it chooses, so most cases have no equal elements.
    """
    element_type = draw.element_type(["f32", "f32", "f64", "bf16", "f16", "s32", "u8", "s64"])
    sizes = tuple(max(1, size) for size in draw.sizes(low=1, high=3))
    window = [draw.integer(1, min(size, 3)) for size in sizes]
    stride = [draw.integer(1, 3) for _ in sizes]
    pads = [(draw.integer(0, w - 1), draw.integer(0, w - 1)) if draw.chance(0.4) else (0, 0) for w in window]
    source = [(s + sum(p) - w) // t + 1 for s, p, w, t in zip(sizes, pads, window, stride, strict=True)]
    direction = draw.one(["GE", "LE", "GT", "LT"])
    opcode = draw.one([Add.opcode, *reducers(element_type)])
    values = draw.values if element_type in INTEGERS else draw.small_values
    numbers = values(element_type, sizes)
    tied = draw.chance(0.2)
    if not tied:
        numbers = draw.numbers.permutation(numbers.size).reshape(sizes).astype(numbers.dtype)
    operand = body.parameter(numbers, shape_of(element_type, sizes))
    updates = body.parameter(values(element_type, source))
    init = body.parameter(
        draw.small_values(element_type, ()) if draw.chance(0.3) else neutral(opcode, element_type)
    )
    scalar = f"{element_type}[]"
    select = body.computation([scalar, scalar], f"r = compare(a, b), direction={direction}")
    function = body.binary(element_type, opcode)
    fields = [f"size={'x'.join(map(str, window))}", f"stride={'x'.join(map(str, stride))}"]
    fields.append(f"pad={'x'.join(f'{low}_{high}' for low, high in pads)}")
    root = body.let(
        f"select-and-scatter({operand}, {updates}, {init}), window={{{' '.join(fields)}}}, "
        f"select={select}, scatter={function}"
    )
    return body.case(f"select-and-scatter {direction} {opcode}{' tied' if tied else ''}", root)


@family("map")
def map_(draw: Draw, body: CaseBody) -> Case:
    """Draw a map: a computation of scalars, applied to the elements of whole arrays."""
    element_type = draw.element_type([*INTEGERS, "f32", "f64", "f16"])
    scalar = f"{element_type}[]"
    function = body.computation(
        [scalar, scalar],
        f"one = {element_type}[] constant(1)",
        "sum = add(a, one)",
        f"p = compare(sum, b), direction={draw.one(['LT', 'GE', 'EQ'])}",
        f"big = {draw.one(['maximum', 'minimum'])}(a, b)",
        "r = select(p, sum, big)",
    )
    sizes = draw.sizes()
    operands = [body.parameter(draw.small_values(element_type, sizes)) for _ in range(2)]
    dimensions = braces(range(len(sizes)))
    root = body.let(f"map({', '.join(operands)}), dimensions={dimensions}, to_apply={function}")
    return body.case(f"map {element_type}", root)
