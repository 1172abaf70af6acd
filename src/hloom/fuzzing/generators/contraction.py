"""Dots and convolutions: any dimension order, any types, windows with dilations, reversal and cropping."""

from __future__ import annotations

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import EVERY, Array, Draw
from hloom.fuzzing.generators.movement import braces

WIDER = {
    "s8": ["s32"], "u8": ["u32", "s32"], "s16": ["s32"],
    "bf16": ["f32"], "f16": ["f32"], "f8e4m3fn": ["bf16", "f32"], "f8e5m2": ["f32"], "s32": ["s64"],
}  # fmt: skip
"""Types of results that may be stated instead of the operands' own."""


def operand_values(draw: Draw, element_type: str, sizes: list[int], exact: bool) -> Array:
    """Return numbers whose products and sums are exact, if `exact`, else ordinary ones; integers are any."""
    if element_type[0] in "su" and not exact:
        return draw.any_values(element_type, sizes)
    if exact:
        return draw.small_values(element_type, sizes, 2)
    return draw.ordinary_values(element_type, sizes)


@family("dot", weight=2, corners=True)
def dot(draw: Draw, body: CaseBody) -> Case:
    """Draw a dot with any dimension numbers. XLA has no dots of two-bit integers."""
    every = [t for t in EVERY if t not in ("s2", "u2") or not draw.restricted]
    usual = ["f32", "f64", "bf16", "s8", "s32", "c64", *draw.types]
    element_type = draw.element_type(every if draw.chance(0.6) else usual)
    batch = [draw.size(3) for _ in range(draw.integer(0, 2))]
    inner = [draw.size(5) for _ in range(draw.integer(0, 2))]
    if inner and draw.chance(0.1):
        inner[0] = draw.one([31, 33, 70])
    sides: list[str] = []
    numbers: list[str] = []
    exact = draw.chance(0.5)
    free: list[int] = []
    for side in ("lhs", "rhs"):
        free_sizes = [draw.size(4) for _ in range(draw.integer(0, 2))]
        sizes = [*batch, *inner, *free_sizes]
        order = draw.permutation(len(sizes))
        laid = [0] * len(sizes)
        for size, at in zip(sizes, order, strict=True):
            laid[at] = size
        free += [laid[at] for at in sorted(order[len(batch) + len(inner) :])]
        sides.append(body.parameter(operand_values(draw, element_type, laid, exact)))
        if batch:
            numbers.append(f"{side}_batch_dims={braces(order[: len(batch)])}")
        numbers.append(f"{side}_contracting_dims={braces(order[len(batch) : len(batch) + len(inner)])}")
    result = draw.one(WIDER[element_type]) if element_type in WIDER and draw.chance(0.4) else element_type
    result_shape = shape_of(result, [*batch, *free]) + " " if result != element_type else ""
    root = body.let(f"{result_shape}dot({', '.join(sides)}), {', '.join(numbers)}")
    label = f"dot {element_type}" + (f" to {result}" if result_shape else "")
    return body.case(label, root)


def labels(draw: Draw, letters: str, rank: int) -> tuple[str, list[int]]:
    """Return dimension labels in random order as text, and the dimension of each role, letters first."""
    roles = [*letters, *map(str, range(rank))]
    order = draw.permutation(len(roles)) if draw.chance(0.6) else list(range(len(roles)))
    text = [""] * len(roles)
    for role, at in zip(roles, order, strict=True):
        text[at] = role
    return "".join(text), order


def laid_out(sizes: list[int], order: list[int]) -> list[int]:
    """Return sizes in the order of dimensions, from sizes in the order of roles."""
    result = [0] * len(sizes)
    for size, at in zip(sizes, order, strict=True):
        result[at] = size
    return result


def spatial_window(draw: Draw, base: list[int], window: list[int], crop: bool) -> tuple[str, list[int]]:
    """Return a window with strides, padding, dilations and reversal as text, and its number of positions.

    Where a crop and a padding cancel each other, XLA:CPU reads beyond the row, in the end beyond the array.
    """
    rank = len(base)
    ones = [1] * rank
    stride = [draw.integer(1, 3) for _ in base] if draw.chance(0.5) else ones
    holes = [draw.integer(1, 2) for _ in base] if draw.chance(0.4) else ones
    spread = [draw.integer(1, 3) for _ in base] if draw.chance(0.4) else ones
    reversal = [draw.integer(0, 1) for _ in base] if draw.chance(0.3) else [0] * rank
    pads: list[str] = []
    positions: list[int] = []
    for number, size in enumerate(base):
        extent = (window[number] - 1) * holes[number] + 1
        dilated = (size - 1) * spread[number] + 1
        low, high = (draw.integer(-1 if crop else 0, 3) for _ in range(2))
        if draw.chance(0.9):
            high = max(high, extent - dilated - low)
        high = max(high, -(dilated + low))
        if draw.restricted:
            high += low == -high < 0
        pads.append(f"{low}_{high}")
        positions.append(max(0, (low + dilated + high - extent) // stride[number] + 1))
    if not rank:
        return "", []
    fields = {
        "stride": stride,
        "pad": pads,
        "lhs_dilate": spread,
        "rhs_dilate": holes,
        "rhs_reversal": reversal,
    }
    text = [f"size={'x'.join(map(str, window))}"]
    text += [f"{name}={'x'.join(map(str, v))}" for name, v in fields.items() if v not in (ones, [0] * rank)]
    return f"window={{{' '.join(text)}}}, ", positions


@family("convolution", weight=3, corners=True)
def convolution(draw: Draw, body: CaseBody) -> Case:
    """Draw a convolution of up to three spatial dimensions: any window, feature groups or batch groups.

    Where XLA crops f16, it reads beyond the array.
    """
    rank = draw.integer(0, 3)
    feature_groups = draw.one([1, 1, 1, 2, 3])
    batch_groups = 1 if feature_groups > 1 else draw.one([1, 1, 1, 2])
    in_features, out_features = draw.integer(1, 3), draw.integer(1, 3) * feature_groups * batch_groups
    batch = draw.integer(1, 2)
    base = [draw.integer(1, 6 if rank < 3 else 4) for _ in range(rank)]
    window = [draw.integer(1, 3) for _ in range(rank)]
    element_type = draw.element_type(CONVOLVED)
    result = draw.one(WIDER[element_type]) if element_type in WIDER and draw.chance(0.4) else element_type
    attributes, positions = spatial_window(
        draw, base, window, crop=element_type != "f16" or not draw.restricted
    )
    lhs_labels, lhs_order = labels(draw, "bf", rank)
    rhs_labels, rhs_order = labels(draw, "io", rank)
    out_labels, out_order = labels(draw, "bf", rank)
    exact = draw.chance(0.6)
    lhs_sizes = laid_out([batch * batch_groups, in_features * feature_groups, *base], lhs_order)
    rhs_sizes = laid_out([in_features, out_features, *window], rhs_order)
    lhs = body.parameter(operand_values(draw, element_type, lhs_sizes, exact))
    rhs = body.parameter(operand_values(draw, element_type, rhs_sizes, exact))
    attributes += f"dim_labels={lhs_labels}_{rhs_labels}->{out_labels}"
    if feature_groups > 1:
        attributes += f", feature_group_count={feature_groups}"
    if batch_groups > 1:
        attributes += f", batch_group_count={batch_groups}"
    result_shape = shape_of(result, laid_out([batch, out_features, *positions], out_order)) + " "
    root = body.let(
        f"{result_shape if result != element_type else ''}convolution({lhs}, {rhs}), {attributes}"
    )
    label = f"convolution {element_type}" + (f" to {result}" if result != element_type else "")
    return body.case(label, root)


CONVOLVED = ("f32", "f32", "f64", "bf16", "f16", "s8", "s32", "u8", "u64", "c64", "c128", "f8e4m3fn")
"""Element types of convolutions."""
