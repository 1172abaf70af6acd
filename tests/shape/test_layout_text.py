"""The text of layouts and tiles alone, padding included."""

from __future__ import annotations

from typing import Any

import pytest

from hloom import HloError, HloModule, Layout, Shape, Tile
from hloom.shape.layout import PaddingValue
from hloom.tools.reports.layout import explain_layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("{1,0:(2,2)}", Layout((1, 0), (Tile((2, 2)),))),
        ("1,0:(2,2)", Layout((1, 0), (Tile((2, 2)),))),
        ("3,2,0,1:T(8,128)(2,1)", Layout((3, 2, 0, 1), (Tile((8, 128)), Tile((2, 1))))),
        ("{2,1,0:T(8,128)S(1)}", Layout((2, 1, 0), (Tile((8, 128)),), memory_space=1)),
        ("{}", Layout()),
        ("{0,1:PD(3,5)}", Layout((0, 1), padded_dimensions=(3, 5))),
        (
            "{0,1:T(2,2)PD(3,5:zero)}",
            Layout((0, 1), (Tile((2, 2)),), padded_dimensions=(3, 5), padding_value=PaddingValue.ZERO),
        ),
    ],
)
def test_layouts(text: str, layout: Layout) -> None:
    assert Layout.parse(text) == layout
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("(2,2)", (2, 2)),
        ("(*,*,2,*,3)", (-1, -1, 2, -1, 3)),
        ("(∗,∗,2,∗,3)", (-1, -1, 2, -1, 3)),
        ("(-1,4)", (-1, 4)),
    ],
)
def test_tiles(text: str, sizes: tuple[int, ...]) -> None:
    assert Tile.parse(text).dimensions == sizes
    assert Tile.parse(str(Tile(sizes))) == Tile(sizes)


@pytest.mark.parametrize("value", PaddingValue)
def test_padding_survives_the_text_of_shapes_and_modules(value: PaddingValue) -> None:
    layout = Layout((0, 1), padded_dimensions=(3, 5), padding_value=value)
    shape = Shape.parse("u8[2,3]").with_layout(layout)
    assert Shape.parse(str(shape)) == shape
    module = HloModule.from_text(f"HloModule m\nENTRY e {{ ROOT a = {shape} parameter(0) }}")
    assert module.entry.root.shape == shape
    assert HloModule.from_text(module.to_text()).entry.root.shape == shape
    assert HloModule.from_proto(module.to_proto()).entry.root.shape == shape


def test_the_layout_tool_shows_padding() -> None:
    words = explain_layout("u8[2,3]{0,1:PD(3,5:zero)}")
    assert "PD(3,5:zero)  padded with zero to 3 × 5" in words
    assert "9 of 15 elements" in words


@pytest.mark.parametrize(
    ("parse", "text", "rule"),
    [
        (Layout.parse, "{1,0", "shape.text-form"),
        (Layout.parse, "{1,0}x", "shape.text-ends"),
        (Layout.parse, "{0,1:PD(3,5:white)}", "layout.padding-value"),
        (Layout.parse, "{0,1:PD(3)}", "layout.padded-dimensions-rank"),
        (Layout.parse, "{0,0}", "layout.minor-to-major-permutation"),
        (Tile.parse, "(2,2)(2,1)", "shape.text-ends"),
        (Tile.parse, "2,2", "shape.text-form"),
        (Tile.parse, "()", "layout.tile-rank"),
    ],
)
def test_refusals(parse: Any, text: str, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        parse(text)
    assert caught.value.rule == rule
