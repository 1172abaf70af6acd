"""Random windows for tests of native code."""

from __future__ import annotations

import random

from hloom.ir.window import WindowCodec, WindowDimension

TYPES = ("f32", "f64", "f16", "bf16", "f8e4m3fn", "s8", "u16", "s32", "s64", "pred", "c64", "c128")


def any_window(rng: random.Random, size: int) -> WindowDimension:
    """A window with some positions over a base of ``size`` elements, with any options."""
    while True:
        window = WindowDimension(
            size=rng.randint(1, 4),
            stride=rng.randint(1, 3),
            padding_low=rng.randint(-1, 3),
            padding_high=rng.randint(-1, 3),
            window_dilation=rng.choice([1, 1, 2, 3]),
            base_dilation=rng.choice([1, 1, 2, 3]),
            window_reversal=rng.random() < 0.3,
        )
        if window.output_size(size):
            return window


def text_of(window: list[WindowDimension]) -> str:
    """``window={...}``."""
    return "window=" + WindowCodec().text(tuple(window))


def sizes_text(sizes: list[int]) -> str:
    """``2,3,4``."""
    return ",".join(map(str, sizes))
