"""select-and-scatter of the cpu backend: the first of equals, overlaps in order, every window option."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloom.ir.window import WindowDimension
from tests.arrays import f32
from tests.cpu.window_draws import any_window, sizes_text, text_of
from tests.native_runs import agree, draw
from tests.reducers import binary, comparison


def program(kind: str, sizes: list[int], window: list[WindowDimension], direction: str = "GE") -> str:
    source = [d.output_size(size) for d, size in zip(window, sizes)]
    return (
        f"HloModule m\n{comparison(direction, kind)}{binary('add', kind)}ENTRY e {{\n"
        f" x = {kind}[{sizes_text(sizes)}] parameter(0)\n s = {kind}[{sizes_text(source)}] parameter(1)\n"
        f" i = {kind}[] parameter(2)\n"
        f" ROOT r = select-and-scatter(x, s, i), {text_of(window)}, select=g, scatter=f\n}}"
    )


def check(kind: str, sizes: list[int], window: list[WindowDimension], direction: str = "GE") -> None:
    rng = np.random.default_rng(0)
    source = [d.output_size(size) for d, size in zip(window, sizes)]
    values = rng.integers(0, 4, sizes).astype(draw(rng, f"{kind}[]").dtype)  # many equal ones
    agree(
        program(kind, sizes, window, direction), values, draw(rng, f"{kind}[{sizes_text(source)}]"),
        draw(rng, f"{kind}[]"), rounded=True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "s8", "u16", "s32", "s64"])
@pytest.mark.parametrize("seed", range(5))
def test_any_window_of_any_type(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind}{seed}")
    sizes = [rng.randint(1, 5) for _ in range(rng.randint(0, 3))] + [rng.choice([1, 3, 17, 33])]
    window = [any_window(rng, size) for size in sizes]
    if seed % 2:
        window[-1] = WindowDimension(1)
    check(kind, sizes, window, rng.choice(["GE", "GT", "LE"]))


@pytest.mark.parametrize("sizes", [[2, 8, 6, 32], [1, 9, 7, 40], [2, 4, 4, 3]])
@pytest.mark.parametrize("pad", [(0, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("size, stride", [(2, 2), (3, 2), (3, 3), (2, 3), (5, 1)])
def test_gradients_of_pooling(sizes: list[int], pad: tuple[int, int], size: int, stride: int) -> None:
    d = WindowDimension(size, stride, *pad)
    if not d.output_size(min(sizes[1:3])):
        pytest.skip("no window fits")
    check("f32", sizes, [WindowDimension(1), d, d, WindowDimension(1)])
    check("f32", [sizes[0], sizes[3], sizes[1], sizes[2]], [WindowDimension(1), WindowDimension(1), d, d])


@pytest.mark.parametrize(("kind", "size"), [("f32", 2), ("bf16", 3), ("s8", 4), ("f64", 2)])
@pytest.mark.parametrize("columns", [17, 141])
def test_windows_side_by_side_along_the_last_dimension(kind: str, size: int, columns: int) -> None:
    """Rows of results are vectors of the taps of adjacent windows, interleaved; some columns have none."""
    d = WindowDimension(size, size)
    check(kind, [2, 9, columns], [WindowDimension(1), d, d], "GT")
    check(kind, [3, 3 * columns], [WindowDimension(1), d])


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "f64"])
@pytest.mark.parametrize("columns", [4, 17, 64, 141])
@pytest.mark.parametrize(
    ("size", "stride", "low", "dilation"),
    [(3, 1, 0, 1), (3, 2, 1, 1), (7, 1, 3, 1), (5, 3, 6, 1), (3, 2, 1, 2)],
)
def test_windows_that_overlap_along_the_last_dimension(
    kind: str, columns: int, size: int, stride: int, low: int, dilation: int
) -> None:
    """Neighbors are selected together, and combined in order; windows in the padding have no element."""
    d = WindowDimension(size, stride, low, low, window_dilation=dilation)
    if not d.output_size(columns):
        pytest.skip("no window fits")
    check(kind, [2, 9, columns], [WindowDimension(1), WindowDimension(2, 1), d], "GT")
    check(kind, [13, columns], [WindowDimension(size, stride, low, low), d])


def test_nan_is_selected_as_the_computation_says() -> None:
    text = program("f32", [6], [WindowDimension(3, 3)])
    x = f32([1, np.nan, 2, np.nan, 5, 5])
    agree(text, x, f32([10, 20]), np.float32(0))


def test_nothing_to_scatter() -> None:
    nothing, seven = np.zeros(0, np.float32), np.float32(7)
    agree(program("f32", [2], [WindowDimension(3)]), f32([1, 2]), nothing, seven)
    agree(program("f32", [0], [WindowDimension(1, 1, 1, 1)]), nothing, np.zeros(2, np.float32), seven)
    agree(program("f32", [], []), np.float32(1), np.float32(2), seven)
