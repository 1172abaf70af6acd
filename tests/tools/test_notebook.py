"""Pictures of modules, shapes and layouts in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import hloom
from hloom import HloModule
from hloom.display import Displayed
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape
from hloom.tools.pages.notebook import _WRITERS  # pyright: ignore[reportPrivateUsage]


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
    assert "<b>m</b>: 401 instructions in 1 computation" in html
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


def test_every_class_that_notebooks_show_has_a_writer() -> None:
    assert {cls.__name__ for cls in Displayed.__subclasses__()} <= set(_WRITERS)


PROGRAM = """HloModule model
less {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT l = pred[] compare(a, b), direction=LT
}
ENTRY e {
 x = f32[256] parameter(0)
 y = f32[256] log(x)
 ROOT z = f32[256] sort(y), dimensions={0}, to_apply=less
}
"""


def rows_of(html: str) -> list[str]:
    """Return the text of each row of the tables in a fragment, which has to be well-formed."""
    page = ElementTree.fromstring(f"<div>{html}</div>")
    return [" ".join("".join(cell.itertext()) for cell in row) for row in page.iter("tr")]


def test_an_executable_shows_its_arguments_memory_and_program() -> None:
    executable = hloom.compile(HloModule.from_text(PROGRAM))
    html = executable._repr_html_()
    rows = rows_of(html)
    assert "x f32[256]{0} argument" in rows
    assert "result f32[256]{0} result" in rows
    assert "arguments 1.02 kB " in rows
    assert "256 transcendental functions" in html
    assert "sort(" in html
    interpreted = hloom.compile(HloModule.from_text(PROGRAM), backend="evaluator")
    assert "x f32[256]{0} argument" in rows_of(interpreted._repr_html_())


def test_a_profile_is_a_table_of_instructions() -> None:
    executable = hloom.compile(HloModule.from_text(PROGRAM))
    profile = executable.profile(np.ones(256, np.float32))
    rows = rows_of(profile._repr_html_())
    assert rows[0] == "µs  runs GFLOP/s GB/s instruction"
    assert len(rows) == 1 + len(profile.lines)
    assert any("sort(" in row for row in rows)


def test_a_trace_is_a_table_of_values_with_the_first_nan() -> None:
    trace = hloom.compile(HloModule.from_text(PROGRAM)).trace(np.full(256, -1, np.float32))
    html = trace._repr_html_()
    assert "first NaN:" in html
    rows = rows_of(html)
    assert rows[0] == "value shape min max mean NaN inf operation"
    assert rows[2].split()[:3] == ["%y", "f32[256]", "256"]
    assert repr(trace) == "<Trace of 3 values>"


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    lines = "\n".join(f" n{i + 1} = f32[2] abs(n{i})" for i in range(99))
    module = HloModule.from_text(f"HloModule m\nENTRY e {{\n n0 = f32[2] parameter(0)\n{lines}\n}}\n")
    html = hloom.compile(module, backend="evaluator").trace(np.ones(2, np.float32))._repr_html_()
    assert len(rows_of(html)) == 1 + 50
    assert "… and 50 more" in html
