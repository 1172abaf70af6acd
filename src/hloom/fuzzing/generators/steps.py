"""Steps of the generator of modules: each adds a few instructions to a computation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from hloom.fuzzing.generators.case import constant_text
from hloom.fuzzing.generators.movement import braces, factors
from hloom.fuzzing.generators.opcodes import arithmetic as arithmetic_opcodes
from hloom.fuzzing.generators.opcodes import exact, neutral, reducers, rounds
from hloom.fuzzing.generators.scope import FLOATS, INTEGERS, ArrayValue, ModuleScope, roundoff, shape_of
from hloom.operations.arithmetic import Add, Multiply, Power
from hloom.operations.transcendental import (
    Cosine,
    CubeRoot,
    ErrorFunction,
    HyperbolicTangent,
    Logarithm,
    Logistic,
    ReciprocalSquareRoot,
    Sine,
    SquareRoot,
)

Step: TypeAlias = Callable[[ModuleScope], None]
LAST = "last"
"""The combiner that gives the last update."""
BOUNDED = (Cosine, ErrorFunction, HyperbolicTangent, Logistic, Sine)
"""Functions whose results are between -1 and 1."""
FLATTER = (CubeRoot, Logarithm, ReciprocalSquareRoot, SquareRoot)
"""Functions that enlarge no errors of numbers above 1."""


def _numeric(v: ArrayValue) -> bool:
    return v.element_type in FLOATS or v.element_type in INTEGERS


def _exact(v: ArrayValue) -> bool:
    return v.exact


def _real(v: ArrayValue) -> bool:
    return v.exact and _numeric(v)


def _of(fits: Callable[[ArrayValue], bool]) -> Callable[[Callable[[ModuleScope, ArrayValue], None]], Step]:
    """Make a step of a function of a value: it takes one of those that fit, and does nothing without any."""

    def declare(function: Callable[[ModuleScope, ArrayValue], None]) -> Step:
        def step(s: ModuleScope) -> None:
            x = s.any(fits)
            if x is not None:
                function(s, x)

        return step

    return declare


# -- elementwise


@_of(_exact)
def arithmetic(s: ModuleScope, x: ArrayValue) -> None:
    y = s.like(x)
    avoided = Multiply.opcode if x.element_type == "c64" else Power.opcode  # both have known differences
    opcodes = [o for o in exact(2, x.element_type) if o != avoided]
    s.add(f"{s.draw.one(opcodes)}({x.name}, {y.name})", x.element_type, x.sizes)


@_of(_exact)
def unary(s: ModuleScope, x: ArrayValue) -> None:
    if x.element_type == "c64":
        s.add(f"{s.draw.one(['real', 'imag'])}({x.name})", "f32", x.sizes)
        return
    s.add(f"{s.draw.one(exact(1, x.element_type))}({x.name})", x.element_type, x.sizes)


@_of(lambda v: v.element_type != "c64")
def conversion(s: ModuleScope, x: ArrayValue) -> None:
    if not x.exact:
        target = s.draw.one(FLOATS)
        s.add(f"convert({x.name})", target, x.sizes, [x], x.limit, x.error + roundoff(target) * x.limit)
        return
    s.add(f"convert({x.name})", s.draw.one((*FLOATS, *INTEGERS, "pred")), x.sizes)


@_of(_real)
def chain(s: ModuleScope, x: ArrayValue) -> None:
    """Add several consecutive operations on a value that is also used elsewhere."""
    first, opcodes = x, arithmetic_opcodes(x.element_type)
    for _ in range(s.draw.integer(2, 6)):
        y = s.draw.one([first, s.like(x), x])
        x = s.add(f"{s.draw.one(opcodes)}({x.name}, {y.name})", x.element_type, x.sizes)


@_of(_real)
def choice(s: ModuleScope, x: ArrayValue) -> None:
    y = s.like(x)
    direction = s.draw.one(["LT", "LE", "EQ", "NE", "GT", "GE"])
    test = s.add(f"compare({x.name}, {y.name}), direction={direction}", "pred", x.sizes)
    z = s.any(lambda v: v.sizes == x.sizes and v.exact)
    assert z is not None
    s.add(f"select({test.name}, {z.name}, {s.like(z).name})", z.element_type, z.sizes)


@_of(_real)
def holding(s: ModuleScope, x: ArrayValue) -> None:
    low, high = s.constant(x.element_type, s.draw.integer(0, 1)), s.constant(x.element_type, 5)
    s.add(f"clamp({low}, {x.name}, {high})", x.element_type, x.sizes)


def complex_numbers(s: ModuleScope) -> None:
    x = s.any(lambda v: v.element_type == "f32" and v.exact)
    if x is not None:
        z = s.add(f"complex({x.name}, {s.like(x).name})", "c64", x.sizes)
        s.add(f"{s.draw.one(['negate', 'copy'])}({z.name})", "c64", x.sizes)


def reinterpretation(s: ModuleScope) -> None:
    x = s.any(lambda v: v.element_type in ("s32", "u32", "s16", "s64", "f32") and v.exact)
    if x is None:
        return
    if x.element_type == "f32":
        s.add(f"bitcast-convert({s.tamed(x).name})", s.draw.one(["s32", "u32"]), x.sizes)
    elif x.element_type == "s64":
        s.add(f"bitcast-convert({x.name})", s.draw.one(["u64", "f64"]), x.sizes)
    elif x.element_type != "s16":
        s.add(f"bitcast-convert({x.name})", "f32", x.sizes)
    else:
        s.add(f"bitcast-convert({x.name})", "u16", x.sizes)


# -- movement


def transposition(s: ModuleScope) -> None:
    x = s.some()
    order = s.draw.permutation(len(x.sizes))
    sizes = [x.sizes[d] for d in order]
    s.add(f"transpose({x.name}), dimensions={braces(order)}", x.element_type, sizes, [x])


def reshaping(s: ModuleScope) -> None:
    x = s.some()
    sizes = factors(s.draw, x.count) if x.count else [0]
    s.add(f"reshape({x.name})", x.element_type, sizes, [x])


def broadcasting(s: ModuleScope) -> None:
    x = s.any(lambda v: v.count * 2 <= s.writer.most and len(v.sizes) < 5)
    if x is None:
        return
    rank = len(x.sizes) + s.draw.integer(1, 2)
    places = sorted(s.draw.subset(range(rank), len(x.sizes)))
    operand_sizes = dict(zip(places, x.sizes, strict=True))
    sizes = [operand_sizes.get(d, s.draw.one((1, 2, 3, *s.writer.sizes))) for d in range(rank)]
    if math.prod(sizes) <= s.writer.most:
        s.add(f"broadcast({x.name}), dimensions={braces(places)}", x.element_type, sizes, [x])


def slicing(s: ModuleScope) -> None:
    x = s.some()
    ranges: list[str] = []
    sizes: list[int] = []
    for size in x.sizes:
        start = s.draw.integer(0, min(size, 3)) if s.draw.chance(0.5) else 0
        limit = s.draw.integer(start, size) if s.draw.chance(0.3) else size
        stride = s.draw.one([1, 1, 1, 2, 3])
        ranges.append(f"[{start}:{limit}:{stride}]")
        sizes.append(-((start - limit) // stride))
    s.add(f"slice({x.name}), slice={{{', '.join(ranges)}}}", x.element_type, sizes, [x])


def reversal(s: ModuleScope) -> None:
    x = s.some()
    dimensions = s.draw.subset(range(len(x.sizes)))
    s.add(f"reverse({x.name}), dimensions={braces(dimensions)}", x.element_type, x.sizes, [x])


def padding(s: ModuleScope) -> None:
    x = s.any(
        lambda v: bool(v.sizes) and v.count * 4 <= s.writer.most and v.element_type not in ("pred", "c64")
    )
    if x is None:
        return
    value = s.constant(x.element_type, s.draw.integer(0, 2))
    configs: list[str] = []
    sizes: list[int] = []
    for size in x.sizes:
        low, high = (s.draw.integer(-min(size // 2, 2), 2) for _ in range(2))
        interior = s.draw.one([0, 0, 0, 1])
        configs.append(f"{low}_{high}_{interior}")
        sizes.append(size + max(size - 1, 0) * interior + low + high)
    if min(sizes) >= 0:
        s.add(f"pad({x.name}, {value}), padding={'x'.join(configs)}", x.element_type, sizes, [x])


def joining(s: ModuleScope) -> None:
    x = s.any(lambda v: bool(v.sizes) and v.count * 3 <= s.writer.most)
    if x is None:
        return
    axis = s.draw.integer(0, len(x.sizes) - 1)

    def fits(v: ArrayValue) -> bool:
        same = len(v.sizes) == len(x.sizes) and v.element_type == x.element_type
        return same and all(
            a == b or d == axis for d, (a, b) in enumerate(zip(v.sizes, x.sizes, strict=True))
        )

    parts = [x, *(p for p in (s.any(fits) for _ in range(s.draw.integer(1, 3))) if p is not None)]
    total = sum(p.sizes[axis] for p in parts)
    sizes = [total if d == axis else size for d, size in enumerate(x.sizes)]
    if math.prod(sizes) <= s.writer.most:
        names = ", ".join(p.name for p in parts)
        s.add(f"concatenate({names}), dimensions={{{axis}}}", x.element_type, sizes, parts)


def _start(s: ModuleScope) -> str:
    """Return the name of a scalar to use as a start index."""
    scalar = s.any(lambda v: v.element_type == "s32" and not v.sizes and v.exact)
    if scalar is not None and s.draw.chance(0.7):
        return scalar.name
    return s.constant("s32", s.draw.integer(-1, 4))


@_of(lambda v: bool(v.sizes))
def dynamic_slicing(s: ModuleScope, x: ArrayValue) -> None:
    window = [s.draw.integer(min(1, size), size) for size in x.sizes]
    names = ", ".join([x.name, *(_start(s) for _ in x.sizes)])
    s.add(f"dynamic-slice({names}), dynamic_slice_sizes={braces(window)}", x.element_type, window, [x])


@_of(lambda v: bool(v.sizes) and v.exact)
def updating(s: ModuleScope, x: ArrayValue) -> None:
    """Add a dynamic update slice of a value that may be used afterwards, and then cannot be in place."""

    def fits(v: ArrayValue) -> bool:
        same = v.element_type == x.element_type and len(v.sizes) == len(x.sizes) and v.exact
        return same and all(a <= b for a, b in zip(v.sizes, x.sizes, strict=True))

    update = s.any(lambda v: fits(v) and v.sizes != x.sizes)
    if update is None or s.draw.chance(0.5):
        window = [s.draw.integer(min(1, size), size) for size in x.sizes]
        ranges = ", ".join(f"[{size - w}:{size}]" for size, w in zip(x.sizes, window, strict=True))
        part = s.add(f"slice({x.name}), slice={{{ranges}}}", x.element_type, window)
        update = s.like(part)
    names = ", ".join([x.name, update.name, *(_start(s) for _ in x.sizes)])
    s.add(f"dynamic-update-slice({names})", x.element_type, x.sizes)


@_of(lambda v: bool(v.sizes) and 0 not in v.sizes)
def gathering(s: ModuleScope, x: ArrayValue) -> None:
    rows = s.any(lambda v: v.element_type in ("s32", "s64", "u8") and len(v.sizes) == 1 and v.exact)
    if rows is None or rows.count * x.count > s.writer.most * 4:
        rows = s.add("iota(), iota_dimension=0", "s32", [s.draw.integer(1, 5)])
    axis = s.draw.integer(0, len(x.sizes) - 1)
    sizes = [n for d, n in enumerate(x.sizes) if d != axis]
    window = [1 if d == axis else n for d, n in enumerate(x.sizes)]
    attributes = (
        f"offset_dims={braces(range(1, len(x.sizes)))}, collapsed_slice_dims={{{axis}}}, "
        f"start_index_map={{{axis}}}, index_vector_dim=1, slice_sizes={braces(window)}"
    )
    s.add(f"gather({x.name}, {rows.name}), {attributes}", x.element_type, [*rows.sizes, *sizes], [x])


@_of(lambda v: bool(v.sizes) and 0 not in v.sizes and _real(v))
def scattering(s: ModuleScope, x: ArrayValue) -> None:
    rows = s.any(lambda v: v.element_type in ("s32", "s64", "u8") and len(v.sizes) == 1 and v.exact)
    if rows is None or rows.count * x.count > s.writer.most * 4:
        rows = s.add("iota(), iota_dimension=0", "s32", [s.draw.integer(1, 5)])
    update_form = ArrayValue("", x.element_type, (*rows.sizes, *x.sizes[1:]))
    updates = s.like(update_form)
    opcode = s.draw.one([*_combiners(x), LAST])
    if opcode == Add.opcode and x.is_float:
        x, updates = s.tamed(x), s.tamed(updates)
    scalar = f"{x.element_type}[]"
    function = s.function([scalar] * 2, "r = copy(b)") if opcode == LAST else s.binary(x.element_type, opcode)
    attributes = (
        f"update_window_dims={braces(range(1, len(x.sizes)))}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={function}"
    )
    s.add(f"scatter({x.name}, {rows.name}, {updates.name}), {attributes}", x.element_type, x.sizes)


def laying_out(s: ModuleScope) -> None:
    x = s.some()
    name = s.line(s.draw.shape(x.element_type, x.sizes), f"copy({x.name})")
    s.values.append(ArrayValue(name, x.element_type, x.sizes, x.limit, x.error))


# -- reductions and products


@_of(lambda v: v.element_type != "c64")
def reducing(s: ModuleScope, x: ArrayValue) -> None:
    dimensions = s.draw.subset(range(len(x.sizes)))
    sizes = [size for d, size in enumerate(x.sizes) if d not in dimensions]
    count = math.prod(x.sizes[d] for d in dimensions)
    opcode = s.draw.one(_combiners(x))
    limit, error = None, None
    is_sum = rounds(opcode, x.element_type)
    if is_sum and x.exact:
        x = s.tamed(x)
    if is_sum and not x.exact:
        limit = x.limit * max(count, 1)
        error = x.error * max(count, 1) + roundoff(x.element_type) * limit
    init = s.constant(x.element_type, _neutral(opcode, x.element_type))
    function = s.binary(x.element_type, opcode)
    attributes = f"dimensions={braces(dimensions)}, to_apply={function}"
    result = s.add(f"reduce({x.name}, {init}), {attributes}", x.element_type, sizes, [x], limit, error)
    if not result.exact and not math.isfinite(result.limit):
        s.values.remove(result)  # of nothing
    elif not result.exact:
        s.bounded(result)


def _neutral(opcode: str, element_type: str) -> str:
    return constant_text(neutral(opcode, element_type), f"{element_type}[]")


def _combiners(x: ArrayValue) -> list[str]:
    """Return the opcodes of associative operations on a value; products only of values that do not round."""
    return [o for o in reducers(x.element_type) if o != Multiply.opcode or not x.is_float]


@_of(lambda v: _real(v) and bool(v.sizes))
def reducing_two(s: ModuleScope, x: ArrayValue) -> None:
    """Add a reduction of two arrays: index of the largest element (NaN first), or a sum and a maximum."""
    axis = s.draw.integer(0, len(x.sizes) - 1)
    numbers = s.add(f"iota(), iota_dimension={axis}", "s32", x.sizes)
    scalars = [f"{x.element_type}[]", "s32[]"] * 2
    if s.draw.chance(0.6):
        lines = (
            "better = compare(a, c), direction=GT", "unordered = compare(a, a), direction=NE",
            "wins = or(better, unordered)", "same = compare(a, c), direction=EQ",
            "earlier = compare(b, d), direction=LT", "tie = and(same, earlier)", "first = or(wins, tie)",
            "v = select(wins, a, c)", "i = select(first, b, d)", "r = tuple(v, i)",
        )  # fmt: skip
    else:
        lines = ("v = maximum(a, c)", "i = add(b, d)", "r = tuple(v, i)")
    function = s.function(scalars, *lines)
    least = s.constant(x.element_type, _neutral("maximum", x.element_type))
    zero = s.constant("s32", 0)
    sizes = [size for d, size in enumerate(x.sizes) if d != axis]
    shapes = f"({shape_of(x.element_type, tuple(sizes))}, {shape_of('s32', tuple(sizes))})"
    operands = f"{x.name}, {numbers.name}, {least}, {zero}"
    both = s.line(shapes, f"reduce({operands}), dimensions={{{axis}}}, to_apply={function}")
    s.add(f"get-tuple-element({both}), index=0", x.element_type, sizes)
    s.add(f"get-tuple-element({both}), index=1", "s32", sizes)


@_of(lambda v: _real(v) and bool(v.sizes))
def windows(s: ModuleScope, x: ArrayValue) -> None:
    opcode = s.draw.one(_combiners(x))
    if rounds(opcode, x.element_type):
        x = s.tamed(x)
    init = s.constant(x.element_type, _neutral(opcode, x.element_type))
    function = s.binary(x.element_type, opcode)
    axis = s.draw.integer(0, len(x.sizes) - 1)
    size = x.sizes[axis]
    sizes = list(x.sizes)
    if size and s.draw.chance(0.4):  # cumulative
        window, pads = [1] * len(sizes), ["0_0"] * len(sizes)
        window[axis], pads[axis] = size, s.draw.one([f"{size - 1}_0", f"0_{size - 1}"])
        text = f"size={'x'.join(map(str, window))} pad={'x'.join(pads)}"
    else:
        window = [s.draw.integer(1, 3) if n >= 3 else 1 for n in sizes]
        strides = [s.draw.integer(1, 2) for _ in sizes]
        lows = [s.draw.integer(0, w - 1) for w in window]
        sizes = [
            max(0, (n + low - w) // t + 1) for n, low, w, t in zip(sizes, lows, window, strides, strict=True)
        ]
        pads = [f"{low}_0" for low in lows]
        text = f"size={'x'.join(map(str, window))} stride={'x'.join(map(str, strides))} pad={'x'.join(pads)}"
    expression = f"reduce-window({x.name}, {init}), window={{{text}}}, to_apply={function}"
    s.add(expression, x.element_type, sizes)


@_of(lambda v: bool(v.sizes) and (v.element_type in INTEGERS or v.is_float))
def product(s: ModuleScope, x: ArrayValue) -> None:
    form, extents = (x.element_type, x.exact), set(x.sizes)
    y = s.any(lambda v: (v.element_type, v.exact) == form and bool(extents & set(v.sizes)))
    assert y is not None
    pairs = [(i, j) for i, a in enumerate(x.sizes) for j, b in enumerate(y.sizes) if a == b]
    lhs_dimension, rhs_dimension = s.draw.one(pairs)
    batches = [(i, j) for i, j in pairs if i != lhs_dimension and j != rhs_dimension]
    batch = [s.draw.one(batches)] if batches and s.draw.chance(0.5) else []
    if x.is_float and x.exact:
        x, y = s.tamed(x), s.tamed(y)
    used = [[lhs_dimension, *(i for i, _ in batch)], [rhs_dimension, *(j for _, j in batch)]]
    free = [[n for d, n in enumerate(v.sizes) if d not in u] for v, u in ((x, used[0]), (y, used[1]))]
    sizes = [*(x.sizes[i] for i, _ in batch), *free[0], *free[1]]
    if math.prod(sizes) > s.writer.most:
        return
    numbers = f"lhs_contracting_dims={{{lhs_dimension}}}, rhs_contracting_dims={{{rhs_dimension}}}"
    if batch:
        numbers += f", lhs_batch_dims={{{batch[0][0]}}}, rhs_batch_dims={{{batch[0][1]}}}"
    target = x.element_type
    if target in ("bf16", "f16", "s8", "u8") and s.draw.chance(0.5):
        target = {"s8": "s32", "u8": "u32"}.get(target, "f32")
    expression = f"dot({x.name}, {y.name}), {numbers}"
    if x.exact:
        dot = s.line(shape_of(target, tuple(sizes)), expression)
        s.settled(dot, target, sizes)
        return
    terms = max(1, x.sizes[lhs_dimension])
    limit = x.limit * y.limit * terms
    error = (x.limit * y.error + y.limit * x.error) * terms + roundoff(target) * limit
    if math.isfinite(limit):
        s.bounded(s.add(expression, target, sizes, [x, y], limit, error))


@_of(lambda v: bool(v.sizes) and _numeric(v))
def sorting(s: ModuleScope, x: ArrayValue) -> None:
    if x.is_float and x.exact:  # the sign of a NaN, and so its position in total order, is unspecified
        number = s.line(shape_of("pred", x.sizes), f"compare({x.name}, {x.name}), direction=EQ")
        one = s.full(x.element_type, x.sizes, 1)
        x = s.add(f"select({number}, {x.name}, {one})", x.element_type, x.sizes)
    order = ", type=TOTALORDER" if x.is_float else ""
    compare = f"compare(a, b), direction={s.draw.one(['LT', 'GT'])}{order}"
    axis = s.draw.integer(0, len(x.sizes) - 1)
    attributes = f"dimensions={{{axis}}}, is_stable=true"
    if s.draw.chance(0.5) or not x.exact:
        function = s.function([f"{x.element_type}[]"] * 2, f"r = {compare}")
        s.add(f"sort({x.name}), {attributes}, to_apply={function}", x.element_type, x.sizes, [x])
        return
    y = s.any(lambda v: v.sizes == x.sizes and v.exact)
    assert y is not None
    scalars = [f"{t}[]" for t in (x.element_type, x.element_type, y.element_type, y.element_type)]
    function = s.function(scalars, f"r = {compare}")
    both = s.line(f"({x.shape}, {y.shape})", f"sort({x.name}, {y.name}), {attributes}, to_apply={function}")
    s.add(f"get-tuple-element({both}), index=0", x.element_type, x.sizes)
    s.add(f"get-tuple-element({both}), index=1", y.element_type, y.sizes)


@_of(_real)
def mapping(s: ModuleScope, x: ArrayValue) -> None:
    scalar = f"{x.element_type}[]"
    function = s.function(
        [scalar, scalar],
        f"k = {scalar} constant(2)",
        "m = add(a, k)",
        "n = multiply(m, b)",
        "r = maximum(n, a)",
    )
    dimensions = braces(range(len(x.sizes)))
    operands = f"{x.name}, {s.like(x).name}"
    s.add(f"map({operands}), dimensions={dimensions}, to_apply={function}", x.element_type, x.sizes)


# -- inexact ones


def function(s: ModuleScope) -> None:
    x = s.smooth()
    if x is None or not math.isfinite(x.limit):
        return
    opcode = s.draw.one(BOUNDED).opcode
    value = s.add(
        f"{opcode}({x.name})", x.element_type, x.sizes, [x], 1.0, 1.2 * x.error + roundoff(x.element_type)
    )
    if s.draw.chance(0.5):
        one = s.full(x.element_type, x.sizes, 1)
        size = s.line(x.shape, f"abs({value.name})")
        larger = s.line(x.shape, f"add({size}, {one})")
        opcode = s.draw.one(FLATTER).opcode
        error = value.error + 2 * roundoff(x.element_type)
        s.add(f"{opcode}({larger})", x.element_type, x.sizes, [value], 2.0, error)


def smooth_arithmetic(s: ModuleScope) -> None:
    x = s.smooth()
    if x is None or not math.isfinite(x.limit):
        return
    y = s.smooth(lambda v: (v.element_type, v.sizes) == (x.element_type, x.sizes))
    assert y is not None
    if s.draw.chance(0.5):
        limit, error, opcode = x.limit + y.limit, x.error + y.error, s.draw.one(["add", "subtract"])
    else:
        limit, error, opcode = x.limit * y.limit, x.limit * y.error + y.limit * x.error, "multiply"
    error += roundoff(x.element_type) * limit
    s.bounded(s.add(f"{opcode}({x.name}, {y.name})", x.element_type, x.sizes, [x, y], limit, error))


def normalization(s: ModuleScope) -> None:
    """Add a softmax, or a division by a norm, along one dimension."""
    x = s.smooth(lambda v: bool(v.sizes) and v.element_type in ("f32", "f64") and 0 not in v.sizes)
    if x is None or not math.isfinite(x.limit):
        return
    kind, axis = x.element_type, s.draw.integer(0, len(x.sizes) - 1)
    remaining = tuple(n for d, n in enumerate(x.sizes) if d != axis)
    places = braces([d for d in range(len(x.sizes)) if d != axis])
    count = x.sizes[axis]
    softmax = s.draw.chance(0.5)
    if softmax:
        least = s.constant(kind, "-inf")
        top = s.line(
            shape_of(kind, remaining),
            f"reduce({x.name}, {least}), dimensions={{{axis}}}, to_apply={s.binary(kind, 'maximum')}",
        )
        spread = s.line(x.shape, f"broadcast({top}), dimensions={places}")
        less = s.line(x.shape, f"subtract({x.name}, {spread})")
        terms = s.line(x.shape, f"exponential({less})")
    else:
        terms = s.line(x.shape, f"multiply({x.name}, {x.name})")
    zero = s.constant(kind, 0)
    total = s.line(
        shape_of(kind, remaining),
        f"reduce({terms}, {zero}), dimensions={{{axis}}}, to_apply={s.binary(kind, 'add')}",
    )
    spread = s.line(x.shape, f"broadcast({total}), dimensions={places}")
    error = (4 * x.error + roundoff(kind)) * (count + 2) * max(1.0, x.limit) ** 3
    if softmax:
        s.add(f"divide({terms}, {spread})", kind, x.sizes, [x], 1.0, error)
        return
    larger = s.line(x.shape, f"add({spread}, {s.full(kind, x.sizes, 1)})")
    root = s.line(x.shape, f"rsqrt({larger})")
    s.add(f"multiply({x.name}, {root})", kind, x.sizes, [x], 1.0, error)


STEPS: tuple[Step, ...] = (
    arithmetic, arithmetic, arithmetic, chain, chain, unary, conversion, choice, holding, complex_numbers,
    reinterpretation, transposition, transposition, reshaping, reshaping, broadcasting, broadcasting, slicing,
    slicing, reversal, padding, padding, joining, joining, dynamic_slicing, updating, updating, gathering,
    scattering, laying_out, reducing, reducing, reducing, reducing_two, windows, product, product, sorting,
    mapping, function, smooth_arithmetic, smooth_arithmetic, normalization,
)  # fmt: skip
"""Steps without control flow."""
