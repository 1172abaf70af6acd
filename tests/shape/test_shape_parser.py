"""The text of shapes, read and printed as XLA does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import HloError, ParseError, ShapeError
from hloom.shape.shape import Shape
from hloom.shape.shape_parser import parse_shape_at
from tests.shape.shapes import array_shapes
from tests.work import bytecodes

# Text and what XLA prints for it.
CASES = [
    ("f32[2,3]", "f32[2,3]{1,0}"),
    ("f32[2,3]{0,1}", "f32[2,3]{0,1}"),
    ("u32[]", "u32[]"),
    ("f32[]{:T(128)}", "f32[]{:T(128)}"),
    ("bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}", "bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}"),
    (
        "f32[2,3]{1,0:T(8,128)L(4)#(u32)*(u64)E(64)S(3)SC(0:1)M(8)}",
        "f32[2,3]{1,0:T(8,128)L(4)#(u32)*(u64)E(64)S(3)SC(0:1)M(8)}",
    ),
    ("f32[2,3]{1,0:T(8,*,2)}", "f32[2,3]{1,0:T(8,*,2)}"),
    ("f32[2,3]{1,0:D(D,C+~)}", "f32[2,3]{1,0}"),
    ("f32[2]{0:S(0)}", "f32[2]{0}"),
    ("f32[2]{0:L(1)}", "f32[2]{0}"),
    ("f32[2]{0:}", "f32[2]{0}"),
    ("f32[<=10,?]", "f32[<=10,?]{1,0}"),
    ("f32[0]", "f32[0]{0}"),
    ("token[]", "token[]"),
    ("opaque[]", "opaque[]"),
    ("()", "()"),
    ("(f32[2], /*index=1*/s32[])", "(f32[2]{0}, s32[])"),
    ("((f32[2]{0:T(2)}), (), token[])", "((f32[2]{0:T(2)}), (), token[])"),
    ("b(f32[2])", "b(f32[2]{0})"),
    ("f32 [ 2 ] { 0 : T ( 2 ) }", "f32[2]{0:T(2)}"),
    ("s4[2]{0:E(4)}", "s4[2]{0:E(4)}"),
    ("f32[1024,8]{1,0:S(1)SC(0:512,700)(1:2)}", "f32[1024,8]{1,0:S(1)SC(0:512,700)(1:2)}"),
]


@pytest.mark.parametrize(("text", "printed"), CASES)
def test_text_is_read_and_printed(text: str, printed: str) -> None:
    assert str(Shape.parse(text)) == printed
    assert Shape.parse(printed) == Shape.parse(text)


@pytest.mark.parametrize(("text", "printed"), CASES)
def test_jaxlib_prints_the_same(text: str, printed: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(f"HloModule m\n\nENTRY e {{\n  ROOT p = {text} parameter(0)\n}}\n")
    assert f"= {printed} parameter(0)" in module.to_string()


def test_the_older_pages_spelling() -> None:
    assert str(Shape.parse("F32[3,5]{1,0:(2,2)}")) == "f32[3,5]{1,0:T(2,2)}"
    assert str(Shape.parse("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}")) == (
        "f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}"
    )


def test_the_parts_of_a_shape() -> None:
    shape = Shape.parse("bf16[8,128]{1,0:T(8,128)(2,1)}")
    assert shape.layout is not None
    assert shape.element_type.name == "bf16" and shape.dimensions == (8, 128)
    assert shape.layout.minor_to_major == (1, 0)
    assert [tile.dimensions for tile in shape.layout.tiles] == [(8, 128), (2, 1)]
    assert shape.byte_size == 2048


@pytest.mark.parametrize(
    ("text", "column", "rule"),
    [
        ("", 1, "shape.text-form"),
        ("f32", 4, "shape.text-form"),
        ("g32[]", 1, "element-type.known"),
        ("tuple[]", 1, "element-type.known"),
        ("f32[2", 6, "shape.text-form"),
        ("f32[2,]", 7, "shape.text-integer"),
        ("f32[0x2]", 6, "shape.text-form"),
        ("f32[99999999999999999999]", 5, "shape.text-integer"),
        ("f32[-1]", 5, "shape.dimension-non-negative"),
        ("f32[<=?]", 7, "shape.text-integer"),
        ("f32[2] f32[2]", 8, "shape.text-ends"),
        ("f32[]{}", 6, "shape.text-ends"),
        ("f32[2]{0:S(1)T(2)}", 14, "shape.text-form"),
        ("f32[2,3]{1,0:T(8,128)", 22, "shape.text-form"),
        ("f32[2]{0:D(X)}", 12, "layout.dimension-level-type"),
        ("(f32[2],)", 9, "shape.text-form"),
        ("(f32[2]", 8, "shape.text-form"),
        ("(" * 300, 202, "shape.text-depth"),
        ("f32[2]{0:T(0)}", 11, "layout.tile-size-positive"),
        ("f32[2,2]{0,0}", 9, "layout.minor-to-major-permutation"),
        ("f32[2,3]{0}", 1, "layout.rank"),
        ("(s32[], f32[2,3]{0})", 9, "layout.rank"),
        ("token[2]", 1, "shape.only-arrays-have-dimensions"),
        ("b((s32[]))", 1, "shape.buffer-holds-array"),
        ("f32[2]{0:#(s32)}", 7, "layout.index-type-unsigned"),
        ("f32[2]{0:P(f32[4])}", 1, "layout.physical-shape-sparse-only"),
    ],
)
def test_what_is_not_a_shape_is_refused_in_its_place(text: str, column: int, rule: str) -> None:
    with pytest.raises(HloError) as error:
        Shape.parse(text)
    assert isinstance(error.value, ParseError | ShapeError)
    assert (error.value.rule, error.value.line, error.value.column) == (rule, 1, column)


def test_a_shape_inside_a_text_ends_where_it_ends() -> None:
    text = "HloModule m\n  x = f32[2]{0} add(a, b)"
    assert parse_shape_at(text, text.index("f32")) == (Shape.parse("f32[2]"), text.index(" add"))
    text = "ROOT t = (f32[2]{0:T(128)}, s32[]) tuple(a, b)"
    assert parse_shape_at(text, 9) == (Shape.parse("(f32[2]{0:T(128)}, s32[])"), text.index(" tuple"))
    with pytest.raises(ShapeError) as error:
        parse_shape_at("HloModule m\n  x = f32[2]{1} add(a, b)", 18)
    assert (error.value.line, error.value.column) == (2, 13)


@given(array_shapes())
def test_what_is_printed_is_read_back(shape: Shape) -> None:
    assert shape.layout is not None
    plain = Shape.parse(str(shape))
    assert plain.layout is not None
    # The older padding has no text.
    assert plain == shape or shape.layout.padded_dimensions


@given(st.text(alphabet="f32s[]{}():,<=?*T SE1024L/b#M", max_size=30))
def test_any_text_is_a_shape_or_an_error(text: str) -> None:
    try:
        shape = Shape.parse(text)
    except HloError as error:
        assert error.rule and error.line is not None
    else:
        assert Shape.parse(str(shape)) == shape


def test_known_shapes_are_read_quickly() -> None:
    text = "%x = bf16[8,128]{1,0:T(8,128)(2,1)} add("
    parse_shape_at(text, 5)
    assert bytecodes(lambda: parse_shape_at(text, 5)) < 100
