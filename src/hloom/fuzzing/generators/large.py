"""Products, reductions and convolutions large enough that kernels divide them into tiles, blocks and tasks.

Values are small whole numbers: all sums are exact in any order, so that results must be the same numbers.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.contraction import labels, laid_out
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Draw
from hloom.fuzzing.generators.movement import braces
from hloom.fuzzing.generators.opcodes import neutral

LENGTHS: Final = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 15, 16, 17, 20, 24, 31, 32, 33, 48, 50, 63, 64, 65, 100, 110, 128, 129,
    200, 256, 257, 333, 512, 600, 807, 1000, 1024, 1607, 2048, 2380, 3000, 4096,
)  # fmt: skip
"""Sizes of dimensions: around those of registers, cache lines, tiles and blocks, and between."""
LEAST_ELEMENTS: Final = 1 << 11
MOST_ELEMENTS: Final = 1 << 20
"""Number of elements of an array; the minimum is that of reductions."""
STEPS: Final = range(1 << 20, 1 << 27)
"""Number of products of a case."""
SUMMED: Final = {"f32": "f32", "f64": "f64", "bf16": "f32", "s8": "s32", "s32": "s32"}
"""Element types of factors, and of sums that are exact."""
LARGEST: Final = 2
"""Magnitude of values: 4 million products of two are exact in f32."""


def lengths(draw: Draw, count: int) -> list[int]:
    """Return the lengths of the dimensions of a large array."""
    while True:
        sizes = [draw.one(LENGTHS) for _ in range(count)]
        if LEAST_ELEMENTS <= math.prod(sizes) <= MOST_ELEMENTS:
            return sizes


@family("large-dot", weight=2)
def large_dot(draw: Draw, body: CaseBody) -> Case:
    """Draw a product of matrices in any arrangement, alone or in a few batches, perhaps with an epilogue."""
    kind = draw.one(tuple(SUMMED))
    batch = [draw.one([2, 5, 40])] if draw.chance(0.2) else []
    while True:
        m, k, n = (draw.one(LENGTHS) for _ in range(3))
        count = math.prod(batch)
        if max(m * k, k * n, m * n) * count <= MOST_ELEMENTS and m * k * n * count in STEPS:
            break
    factors: list[str] = []
    numbers: list[str] = []
    for side, size in (("lhs", m), ("rhs", n)):
        sizes, inner = ([k, size], 0) if draw.chance(0.5) else ([size, k], 1)
        factors.append(body.parameter(draw.small_values(kind, [*batch, *sizes], LARGEST)))
        numbers.append(f"{side}_contracting_dims={{{len(batch) + inner}}}")
        numbers += [f"{side}_batch_dims={{0}}"] * len(batch)
    result = shape_of(SUMMED[kind], [*batch, m, n])
    root = body.let(f"{result} dot({', '.join(factors)}), {', '.join(numbers)}")
    if draw.chance(0.3):
        other = body.parameter(draw.small_values(SUMMED[kind], [*batch, m, n], LARGEST))
        root = body.let(f"{result} add({root}, {other})")
    return body.case(f"large dot {kind}", root)


@family("large-reduce", weight=2)
def large_reduce(draw: Draw, body: CaseBody) -> Case:
    """Draw a sum or a maximum along any dimensions of an array times factors along some of them."""
    kind = draw.one(["f32", "f64", "s32"])
    opcode = draw.one(["add", "maximum"])
    sizes = lengths(draw, draw.integer(1, 4))
    shape = shape_of(kind, sizes)
    x = body.parameter(draw.small_values(kind, sizes, LARGEST))
    along = sorted(draw.subset(range(len(sizes))))
    factor = body.parameter(draw.small_values(kind, [sizes[d] for d in along], LARGEST))
    wide = body.let(f"{shape} broadcast({factor}), dimensions={braces(along)}")
    combined = draw.one(["multiply", "add"]) if opcode == "add" else "add"  # products are zeros of both signs
    operand = body.let(f"{shape} {combined}({x}, {wide})")
    start = body.parameter(neutral(opcode, kind))  # others count as often as the implementation likes
    function = body.binary(kind, opcode)
    reduced = draw.subset(range(len(sizes)), draw.integer(1, len(sizes)))
    root = body.let(f"reduce({operand}, {start}), dimensions={braces(reduced)}, to_apply={function}")
    return body.case(f"large reduce {opcode} {kind}", root)


@family("large-convolution", weight=2)
def large_convolution(draw: Draw, body: CaseBody) -> Case:
    """Draw a convolution with many features: any layout, strides, paddings, dilations, groups."""
    kind, rank = draw.one(tuple(SUMMED)), draw.integer(1, 3)
    while True:
        base = [draw.one([1, 1, 2, 3, 5, 8, 14, 15, 28, 40]) for _ in range(rank)]
        window = [draw.one([1, 1, 2, 3, 3, 4, 5, 7]) for _ in range(rank)]
        groups = draw.one([1, 1, 1, 2, 16])
        inputs, outputs = (draw.one([1, 3, 8, 16, 31, 64, 96, 128, 256, 512]) for _ in range(2))
        batch = draw.one([1, 2, 8])
        stride, holes = ([draw.one([1, 1, 2, 3]) for _ in base] for _ in range(2))
        pads = [(draw.integer(0, size - 1), draw.integer(0, size // 2)) for size in window]
        extents = [(size - 1) * hole + 1 for size, hole in zip(window, holes, strict=True)]
        padded = [size + low + high for size, (low, high) in zip(base, pads, strict=True)]
        if any(extent > size for extent, size in zip(extents, padded, strict=True)):
            continue
        positions = [(p - e) // s + 1 for p, e, s in zip(padded, extents, stride, strict=True)]
        kernel, results = inputs * outputs * groups * math.prod(window), batch * math.prod(positions)
        arrays = batch * inputs * groups * math.prod(base), kernel, results * outputs * groups
        if max(arrays) <= MOST_ELEMENTS and kernel * results // groups in STEPS:
            break
    (lhs, in_order), (rhs, of_kernel), (out, of_out) = (
        labels(draw, some, rank) for some in ("bf", "io", "bf")
    )
    x = body.parameter(draw.small_values(kind, laid_out([batch, inputs * groups, *base], in_order), LARGEST))
    w = body.parameter(
        draw.small_values(kind, laid_out([inputs, outputs * groups, *window], of_kernel), LARGEST)
    )
    fields = {
        "size": window, "stride": stride, "pad": [f"{low}_{high}" for low, high in pads], "rhs_dilate": holes,
    }  # fmt: skip
    text = " ".join(f"{name}={'x'.join(map(str, values))}" for name, values in fields.items())
    result = shape_of(SUMMED[kind], laid_out([batch, outputs * groups, *positions], of_out))
    root = body.let(
        f"{result} convolution({x}, {w}), window={{{text}}}, dim_labels={lhs}_{rhs}->{out}, "
        f"feature_group_count={groups}"
    )
    return body.case(f"large convolution {kind}", root)
