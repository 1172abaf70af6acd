"""Convolutions of the cpu backend: every window option, layout, grouping and type."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from hloom.codegen.target import Target, host
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.kernels.convolution.convolution import plan_of
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import emit_program
from hloom.ir.window import WindowDimension
from tests import agreement
from tests.cpu.window_draws import TYPES, any_window, sizes_text, text_of
from tests.evaluation import parse
from tests.native_runs import Native, agree, compiled, draw
from tests.processors import PROCESSORS, runs_here


def convolution(
    lhs: str, rhs: str, attributes: str, result: str = ""
) -> str:  # fmt: skip
    return (
        f"x = {lhs} parameter(0)\n w = {rhs} parameter(1)\n ROOT r = {result} convolution(x, w), {attributes}"
    )


def check(lhs: str, rhs: str, attributes: str, result: str = "") -> Any:
    """Native code and evaluator agree; returns the plan."""
    text = convolution(lhs, rhs, attributes, result)
    rng = np.random.default_rng(0)
    agree(text, draw(rng, lhs), draw(rng, rhs), rounded=True)
    return planned(text, host())


def planned(text: str, target: Target) -> Any:
    """Return the plan of the convolution that is a program's result."""
    return plan_of(parse(text).entry.root, target)


def drawn(rng: random.Random, kind: str) -> tuple[str, str, str]:
    """(lhs, rhs, attributes) of a random convolution."""
    spatial = rng.choice([0, 1, 2, 2, 3])
    groups, batch_groups = rng.choice([(1, 1), (1, 1), (2, 1), (16, 1), (1, 2)])
    depth, columns = rng.choice([1, 2, 5, 16]), rng.choice([1, 2, 4, 17, 40])
    digits = "".join(map(str, range(spatial)))
    sizes = [rng.choice([1, 4, 9, 19]) if spatial < 3 else rng.randint(1, 5) for _ in range(spatial)]
    window = [any_window(rng, size) for size in sizes]
    labels = ["b" + digits + "f", digits + "io", "b" + digits + "f"]
    if rng.random() < 0.5:
        labels = ["".join(rng.sample(label, len(label))) for label in labels]
    outputs = columns * groups * batch_groups
    lhs = {"b": batch_groups * rng.randint(1, 3), "f": depth * groups, **dict(zip(digits, sizes))}
    rhs = {"i": depth, "o": outputs, **{d: w.size for d, w in zip(digits, window)}}
    attributes = f"{text_of(window)}, " if window else ""
    attributes += f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    attributes += f", feature_group_count={groups}" * (groups > 1)
    attributes += f", batch_group_count={batch_groups}" * (batch_groups > 1)
    shapes = (
        f"{kind}[{sizes_text([s[c] for c in label])}]" for s, label in ((lhs, labels[0]), (rhs, labels[1]))
    )
    return next(shapes), next(shapes), attributes


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(8))
def test_any_convolution_of_any_type(kind: str, seed: int) -> None:
    check(*drawn(random.Random(f"{kind}{seed}"), kind))


SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"


@pytest.mark.parametrize("width", [1, 2, 5, 13, 29, 60])
@pytest.mark.parametrize("outputs", [2, 16, 24, 48, 80])
def test_borders_and_panels(width: int, outputs: int) -> None:
    check(f"f32[2,5,{width},3]", f"f32[3,3,3,{outputs}]", SAME)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("hole", [1, 2, 3])
def test_strides_and_dilations(stride: int, dilation: int, hole: int) -> None:
    parts = [
        f"{name}={n}x{n}" for name, n in (("stride", stride), ("lhs_dilate", hole), ("rhs_dilate", dilation))
    ]
    window = f"window={{size=3x3 pad=2_1x1_2 {' '.join(parts)}}}"
    check("f32[2,9,21,4]", "f32[3,3,4,20]", f"{window}, dim_labels=b01f_01io->b01f")
    check("f32[2,9,21,4]", "f32[3,3,4,20]", f"{window[:-1]} rhs_reversal=1x1}}, dim_labels=b01f_01io->b01f")


def test_windows_longer_than_the_base() -> None:
    """The gradient of a kernel: the other gradient is the window, results are few."""
    check("f32[4,10,10,3]", "f32[4,10,10,8]", "window={size=10x10 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf")
    check("f32[4,10,10,1]", "f32[4,10,10,8]", "window={size=10x10 pad=2_2x2_2}, dim_labels=f01b_i01o->01bf")
    check(
        "f32[4,12,12,9]",
        "f32[4,6,6,8]",
        "window={size=6x6 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf",
    )


def test_taps_are_split_where_the_kernel_is_large() -> None:
    """The plans are those for vectors of 64 bytes: panels of shorter ones may fit into the cache."""
    given = ["f32[2,4,5,256]", "f32[3,3,256,96]", SAME]
    check(*given)
    assert planned(convolution(*given), PROCESSORS["x86-64-v4"]).phases[0].tiling.split is not None
    given = [
        "f32[8,30,30,24]", "f32[8,30,30,40]", "window={size=30x30 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
    ]  # fmt: skip
    check(*given)
    assert planned(convolution(*given), PROCESSORS["x86-64-v4"]).phases[0].tiling.split is not None


@pytest.mark.parametrize(
    ("sizes", "window", "depth", "outputs"),
    [
        ((1, 1), "size=3x3 pad=1_1x1_1", 512, 512),
        ((1, 4), "size=3x3 pad=1_1x1_1", 256, 512),
        ((2, 2), "size=3x3 stride=2x2 pad=0_1x0_1", 256, 512),
        ((1, 1, 2), "size=3x3x3 pad=1_1x1_1x1_1", 128, 256),
        ((2, 2, 8), "size=4x2x7 stride=1x3x2 pad=3_2x1_0x6_3 rhs_dilate=2x2x1", 31, 128),
    ],
)
def test_ranges_of_taps_leave_out_the_padding_of_a_single_position(
    sizes: tuple[int, ...], window: str, depth: int, outputs: int
) -> None:
    """A large kernel is read in ranges of taps, of which some lie outside of a base with one position."""
    taps = window.split()[0].removeprefix("size=").replace("x", ",")
    digits = "012"[: len(sizes)]
    given = [
        f"f32[2,{','.join(map(str, sizes))},{depth}]",
        f"f32[{taps},{depth},{outputs}]",
        f"window={{{window}}}, dim_labels=b{digits}f_{digits}io->b{digits}f",
    ]
    check(*given)
    assert planned(convolution(*given), PROCESSORS["x86-64-v4"]).phases[0].tiling.split is not None


@pytest.mark.parametrize(
    ("width", "channels", "outputs", "packs"),
    [(14, 128, 128, True), (20, 64, 64, True), (14, 64, 64, False), (6, 128, 128, False)],
)
def test_kernels_whose_rows_are_far_apart_are_packed(
    width: int, channels: int, outputs: int, packs: bool
) -> None:
    """Packing takes less time than it saves if many positions read a panel."""
    operands = f"f32[1,{width},{width},{channels}]", f"f32[3,3,{channels},{outputs}]"
    check(*operands, SAME)
    (phase,) = planned(convolution(*operands, SAME), PROCESSORS["x86-64-v3"]).phases
    assert phase.packs_kernel is packs


@pytest.mark.parametrize(("channels", "outputs"), [(64, 40), (61, 33), (96, 16)])
@pytest.mark.parametrize("window", ["pad=1_1x1_1", "pad=1_0x0_1 rhs_dilate=2x2"])
def test_gradients_of_kernels_read_the_base_in_strips(channels: int, outputs: int, window: str) -> None:
    """Tiles of a few channels read a strip of each pixel, for every tap and every panel of outputs."""
    size = 12 if "rhs_dilate" in window else 24
    attributes = f"window={{size={size}x{size} {window}}}, dim_labels=f01b_i01o->01bf"
    operands = f"f32[4,24,24,{channels}]", f"f32[4,{size},{size},{outputs}]"
    check(*operands, attributes)
    plan = planned(convolution(*operands, attributes), PROCESSORS["x86-64-v3"])
    tiling = plan.phases[0].tiling
    assert plan.convolution.strip == tiling.rows
    assert tiling.pieces_first and tiling.pieces > 1


@pytest.mark.parametrize(("channels", "in_strips"), [(128, True), (120, False)])
def test_taps_that_share_sets_of_the_cache_are_read_in_strips(channels: int, in_strips: bool) -> None:
    """Neighboring taps are a power of two apart: the base is small, but the sets that they share are few."""
    attributes = "window={size=4x4 pad=1_1x1_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"
    operands = f"f32[4,8,8,{channels}]", "f32[4,4,4,64]"
    check(*operands, attributes)
    plan = planned(convolution(*operands, attributes), PROCESSORS["x86-64-v3"])
    assert bool(plan.convolution.strip) is in_strips


@pytest.mark.parametrize("positions", [2, 5])
def test_sums_begin_with_zero(positions: int) -> None:
    """The only product of the last position is -0; windows may be more or fewer than their taps."""
    x, w = np.zeros((1, 2 * positions - 1, 1), np.float32), -np.ones((3, 1, 1), np.float32)
    window = "window={size=3 stride=2 pad=0_2}, dim_labels=b0f_0io->b0f"
    text = convolution(f"f32[1,{2 * positions - 1},1]", "f32[3,1,1]", window)
    got = agree(text, x, w)
    assert got.shape == (1, positions, 1)
    assert not np.signbit(got).any()


CLASSES = {
    "features": ("f32[2,6,19,24]", "f32[3,3,24,40]", SAME),
    "doubles": ("f64[2,6,19,24]", "f64[3,3,24,40]", SAME),
    "complex": ("c64[2,6,19,4]", "c64[3,3,4,12]", SAME),
    "narrow": ("bf16[2,6,19,16]", "bf16[3,3,16,32]", SAME),
    "bytes": ("s8[2,6,19,16]", "s8[3,3,16,32]", SAME),
    "groups": ("f32[2,6,19,32]", "f32[3,3,4,32]", f"{SAME}, feature_group_count=8"),
    "depthwise": ("f32[2,6,19,32]", "f32[3,3,1,32]", f"{SAME}, feature_group_count=32"),
    "depth": ("f32[2,6,19,32]", "f32[3,3,32,2]", SAME),
}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("given", CLASSES.values(), ids=CLASSES)
def test_lesser_processors(name: str, given: tuple[str, str, str]) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    rng, module = np.random.default_rng(0), parse(convolution(*given))
    values = [draw(rng, given[0]), draw(rng, given[1])]
    agreement.computed(Native(module, PROCESSORS[name])(*values), module, values)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("given", ["features", "doubles", "complex", "narrow"])
def test_accumulators_stay_in_registers(name: str, given: str) -> None:
    """No loop that multiplies and adds stores vectors on the stack."""
    optimized = parse(convolution(*CLASSES[given]))
    CPU_PIPELINE.run(optimized)
    assembly = generate_module(emit_program(optimized, PROCESSORS[name]).module, assembly=True).decode()
    blocks = re.findall(r"^(\.L\w+):(.*?)(?=^\.L)", assembly, flags=re.MULTILINE | re.DOTALL)
    loops = [block for label, block in blocks if re.search(rf"\tj\w+\t{label}$", block, re.MULTILINE)]
    sums = [block for block in loops if _SUM.search(block)]
    assert sums
    assert not any(_SPILLED.search(block) for block in sums)


_SUM = re.compile(r"\tvfn?m(add|sub)\d+p")
_SPILLED = re.compile(r"\tvmov\w+\t%[yz]mm\d+, -?\d*\(%rsp\)")


@pytest.mark.parametrize("channels", [1, 7, 16, 40, 64])
@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_depthwise(channels: int, multiplier: int) -> None:
    attributes = f"{SAME}, feature_group_count={channels}"
    check(f"f32[2,6,17,{channels}]", f"f32[3,3,1,{channels * multiplier}]", attributes)


def test_small_groups() -> None:
    for depth, columns in ((2, 2), (4, 4), (2, 4), (8, 2), (3, 8), (1, 16)):
        attributes = f"{SAME}, feature_group_count=10"
        check(f"f32[1,4,17,{10 * depth}]", f"f32[3,3,{depth},{10 * columns}]", attributes)


def test_gradients_of_depthwise_kernels() -> None:
    attributes = "window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, batch_group_count=20"
    check("f32[3,8,8,20]", "f32[3,8,8,20]", attributes)


def test_results_of_a_wider_type() -> None:
    check("s8[2,5,9,8]", "s8[3,3,8,24]", SAME, "s32[2,5,9,24]")
    check("bf16[2,5,9,8]", "bf16[3,3,8,24]", SAME, "f32[2,5,9,24]")
    check("f16[2,5,9,8]", "f32[3,3,8,24]", SAME, "f32[2,5,9,24]")


def test_one_by_one_kernels_are_one_axis_of_positions() -> None:
    plan = check("f32[3,7,5,20]", "f32[1,1,20,32]", "window={size=1x1}, dim_labels=b01f_01io->b01f")
    positions = [axis.positions for axis in plan.convolution.phases[0].axes]
    assert sorted(positions) == [1, 3 * 7 * 5]


def test_transposed_convolutions_multiply_by_no_holes() -> None:
    attributes = "window={size=4x4 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"
    plan = check("f32[2,6,6,8]", "f32[4,4,8,16]", attributes)
    terms = [phase.terms for phase in plan.convolution.phases]
    assert terms == [2 * 2 * 8] * 4
    assert sum(phase.results for phase in plan.convolution.phases) == 2 * 12 * 12 * 16


LONG = "window={size=40 pad=39_39}, dim_labels=b0f_0io->b0f"
"""More border positions than specialized tiles."""
NEITHER_PADDING_NOR_HOLES = [
    ("[1,4,4,2]", "[3,3,2,16]", SAME),
    ("[2,30,6]", "[40,6,12]", LONG),
    ("[2,90,6]", "[40,6,40]", LONG),
    ("[2,50,48]", "[40,1,48]", f"{LONG}, feature_group_count=48"),
    ("[2,50,64]", "[40,64,1]", LONG),
    ("[2,50,3]", "[40,3,1]", LONG),
    ("[1,20,25,8]", "[30,26,8,16]", "window={size=30x26 pad=29_29x25_25}, dim_labels=b01f_01io->b01f"),
    (
        "[2,50,6]",
        "[40,6,12]",
        "window={size=40 pad=60_50 lhs_dilate=2 rhs_reversal=1}, dim_labels=b0f_0io->b0f",
    ),
    ("[2,50,6]", "[40,6,12]", "window={size=40 stride=2 pad=60_70 rhs_dilate=3}, dim_labels=b0f_0io->b0f"),
]


@pytest.mark.parametrize("kind", ["f32", "f16", "f8e4m3fn", "c64"])
@pytest.mark.parametrize(("lhs", "rhs", "attributes"), NEITHER_PADDING_NOR_HOLES)
def test_infinite_kernel_elements_meet_elements_of_the_base_only(
    kind: str, lhs: str, rhs: str, attributes: str
) -> None:
    """Few elements are not finite, so that many sums without them would be NaN by products with padding."""
    rng = np.random.default_rng(0)
    x, w = np.abs(draw(rng, kind + lhs)), draw(rng, kind + rhs)
    w.reshape(-1)[rng.integers(0, w.size, 2)] = {"f8e4m3fn": np.nan, "c64": complex(np.nan, np.nan)}.get(
        kind, np.inf
    )
    found = agree(convolution(kind + lhs, kind + rhs, attributes), x, w, rounded=True)
    numbers = np.abs(found.astype(complex))
    assert np.isfinite(numbers).any() and not np.isfinite(numbers).all()


def test_empty_arrays() -> None:
    check("f32[0,4,4,2]", "f32[3,3,2,16]", SAME)
    check("f32[1,4,4,0]", "f32[3,3,0,16]", SAME)
    check("f32[1,4,4,2]", "f32[3,3,2,0]", SAME)
    check("f32[1,0,4,2]", "f32[1,1,2,8]", "window={size=1x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f")


@pytest.mark.parametrize("window", [[WindowDimension(5, 1, 2, 2)], [WindowDimension(31, 1, 15, 15)]])
def test_one_dimension_in_every_layout(window: list[WindowDimension]) -> None:
    size = window[0].size
    check("f32[2,50,6]", f"f32[{size},6,12]", f"{text_of(window)}, dim_labels=b0f_0io->b0f")
    check("f32[2,6,50]", f"f32[12,6,{size}]", f"{text_of(window)}, dim_labels=bf0_oi0->bf0")
    check("f32[2,50,1]", f"f32[{size},1,1]", f"{text_of(window)}, dim_labels=b0f_0io->b0f")


@pytest.mark.parametrize("groups", [1, 24])
def test_elementwise_operations_are_applied_to_the_tiles(groups: int) -> None:
    text = f"""
    x = f32[2,7,9,24] parameter(0)
    w = f32[3,3,{24 // groups},24] parameter(1)
    c = convolution(x, w), {SAME}, feature_group_count={groups}
    bias = f32[24] parameter(2)
    biases = f32[2,7,9,24] broadcast(bias), dimensions={{3}}
    s = add(c, biases)
    other = f32[2,7,9,24] parameter(3)
    t = add(s, other)
    zero = f32[] constant(0)
    zeros = f32[2,7,9,24] broadcast(zero), dimensions={{}}
    ROOT r = maximum(t, zeros)"""
    rng = np.random.default_rng(0)
    shapes = "f32[2,7,9,24]", f"f32[3,3,{24 // groups},24]", "f32[24]", "f32[2,7,9,24]"
    agree(text, *(draw(rng, shape) for shape in shapes), rounded=True)
    body = compiled(text).optimized.entry.root.called_computations[0]
    assert "convolution" in [i.opcode for i in body.instructions]


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "s32", "pred"])
@pytest.mark.parametrize("outputs", [1, 3, 8])
def test_few_output_features(kind: str, outputs: int) -> None:
    """Lanes are input features then."""
    for depth in (8, 64, 128):
        plan = check(f"{kind}[2,5,11,{depth}]", f"{kind}[3,3,{depth},{outputs}]", SAME)
    assert plan.convolution.deep or outputs * 2 > 8
    attributes = "window={size=3x3 stride=2x1 lhs_dilate=1x2 pad=1_1x2_1}, dim_labels=b01f_o01i->b01f"
    check(f"{kind}[1,6,7,128]", f"{kind}[{2 * outputs},3,3,64]", f"{attributes}, feature_group_count=2")


@pytest.mark.parametrize("attributes", ["pad=4_4", "pad=0_0", "pad=7_3 stride=2"])
def test_long_lines_are_cut_into_pieces(attributes: str) -> None:
    labels = "dim_labels=b0f_0io->b0f"
    for depth, outputs, groups in ((3, 16, 1), (20, 20, 20), (16, 2, 1)):
        rhs = f"f32[9,{depth // groups},{outputs}]"
        window = f"window={{size=9 {attributes}}}, {labels}, feature_group_count={groups}"
        plan = check(f"f32[1,2000,{depth}]", rhs, window)
        assert plan.phases[0].tiling.pieces > 1
