"""reduce-window of the cpu backend: every window option and type, cumulative windows as scans."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom.cpu.kernels.windows.cumulative import cumulative_of
from hloom.cpu.kernels.windows.pooling import is_pooling
from hloom.ir.window import WindowDimension
from tests.arrays import s32
from tests.cpu.window_draws import TYPES, any_window, sizes_text, text_of
from tests.evaluation import parse
from tests.native_runs import agree, draw
from tests.reducers import ARGMAX, binary, with_reducers


def reduction(kind: str, opcode: str, sizes: list[int], window: list[WindowDimension], init: str = "") -> str:
    """A program of one reduce-window; the initial value is a parameter unless one is given."""
    value = f"constant({init})" if init else "parameter(1)"
    return (
        f"HloModule m\n{binary(opcode, kind)}ENTRY e {{\n x = {kind}[{sizes_text(sizes)}] parameter(0)\n"
        f" i = {kind}[] {value}\n ROOT r = reduce-window(x, i), {text_of(window)}, to_apply=f\n}}"
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_any_window_of_any_type(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind}{seed}")
    sizes = [rng.randint(1, 5) for _ in range(rng.randint(0, 3))] + [rng.choice([1, 3, 17, 33])]
    window = [any_window(rng, size) for size in sizes]
    arrays = np.random.default_rng(seed)
    text = reduction(kind, "or" if kind == "pred" else "add", sizes, window)
    arguments = draw(arrays, f"{kind}[{sizes_text(sizes)}]"), draw(arrays, f"{kind}[]")
    agree(text, *arguments, rounded=True)


@pytest.mark.parametrize("opcode", ["maximum", "minimum", "multiply"])
def test_pooling(opcode: str) -> None:
    window = [
        WindowDimension(1),
        WindowDimension(3, 2, 0, 1),
        WindowDimension(3, 2, 0, 1),
        WindowDimension(1),
    ]
    for sizes in ([2, 7, 9, 5], [1, 8, 8, 40]):
        text = reduction("f32", opcode, sizes, window)
        arrays = np.random.default_rng(0)
        agree(text, draw(arrays, f"f32[{sizes_text(sizes)}]"), np.float32(0.5), rounded=True)


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "c64"])
@pytest.mark.parametrize("size, stride", [(3, 2), (3, 1), (5, 3), (7, 1), (40, 1)])
def test_padding_that_adds_nothing_is_left_out(kind: str, size: int, stride: int) -> None:
    """Along lanes, along other dimensions, and along both."""
    d, one = WindowDimension(size, stride, size // 2, size // 2), WindowDimension(1)
    init = "(0, 0)" if kind == "c64" else "0"
    for sizes, window in (([2, 9, 20], [one, d, one]), ([9, 45], [d, d]), ([3, 70], [one, d])):
        text = reduction(kind, "add", sizes, window, init)
        assert is_pooling(parse(text).entry.root)
        x = draw(np.random.default_rng(0), f"{kind}[{sizes_text(sizes)}]")
        agree(text, x, rounded=True)


def test_padding_counts_as_the_initial_value() -> None:
    text = reduction("s32", "add", [2], [WindowDimension(4, 1, 3, 3)])
    got = agree(text, s32([1, 2]), np.int32(10))
    assert got.tolist() == [41, 33, 33, 33, 42]


def test_windows_over_nothing() -> None:
    window = [WindowDimension(2, 1, 1, 1)]
    agree(reduction("f32", "add", [0], window), np.zeros(0, np.float32), np.float32(2))


def test_computations_of_another_float_type() -> None:
    text = with_reducers("""HloModule m
ENTRY e { x = bf16[5,40] parameter(0)
 i = bf16[] constant(0)
 ROOT r = bf16[5,39] reduce-window(x, i), window={size=1x2}, to_apply=add }""")
    agree(text, draw(np.random.default_rng(0), "bf16[5,40]"))


def test_a_lane_left_over_does_not_touch_its_neighbours() -> None:
    """Rows of 17 narrow elements: a vector, and one element that is stored by itself."""
    agree(reduction("bf16", "maximum", [3, 17], [WindowDimension(1), WindowDimension(1)]),
          draw(np.random.default_rng(0), "bf16[3,17]"), draw(np.random.default_rng(1), "bf16[]"))  # fmt: skip


# -- cumulative windows


def cumulative(size: int, *, backward: bool) -> WindowDimension:
    ends = (0, size - 1) if backward else (size - 1, 0)
    return WindowDimension(size, 1, *ends)


NEUTRAL = {"add": "0", "multiply": "1", "maximum": "-5", "minimum": "5"}


def scanned(text: str) -> bool:
    return cumulative_of(parse(text).entry.root) is not None


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [2, 3, 16, 17, 100, 128, 150, 300])
def test_cumulative_sums_along_every_axis(size: int, backward: bool) -> None:
    for axis, sizes in ((0, [size]), (1, [3, size]), (0, [size, 35]), (1, [2, size, 5])):
        window = [WindowDimension(1)] * len(sizes)
        window[axis] = cumulative(size, backward=backward)
        text = reduction("s32", "add", sizes, window, "0")
        assert scanned(text)
        agree(text, draw(np.random.default_rng(size), f"s32[{sizes_text(sizes)}]"))


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "pred"])
@pytest.mark.parametrize("opcode", NEUTRAL)
def test_cumulative_operations_on_every_type(kind: str, opcode: str) -> None:
    if kind[0] == "c" and opcode in ("maximum", "minimum"):
        pytest.skip("complex numbers have no order")
    init = (
        f"({NEUTRAL[opcode]}, 0)" if kind[0] == "c" else NEUTRAL[opcode].strip("-" if kind[0] == "u" else " ")
    )
    for sizes, axis in (([2, 70], 1), ([20, 3], 0)):
        window = [WindowDimension(1)] * 2
        window[axis] = cumulative(sizes[axis], backward=opcode == "minimum")
        text = reduction(kind, opcode, sizes, window, init)
        x = draw(np.random.default_rng(0), f"{kind}[{sizes_text(sizes)}]")
        if opcode == "multiply" and kind[0] not in "su":
            x = (1 + x.astype(np.complex128 if kind[0] == "c" else float) / 50).astype(x.dtype)
        agree(text, x, rounded=True)


def test_exclusive_and_longer_scans() -> None:
    for size, low, high in (
        (9, 9, -1),
        (9, 10, 0),
        (9, 7, 3),
        (12, 8, 4),
        (9, -1, 9),
        (9, 0, 10),
        (11, 2, 8),
    ):
        text = reduction("s32", "add", [9], [WindowDimension(size, 1, low, high)], "0")
        agree(text, draw(np.random.default_rng(0), "s32[9]"))
        wide = reduction(
            "s32", "add", [9, 20], [WindowDimension(size, 1, low, high), WindowDimension(1)], "0"
        )
        agree(wide, draw(np.random.default_rng(0), "s32[9,20]"))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_of_combination_is_kept(backward: bool, reverse: bool) -> None:
    """The second value of two, unless it is zero: associative, not commutative.

    Padding that is combined last counts, so that only windows that begin with it are scanned.
    """
    computation = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  z = s32[] constant(0)
  none = pred[] compare(b, z), direction=EQ
  ROOT r = s32[] select(none, a, b)
}
"""
    for size in (5, 40, 200):
        d = cumulative(size, backward=backward)
        window = [WindowDimension(d.size, 1, d.padding_low, d.padding_high, window_reversal=reverse)]
        text = reduction("s32", "add", [size], window, "0").replace(binary("add", "s32"), computation)
        assert scanned(text) is (backward == reverse)
        values = np.random.default_rng(0).integers(-3, 4, size).astype(np.int32)
        agree(text, values)


def test_several_operands_are_scanned_together() -> None:
    text = f"""HloModule m
{ARGMAX}
ENTRY e {{
  x = f32[3,90] parameter(0)
  i = s32[3,90] iota(), iota_dimension=1
  lowest = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = reduce-window(x, i, lowest, none), window={{size=1x90 pad=0_0x89_0}}, to_apply=f
}}"""
    assert scanned(text)
    agree(text, draw(np.random.default_rng(0), "f32[3,90]"))


def test_initial_values_that_are_not_neutral_are_counted_in_the_padding() -> None:
    text = reduction("s32", "add", [6], [cumulative(6, backward=False)], "2")
    assert not scanned(text)
    agree(text, np.arange(6, dtype=np.int32))


SECOND = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  z = s32[] constant(0)
  none = pred[] compare(b, z), direction=EQ
  ROOT r = s32[] select(none, a, b)
}
"""
HORNER = """f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  k = s32[] constant(3)
  m = s32[] multiply(a, k)
  ROOT r = s32[] add(m, b)
}
"""


@pytest.mark.parametrize(
    ("computation", "init"), [(SECOND, "3"), (SECOND, "0"), (HORNER, "0"), (HORNER, "1")],
    ids=["second 3", "second 0", "horner 0", "horner 1"],
)  # fmt: skip
@pytest.mark.parametrize(
    "window",
    [
        "size=1x9 pad=0_0x0_8", "size=1x9 pad=0_0x8_0", "size=1x9 pad=0_0x8_0 rhs_reversal=0x1",
        "size=3x1 pad=2_0x0_0", "size=1x5 stride=1x5 pad=0_0x1_1", "size=2x3 pad=1_0x0_0",
        "size=2x3 pad=0_0x1_0", "size=2x3 pad=0_1x0_1", "size=3x3 pad=1_1x1_1 rhs_dilate=2x1",
    ],
)  # fmt: skip
def test_padding_after_elements_is_combined(computation: str, init: str, window: str) -> None:
    """It is the initial value, which need not be neutral from the right, though idempotent."""
    text = f"""HloModule m
{computation}
ENTRY e {{
  x = s32[5,9] parameter(0)
  init = s32[] constant({init})
  ROOT r = reduce-window(x, init), window={{{window}}}, to_apply=f
}}"""
    agree(text, np.random.default_rng(0).integers(-3, 4, (5, 9)).astype(np.int32))
