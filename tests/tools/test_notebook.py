"""Pictures of modules, shapes and layouts in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from hloom import HloModule
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape


def svg_of(html: str) -> ElementTree.Element:
    """Return the picture in a page."""
    return ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + len("</svg>")])


def test_a_small_module_is_drawn() -> None:
    module = HloModule.from_text(
        "HloModule m\nENTRY e {\n p = f32[2] parameter(0)\n ROOT r = f32[2] abs(p) }\n"
    )
    texts = ["".join(text.itertext()) for text in svg_of(module._repr_html_()).iter()]
    assert "abs" in texts
    assert "f32[2]" in texts


def test_a_large_module_is_its_text() -> None:
    lines = "\n".join(f" n{i + 1} = f32[2] abs(n{i})" for i in range(400))
    module = HloModule.from_text(f"HloModule m\nENTRY e {{\n n0 = f32[2] parameter(0)\n{lines}\n}}\n")
    html = module._repr_html_()
    assert "<b>m</b>: 401 instructions in 1 computations" in html
    assert "%n20 = f32[2]{0} abs(%n19)" in html
    assert "more lines; hloom view shows the whole program" in html
    assert html.count("\n") < 70


def test_a_shape_is_explained_and_drawn() -> None:
    html = Shape.parse("f32[3,5]{1,0:T(2,4)}")._repr_html_()
    assert "padding" in html
    assert svg_of(html).tag.endswith("svg")
    assert "<svg" not in Shape.parse("(f32[2], f32[3])")._repr_html_()
    assert "<svg" not in Shape.parse("f32[0]")._repr_html_()


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("{1,0}", "f32[2,2]{1,0}"),
        ("{1,0:T(8,128)}", "f32[9,129]{1,0:T(8,128)}"),
        ("{0,1:T(8,128)(2,1)}", "f32[129,9]{0,1:T(8,128)(2,1)}"),
        ("{1,0:E(4)}", "u4[2,2]{1,0:E(4)}"),
    ],
)
def test_a_layout_is_shown_by_an_array_that_it_fits(text: str, example: str) -> None:
    html = Layout.parse(text)._repr_html_()
    assert example in html
    assert svg_of(html).tag.endswith("svg")
