"""Control flow, tuples, fusions, and dynamic dimensions."""

from __future__ import annotations

import numpy as np

from .case import Body, Case, Generator
from .conversion import shape_of
from .draw import Draw
from .movement import braces

TYPES = ("s32", "f32", "u8", "s64", "f64")
STEPS = ("add", "subtract", "maximum", "minimum", "multiply")


def while_(draw: Draw) -> Case:
    """A loop over a counter, which may run no times, and arrays; sometimes with a loop inside."""
    body = Body(draw)
    element_type, counter = draw.one(TYPES), draw.one(["s32", "u8", "s64", "u32"])
    shape = shape_of(element_type, draw.sizes(high=2))
    state = f"({counter}[], {shape}, {shape})"
    trips = draw.integer(0, 5)
    condition = body.computation(
        [state],
        "i = get-tuple-element(a), index=0",
        f"n = {counter}[] constant({trips})",
        "r = compare(i, n), direction=LT",
    )
    lines = [
        "i = get-tuple-element(a), index=0",
        "x = get-tuple-element(a), index=1",
        "y = get-tuple-element(a), index=2",
        f"one = {counter}[] constant(1)",
        "j = add(i, one)",
        f"z = {draw.one(STEPS[:-1])}(x, y)",
    ]
    if draw.chance(0.3):
        inner = body.computation([shape], f"{draw.one(['r = negate(a)', 'r = add(a, a)', 'r = copy(a)'])}")
        lines.append(f"w = call(z), to_apply={inner}")
    else:
        lines.append("w = copy(z)")
    order = draw.one(["j, w, x", "j, x, w", "j, y, w", "j, w, y"])
    step = body.computation([state], *lines, f"r = tuple({order})")
    sizes = tuple(int(n) for n in shape[shape.index("[") + 1 : -1].split(",") if n)
    start = body.parameter(draw.small_values(counter, (), 2))
    arrays = [body.parameter(draw.small_values(element_type, sizes)) for _ in range(2)]
    initial = body.let(f"tuple({', '.join([start, *arrays])})")
    root = body.let(f"while({initial}), condition={condition}, body={step}")
    return body.case(f"while {element_type}", *body.elements(root, 3))


def conditional(draw: Draw) -> Case:
    """By a predicate, or by an index that may be out of range."""
    body = Body(draw)
    element_type = draw.one(TYPES)
    sizes = draw.sizes(high=3)
    shape = shape_of(element_type, sizes)
    predicate = draw.chance(0.4)
    count = 2 if predicate else draw.integer(1, 4)
    branches = [
        body.computation(
            [shape], draw.one(["r = negate(a)", "r = add(a, a)", "r = copy(a)", "r = multiply(a, a)"])
        )
        for _ in range(count)
    ]
    operands = [body.parameter(draw.small_values(element_type, sizes)) for _ in range(count)]
    if predicate:
        choice = body.parameter(draw.any_values("pred", ()))
        which = f"true_computation={branches[0]}, false_computation={branches[1]}"
    else:
        choice = body.parameter(draw.one([draw.small_values("s32", (), 5), draw.any_values("s32", ())]))
        which = f"branch_computations={{{', '.join(branches)}}}"
    root = body.let(f"conditional({', '.join([choice, *operands])}), {which}")
    return body.case(f"conditional of {count}", root)


def calls(draw: Draw) -> Case:
    """Calls, fusions, nested tuples, barriers and dependencies around simple arithmetic."""
    body = Body(draw)
    element_type = draw.one(TYPES)
    kind = draw.one(["call", "fusion", "tuple", "barrier", "dependency"])
    sizes = draw.sizes(high=3)
    if kind == "fusion":
        sizes = tuple(max(1, size) for size in sizes)  # XLA does away with empty arrays inside, and fails
    shape = shape_of(element_type, sizes)
    x, y = (body.parameter(draw.small_values(element_type, sizes)) for _ in range(2))
    match kind:
        case "call":
            inner = body.computation([shape, shape], f"r = {draw.one(STEPS)}(a, b)")
            function = body.computation(
                [shape, shape], f"m = call(b, a), to_apply={inner}", f"r = call(m, b), to_apply={inner}"
            )
            root = body.let(f"call({x}, {y}), to_apply={function}")
        case "fusion":
            function = body.computation(
                [shape, shape],
                f"m = {draw.one(STEPS)}(a, b)",
                "n = negate(m)",
                f"r = {draw.one(STEPS)}(n, a)",
            )
            root = body.let(f"{shape} fusion({x}, {y}), kind=kLoop, calls={function}")
        case "tuple":
            inner = body.let(f"tuple({x}, {y})")
            outer = body.let(f"tuple({inner}, {y}, {inner})")
            picked = body.let(f"get-tuple-element({outer}), index={draw.one([0, 2])}")
            root = body.let(f"get-tuple-element({picked}), index={draw.integer(0, 1)}")
        case "barrier":
            both = body.let(f"tuple({x}, {y})")
            held = body.let(f"({shape}, {shape}) opt-barrier({both})")
            root = body.let(f"get-tuple-element({held}), index={draw.integer(0, 1)}")
        case _:
            token = body.let("token[] after-all()")
            joined = body.let(f"token[] after-all({token})")
            after = body.let(f"add-dependency({x}, {joined})")
            root = body.let(f"{draw.one(STEPS)}({after}, {y})")
    return body.case(kind, root)


def dynamic(draw: Draw) -> Case:
    """Dimensions with a size known at run time, through operations that respect it."""
    body = Body(draw)
    element_type = draw.one(["s32", "f32", "u8"])
    sizes = [draw.integer(1, 6) for _ in range(draw.integer(1, 3))]
    axis = draw.integer(0, len(sizes) - 1)
    actual = draw.integer(0, sizes[axis])
    operand = body.parameter(draw.small_values(element_type, sizes))
    size = body.parameter(np.array(actual, np.int32))
    value = body.let(f"set-dimension-size({operand}, {size}), dimensions={{{axis}}}")
    steps: list[str] = []
    for _ in range(draw.integer(0, 2)):
        kind = draw.one(["negate", "add", "transpose", "convert"])
        steps.append(kind)
        match kind:
            case "negate":
                value = body.let(f"negate({value})")
            case "add":
                value = body.let(f"add({value}, {value})")
            case "transpose":
                order = draw.permutation(len(sizes))
                value = body.let(f"transpose({value}), dimensions={braces(order)}")
                sizes = [sizes[d] for d in order]
                axis = order.index(axis)
            case _:
                bounds = ",".join(f"<={s}" if d == axis else str(s) for d, s in enumerate(sizes))
                value = body.let(f"s32[{bounds}] convert({value})")
                element_type = "s32"
    end = draw.one(["reduce", "size", "whole", "reverse", "slice"])
    match end:
        case "reduce":
            zero = body.let(f"{element_type}[] constant(0)")
            function = body.binary(element_type, "add")
            dimensions = braces(draw.subset(range(len(sizes)), draw.integer(1, len(sizes))))
            root = body.let(f"reduce({value}, {zero}), dimensions={dimensions}, to_apply={function}")
        case "size":
            root = body.let(
                f"s32[] get-dimension-size({value}), dimensions={{{draw.integer(0, len(sizes) - 1)}}}"
            )
        case "slice":
            zero = body.let("s32[] constant(0)")
            names = ", ".join([value, *[zero] * len(sizes)])
            window = [min(1, s) for s in sizes]
            root = body.let(
                f"{shape_of(element_type, window)} dynamic-slice({names}), dynamic_slice_sizes={braces(window)}"
            )
        case "reverse":
            root = body.let(f"reverse({value}), dimensions={{{axis}}}")
        case _:
            root = value
    return body.case(f"dynamic {' '.join(steps)} {end}", root, dynamic=True)


FAMILIES: dict[str, Generator] = {
    "while": while_, "conditional": conditional, "calls": calls, "dynamic": dynamic,
}  # fmt: skip
