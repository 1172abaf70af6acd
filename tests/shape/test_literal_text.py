"""The text of literals, printed and read as XLA does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import HloError, ParseError, ShapeError
from hloom.shape.element_type import F6E2M3FN, F6E3M2FN, F8E8M0FNU, ElementType
from hloom.shape.literal import Literal
from hloom.shape.literal_parser import parse_literal_at
from hloom.shape.shape import Shape
from tests.arrays import f32
from tests.shape.shapes import ARRAY_TYPES, array_literals
from tests.work import bytecodes

S = Shape.parse
FLOATING = [element_type for element_type in ElementType.all() if element_type.is_floating]

# Shape, text, and what XLA prints for it, where that is not the text.
CASES = [
    ("f32[]", "1.5", ""), ("f32[]", "1e10", "1e+10"), ("f32[]", "123456789", "123456792"),
    ("f32[]", "16777216", ""), ("f32[]", "1e-45", "1.4013e-45"), ("f32[]", "3.4028235e38", "3.40282347e+38"),
    ("f32[]", "-inf", ""), ("f32[]", "nan", ""), ("f32[]", "-nan", ""), ("f32[]", "-nan(0x7)", ""),
    ("f32[]", "nan(0x400000)", "nan"), ("f32[]", "nan(0x1F)", "nan(0x1f)"), ("f32[]", "5.", "5"),
    ("f32[]", "-.5", "-0.5"), ("f32[]", "-0.0", "-0"), ("f64[]", "0.1", ""),
    ("f64[]", "123456789012345678", "1.2345678901234568e+17"), ("f64[]", "5e-324", "4.94065645841247e-324"),
    ("bf16[]", "0.1", "0.1001"), ("bf16[]", "nan(0x1)", ""), ("f16[]", "0.1", "0.099976"),
    ("f16[]", "65519", "65504"), ("f8e4m3fn[]", "464", "448"), ("f8e4m3fn[]", "0.1", "0.102"),
    ("f8e4m3fn[]", "inf", "nan"), ("f8e5m2[]", "57344", "5.7e+04"), ("f8e5m2fnuz[]", "nan", "-nan"),
    ("f8e8m0fnu[]", "nan", ""), ("f8e8m0fnu[]", "1e-40", "5.9e-39"), ("f4e2m1fn[]", "7", "6"),
    ("f4e2m1fn[]", "100", "6"), ("f4e2m1fn[2]", "{-inf, nan}", "{-6, -0}"),
    ("f6e2m3fn[3]", "{1.1, 0.0625, 8}", "{1.12, 0, 7.5}"),
    ("f6e3m2fn[3]", "{1.1, 0.0625, 31}", "{1, 0.062, 28}"),
    ("pred[]", "true", ""), ("pred[]", "0", "false"), ("pred[]", "2", "true"),
    ("pred[3]", "{true,false,1}", "{1, 0, 1}"),
    ("s64[]", "-9223372036854775808", ""), ("u64[]", "18446744073709551615", ""), ("s32[]", "007", "7"),
    ("s4[2]", "{-8, 7}", ""), ("s1[2]", "{-1, 0}", ""), ("u1[2]", "{1, 0}", ""),
    ("c64[]", "( 1 , -nan )", "(1, -nan)"),
    ("c128[2,1]", "{{(1,2)},{(0.1,-0.0)}}", "{ {(1, 2)}, {(0.1, -0)} }"),
    ("f32[2,2]", "{{1,2},{3,4}}", "{ { 1, 2 }, { 3, 4 } }"), ("f32[1,1,1]", "{{{1}}}", "{ { {1} } }"),
    ("f32[0]", "{}", ""), ("f32[2,0]", "{{},{}}", "{ {}, {} }"), ("f32[0,2]", "{}", "{  }"),
    ("f32[2,0,2]", "{{},{}}", "{ {  }, {  } }"),
    ("f32[2,0,2,2]", "{{},{}}", "{ { /*i0=0*/ }, { /*i0=1*/ } }"),
    ("f32[1,1,2,2]", "{{{{1,2},{3,4}}}}", "{ { /*i0=0*/ { /*i1=0*/ { 1, 2 }, { 3, 4 } } } }"),
    ("f32[2,2]{0,1}", "{ { 1, 2 }, { 3, 4 } }", ""), ("s32[3]", "{/*i0=0*/1 2,,3,}", "{1, 2, 3}"),
    ("s32[2,2]", "{{1,2}{3,4}}", "{ { 1, 2 }, { 3, 4 } }"), ("f32[3]", "1", "{1, 0, 0}"),
    ("(f32[], s32[2])", "(1, {2,3})", "( 1, {2, 3} )"), ("()", "()", "(  )"),
    ("((f32[], s32[]), f32[1])", "((1,2),{3})", "( ( 1, 2 ), {3} )"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "text", "printed"), CASES)
def test_text_is_read_and_printed(shape: str, text: str, printed: str) -> None:
    literal = Literal.parse(text, S(shape))
    assert literal.shape == S(shape)
    assert literal.to_text() == (printed or text)


@pytest.mark.parametrize(("shape", "text", "printed"), CASES)
def test_jaxlib_prints_the_same(shape: str, text: str, printed: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(f"HloModule m\n\nENTRY e {{\n  ROOT c = {shape} constant({text})\n}}\n")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    assert f"constant({printed or text})" in module.to_string(options)


def test_every_bit_pattern_prints_as_jaxlib_prints_it() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    for element_type in FLOATING:
        if element_type.bits > 16 or element_type in (F6E2M3FN, F6E3M2FN):  # jaxlib aborts writing these
            continue
        patterns = np.arange(1 << element_type.bits).astype(f"u{element_type.bytes}")
        ones = np.ones(len(patterns), element_type.numpy_dtype)
        text = f"ENTRY e {{ ROOT c = {element_type}[{len(ones)}] constant({{{','.join('1' * len(ones))}}}) }}"
        proto = hlo.hlo_module_from_text("HloModule m\n" + text).as_serialized_hlo_module_proto()
        assert proto.count(ones.tobytes()) == 1
        patched = proto.replace(ones.tobytes(), patterns.tobytes())
        printed = hlo.HloModule.from_serialized_hlo_module_proto(patched).to_string(options)
        literal = Literal(patterns.view(element_type.numpy_dtype))
        assert f"constant({literal.to_text()})" in printed, element_type


@pytest.mark.parametrize("element_type", FLOATING, ids=str)
def test_text_keeps_every_bit(element_type: ElementType) -> None:
    if element_type.bits <= 16:
        patterns = np.arange(1 << element_type.bits).astype(f"u{element_type.bytes}")
    else:
        data = np.random.default_rng(7).bytes(element_type.bytes * 10_000)
        patterns = np.frombuffer(data, f"u{element_type.bytes}")
    literal = Literal(patterns.view(element_type.numpy_dtype))
    assert Literal.parse(literal.to_text(), literal.shape) == literal


@given(array_literals())
def test_printed_literals_are_read_back(literal: Literal) -> None:
    assert Literal.parse(literal.to_text(), literal.shape) == literal
    assert Literal.parse(literal.to_text(oneline=False), literal.shape) == literal


def test_shapes_and_lines() -> None:
    literal = Literal((f32([[1, 2], [3, 4]]), np.int32(5), None))
    assert literal.to_text(shape_prefix=True, layout=True) == (
        "( f32[2,2]{1,0} { { 1, 2 }, { 3, 4 } }, s32[] 5, token[] )"
    )
    assert literal.to_text(shape_prefix=True, oneline=False) == (
        "(\nf32[2,2] {\n  { 1, 2 },\n  { 3, 4 }\n},\ns32[] 5,\ntoken[]\n)"
    )
    assert Literal(np.arange(2), S("s64[<=3]")).to_text(shape_prefix=True) == "s64[<=3](2) {0, 1}"
    assert repr(Literal([1, 2])) == "Literal({1, 2}, 's32[2]{0}')"
    assert repr(Literal(np.zeros(1000, np.int8))) == "Literal({...}, 's8[1000]{0}')"


def test_dynamic_arrays_hold_what_is_written() -> None:
    literal = Literal.parse("{1, 2}", S("s32[<=3]"))
    assert (literal.shape, literal.dynamic_sizes) == (S("s32[<=3]"), (2,))
    assert Literal.parse("{{1}, {2}}", S("s32[<=3,<=2]")).dynamic_sizes == (2, 1)
    assert Literal.parse("{1, 2}", S("s32[?]")).shape == S("s32[2]")


def test_elided_elements() -> None:
    assert Literal.parse("{...}", S("f32[1000000,1000000]")).is_elided
    assert Literal.parse("({...}, 1)", S("(f32[5], s32[])")).is_elided
    assert Literal.parse("{1, ...}", S("f32[5]")).is_elided


def test_nan_payloads_of_complex_parts() -> None:
    literal = Literal.parse("(-nan(0x3), nan(0x5))", S("c64[]"))
    assert literal.to_bytes() == bytes.fromhex("030080ff 0500807f")
    assert literal.to_text() == "(-nan(0x3), nan(0x5))"


def test_the_least_f8e8m0fnu_is_read_back() -> None:
    assert Literal.parse("5.9e-39", Shape(F8E8M0FNU)).to_bytes() == b"\0"


@pytest.mark.parametrize(
    ("shape", "text", "column", "rule"),
    [
        ("f32[]", "", 1, "literal.number"), ("f32[]", "0x1p3", 1, "literal.number"),
        ("f32[]", ".5", 1, "literal.number"), ("f32[]", "+5", 1, "literal.number"),
        ("f32[]", "- 5", 1, "literal.number"), ("f32[]", "Inf", 1, "literal.number"),
        ("f32[]", "infinity", 1, "literal.number"), ("f32[]", "1x2", 1, "literal.number"),
        ("f32[]", "1_000", 1, "literal.number"), ("f32[]", "true", 1, "literal.number"),
        ("f32[]", "1 2", 3, "literal.text-ends"), ("f32[]", "nan(3)", 4, "literal.text-ends"),
        ("f32[]", "{1}", 1, "literal.nesting"), ("f32[]", "(1, 2)", 1, "literal.nesting"),
        ("f32[2]", "{1, {2}}", 5, "literal.nesting"), ("f32[2,2]", "{1, 2, 3, 4}", 2, "literal.nesting"),
        ("f32[2]", "{1}", 3, "literal.element-count"), ("f32[2]", "{1, 2, 3}", 8, "literal.element-count"),
        ("f32[2,2]", "{{1, 2}, {3}}", 12, "literal.element-count"),
        ("f32[2]", "{1, 2", 6, "literal.element-count"),
        ("s32[<=2]", "{1, 2, 3}", 8, "literal.element-count"), ("f32[0]", "1", 1, "literal.nesting"),
        ("f32[2]", "{1, 2}}", 7, "literal.text-ends"), ("f32[2]", "{1, ..., 2}", 8, "literal.text-form"),
        ("s32[]", "1.0", 1, "literal.integer"), ("s32[]", "nan", 1, "literal.integer"),
        ("s32[]", "true", 1, "literal.integer"), ("pred[]", "1.0", 1, "literal.integer"),
        ("s32[]", "2147483648", 1, "literal.value-in-range"),
        ("u8[]", "-1", 1, "literal.value-in-range"),
        ("s4[]", "8", 1, "literal.value-in-range"), ("u4[]", "16", 1, "literal.value-in-range"),
        ("s64[]", "18446744073709551616", 1, "literal.value-in-range"),
        ("u64[]", "-9223372036854775809", 1, "literal.value-in-range"),
        ("s32[]", "1" * 5000, 1, "literal.integer"),
        ("s32[3]", "{1, 2, 3000000000}", 8, "literal.value-in-range"),
        ("f32[]", "1e39", 1, "literal.value-in-range"), ("bf16[]", "1e100", 1, "literal.value-in-range"),
        ("f16[]", "65520", 1, "literal.value-in-range"), ("f8e4m3fn[]", "465", 1, "literal.value-in-range"),
        ("f64[]", "1.8e308", 1, "literal.value-in-range"), ("f8e8m0fnu[]", "0", 1, "literal.value-in-range"),
        ("f32[2]", "{1, 1e400}", 5, "literal.value-in-range"),
        ("c64[]", "(0, -1e100)", 5, "literal.value-in-range"), ("c64[]", "1", 1, "literal.text-form"),
        ("c64[]", "(1)", 3, "literal.text-form"), ("c64[]", "(1, 2, 3)", 6, "literal.text-form"),
        ("f32[]", "nan(0x0)", 1, "literal.nan-payload"),
        ("f32[]", "nan(0x800000)", 1, "literal.nan-payload"),
        ("f8e4m3fn[]", "nan(0x1)", 1, "literal.nan-payload"),
        ("(s32[], s32[])", "(1)", 3, "literal.text-form"),
        ("(s32[])", "1", 1, "literal.text-form"), ("token[]", "1", 1, "literal.token"),
        ("opaque[]", "1", 1, "literal.has-value"), ("f32[99999,99999]", "1", 1, "literal.nesting"),
    ],
)  # fmt: skip
def test_bad_text_is_refused_in_its_place(shape: str, text: str, column: int, rule: str) -> None:
    with pytest.raises(ParseError) as error:
        Literal.parse(text, S(shape))
    assert (error.value.rule, error.value.line, error.value.column) == (rule, 1, column)


def test_literals_have_at_most_64_dimensions() -> None:
    with pytest.raises(ShapeError, match=r"shape\.rank"):
        Literal.parse("{" * 65 + "1" + "}" * 65, Shape(S("f32[]").element_type, (1,) * 65))


def test_errors_in_a_module_have_its_lines() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT c = s32[2] constant({1,\n    x})\n}"
    with pytest.raises(ParseError) as error:
        parse_literal_at(text, text.index("{1"), S("s32[2]"))
    assert (error.value.line, error.value.column, error.value.source_line) == (4, 5, "    x})")


def test_a_literal_inside_a_text_ends_where_it_ends() -> None:
    for constant, shape in (("{1, 2}", "s32[2]"), ("5", "s32[]"), ("( 1, {2} )", "(s32[], s32[1])")):
        text = f'c = {shape} constant({constant}), metadata={{op_name="a"}}\n}}\n'
        start = text.index("constant(") + len("constant(")
        literal, end = parse_literal_at(text, start, S(shape))
        assert text[start:end] == constant and literal.shape == S(shape)


@given(
    st.sampled_from(ARRAY_TYPES), st.sampled_from(["", "2", "2,2", "<=2"]), st.text("{}(), 01.-e+nainf/*x")
)
def test_any_text_is_a_literal_or_an_error(element_type: ElementType, sizes: str, text: str) -> None:
    shape = S(f"{element_type}[{sizes}]")
    try:
        literal = Literal.parse(text, shape)
    except HloError as error:
        assert error.rule and error.line is not None
    else:
        assert literal.is_elided or Literal.parse(literal.to_text(), shape) == literal


def test_large_constants_are_read_in_c_and_printed_in_few_steps_for_each_element() -> None:
    literal = Literal(np.random.default_rng(0).normal(size=(4, 8, 20, 20)).astype(np.float32))
    text = literal.to_text()
    assert Literal.parse(text, literal.shape) == literal
    assert bytecodes(lambda: Literal.parse(text, literal.shape)) < literal.array.size
    assert bytecodes(literal.to_text) < 40 * literal.array.size
