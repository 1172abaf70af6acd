"""Generators of control flow, calls, tuples, fusions, and dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Draw
from hloom.fuzzing.generators.movement import braces
from hloom.fuzzing.generators.opcodes import arithmetic
from hloom.operations.arithmetic import Multiply

TYPES = ("s32", "f32", "u8", "s64", "f64")


@family("while")
def while_(draw: Draw, body: CaseBody) -> Case:
    """Draw a loop over a counter and arrays, perhaps with no iterations or with a nested loop."""
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
        f"z = {draw.one([o for o in arithmetic(element_type) if o != Multiply.opcode])}(x, y)",
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


@family("conditional")
def conditional(draw: Draw, body: CaseBody) -> Case:
    """Draw a conditional by a predicate, or by an index that may be out of range."""
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


@family("calls", corners=True)
def calls(draw: Draw, body: CaseBody) -> Case:
    """Draw calls, fusions, nested tuples, barriers and control dependencies around simple arithmetic."""
    element_type = draw.one(TYPES)
    kind = draw.one(["call", "fusion", "tuple", "barrier", "dependency"])
    sizes = draw.sizes(high=3)
    if kind == "fusion" and draw.restricted:
        sizes = tuple(max(1, size) for size in sizes)  # XLA does away with empty arrays inside, and fails
    shape, opcodes = shape_of(element_type, sizes), arithmetic(element_type)
    x, y = (body.parameter(draw.small_values(element_type, sizes)) for _ in range(2))
    match kind:
        case "call":
            inner = body.computation([shape, shape], f"r = {draw.one(opcodes)}(a, b)")
            function = body.computation(
                [shape, shape], f"m = call(b, a), to_apply={inner}", f"r = call(m, b), to_apply={inner}"
            )
            root = body.let(f"call({x}, {y}), to_apply={function}")
        case "fusion":
            function = body.computation(
                [shape, shape],
                f"m = {draw.one(opcodes)}(a, b)",
                "n = negate(m)",
                f"r = {draw.one(opcodes)}(n, a)",
            )
            root = body.let(f"{shape} fusion({x}, {y}), kind=kLoop, calls={function}")
        case "tuple":
            inner = body.let(f"tuple({x}, {y})")
            outer = body.let(f"tuple({inner}, {y}, {inner})")
            picked = body.let(f"get-tuple-element({outer}), index={draw.one([0, 2])}")
            root = body.let(f"get-tuple-element({picked}), index={draw.integer(0, 1)}")
        case "barrier":
            both = body.let(f"tuple({x}, {y})")
            barrier = body.let(f"({shape}, {shape}) opt-barrier({both})")
            root = body.let(f"get-tuple-element({barrier}), index={draw.integer(0, 1)}")
        case _:
            token = body.let("token[] after-all()")
            joined = body.let(f"token[] after-all({token})")
            after = body.let(f"add-dependency({x}, {joined})")
            root = body.let(f"{draw.one(opcodes)}({after}, {y})")
    return body.case(kind, root)


def reduced(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    zero = body.let(f"{element_type}[] constant(0)")
    function = body.binary(element_type, "add")
    dimensions = braces(body.draw.subset(range(len(sizes)), body.draw.integer(1, len(sizes))))
    return body.let(f"reduce({value}, {zero}), dimensions={dimensions}, to_apply={function}")


def measured(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    which = body.draw.integer(0, len(sizes) - 1)
    return body.let(f"s32[] get-dimension-size({value}), dimensions={{{which}}}")


def sliced(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    zero = body.let("s32[] constant(0)")
    names = ", ".join([value, *[zero] * len(sizes)])
    window = [min(1, s) for s in sizes]
    shape = shape_of(element_type, window)
    return body.let(f"{shape} dynamic-slice({names}), dynamic_slice_sizes={braces(window)}")


def reversed_(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    return body.let(f"reverse({value}), dimensions={{{axis}}}")


def sorted_(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    scalar = f"{element_type}[]"
    function = body.computation([scalar, scalar], "r = compare(a, b), direction=LT")
    which = body.draw.integer(0, len(sizes) - 1)
    return body.let(f"sort({value}), dimensions={{{which}}}, is_stable=true, to_apply={function}")


def multiplied(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    numbers = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
    return body.let(f"dot({value}, {value}), {numbers}")


def summed_up(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    # XLA ignores padding in the dynamic size of a result, so there is none here.
    zero = body.let(f"{element_type}[] constant(0)")
    function = body.binary(element_type, "add")
    window = "x".join("2" if d == axis and size > 1 else "1" for d, size in enumerate(sizes))
    return body.let(f"reduce-window({value}, {zero}), window={{size={window}}}, to_apply={function}")


def joined(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    suffix = body.parameter(body.draw.small_values(element_type, sizes))
    other = next((d for d in range(len(sizes)) if d != axis), axis)
    operands = [value, suffix] if other == axis else [value, value]
    return body.let(f"concatenate({', '.join(operands)}), dimensions={{{other}}}")


def itself(body: CaseBody, value: str, element_type: str, sizes: list[int], axis: int) -> str:
    return value


ENDS: dict[str, Callable[[CaseBody, str, str, list[int], int], str]] = {
    "reduce": reduced, "size": measured, "slice": sliced, "reverse": reversed_, "sort": sorted_,
    "dot": multiplied, "window": summed_up, "concatenate": joined, "whole": itself,
}  # fmt: skip
"""Final operations on an array of dynamic size."""


@family("dynamic", corners=True)
def dynamic(draw: Draw, body: CaseBody) -> Case:
    """Draw operations on arrays with a dynamic dimension, whose size is known at run time."""
    element_type = draw.one(["s32", "f32", "u8"])
    sizes = [draw.integer(1, 6) for _ in range(draw.integer(1, 3))]
    axis = draw.integer(0, len(sizes) - 1)
    end = draw.one(list(ENDS))
    # XLA's process ends if a window is larger than the array.
    least = min(2, sizes[axis]) if end == "window" and draw.restricted else 0
    actual = draw.integer(least, sizes[axis])
    operand = body.parameter(draw.small_values(element_type, sizes))
    size = body.parameter(np.array(actual, np.int32))
    value = body.let(f"set-dimension-size({operand}, {size}), dimensions={{{axis}}}")
    steps: list[str] = []
    for _ in range(draw.integer(0, 2)):
        match draw.integer(0, 3):
            case 0:
                text = f"negate({value})"
            case 1:
                text = f"add({value}, {value})"
            case 2:
                order = draw.permutation(len(sizes))
                text = f"transpose({value}), dimensions={braces(order)}"
                sizes = [sizes[d] for d in order]
                axis = order.index(axis)
            case _:
                bounds = ",".join(f"<={s}" if d == axis else str(s) for d, s in enumerate(sizes))
                text = f"s32[{bounds}] convert({value})"
                element_type = "s32"
        value = body.let(text)
        steps.append(text.split("(")[0].split(" ")[-1])
    root = ENDS[end](body, value, element_type, sizes, axis)
    return body.case(f"dynamic {' '.join(steps)} {end}", root, dynamic=True)
