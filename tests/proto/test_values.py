"""Shapes and literals as protos: every bit comes back, and XLA's conventions hold."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given

from hloom.errors import EvaluationError, HloError
from hloom.proto.literal import read_literal, write_literal
from hloom.proto.schema.xla_data_pb2 import LayoutProto, LiteralProto, ShapeProto
from hloom.proto.shape import INT64_MIN, read_shape, write_shape
from hloom.shape.layout import Layout, PaddingValue
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from tests.shape.shapes import array_literals, array_shapes


def stored_shape(shape: Shape) -> ShapeProto:
    message = ShapeProto()
    write_shape(shape, message)
    return message


def stored(literal: Literal) -> LiteralProto:
    message = LiteralProto()
    write_literal(literal, message)
    return message


def refusal(message: LiteralProto | ShapeProto) -> HloError:
    with pytest.raises(HloError) as caught:
        read_literal(message) if isinstance(message, LiteralProto) else read_shape(message)
    return caught.value


# -- shapes


@given(array_shapes())
def test_array_shapes_come_back_in_whatever_layout(shape: Shape) -> None:
    assert read_shape(stored_shape(shape)) == shape


@pytest.mark.parametrize(
    "text",
    [
        "f32[]", "pred[2,<=3,?]", "(f32[2], (s8[1], token[]), ())", "token[]", "opaque[]", "b(f32[8])",
        "bf16[8,128]{1,0:T(8,128)(2,1)L(2)S(1)}", "s4[3]{0:T(*,4)E(4)}", "f32[4]{0:SC(0:1,2)M(8)}",
        "u8[2,2]{0,1:#(u16)*(u32)}",
    ],
)  # fmt: skip
def test_shapes_of_every_kind_come_back(text: str) -> None:
    shape = Shape.parse(text)
    assert read_shape(stored_shape(shape)) == shape


def test_a_shape_without_a_layout_keeps_it_open() -> None:
    shape = Shape.parse("(f32[2,3], s32[])").without_layout()
    assert read_shape(stored_shape(shape)) == shape
    assert not stored_shape(shape).tuple_shapes[0].HasField("layout")


def test_an_older_layout_has_padded_dimensions_and_a_padding_value() -> None:
    layout = Layout((1, 0), padded_dimensions=(8, 16), padding_value=PaddingValue.LOWEST)
    shape = Shape.parse("f32[7,10]").with_layout(layout)
    message = stored_shape(shape)
    assert list(message.layout.padded_dimensions) == [8, 16]
    assert read_shape(message) == shape


def test_the_least_integer_says_unbounded_and_combined() -> None:
    """Dynamic flags and the tail padding alignment are written even where they say nothing."""
    message = stored_shape(Shape.parse("f32[?,2]{1,0:T(*,2)}"))
    assert list(message.dimensions) == [INT64_MIN, 2]
    assert list(message.is_dynamic_dimension) == [True, False]
    assert list(message.layout.tiles[0].dimensions) == [INT64_MIN, 2]
    assert message.layout.tail_padding_alignment_in_elements == 1


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("element_type: 99", "element-type.known"),
        ("element_type: F32 dimensions: -2", "proto.dimension-size"),
        ("element_type: F32 dimensions: 2 layout { minor_to_major: 1 }", "layout.minor-to-major-permutation"),
        ("element_type: F32 dimensions: 2 layout {}", "layout.rank"),
        ("element_type: F32 layout { padding_value: 17 }", "proto.enum-value"),
        ("element_type: F32 dimensions: 2 is_dynamic_dimension: [true, true]", "shape.dynamic-flags-rank"),
        ("element_type: TOKEN dimensions: 2", "shape.only-arrays-have-dimensions"),
        ("element_type: F32 tuple_shapes { element_type: F32 }", "shape.only-tuples-have-elements"),
        ("element_type: BUFFER", "shape.buffer-holds-array"),
    ],
)
def test_shapes_that_cannot_be(text: str, rule: str) -> None:
    assert refusal(text_format.Parse(text, ShapeProto())).rule == rule


# -- literals


@given(array_literals())
def test_literals_come_back_bit_for_bit(literal: Literal) -> None:
    again = read_literal(stored(literal))
    assert again == literal
    assert again.shape == literal.shape


def test_tuples_and_tokens() -> None:
    literal = Literal((np.float32(1), (None, np.array([1, 2], np.int8))))
    message = stored(literal)
    assert read_literal(message) == literal
    assert len(message.tuple_literals) == 2


def test_elements_are_stored_in_the_order_of_the_layout() -> None:
    literal = Literal(np.array([[1, 2], [3, 4]], np.int32), Shape.parse("s32[2,2]{0,1:T(2,1)}"))
    assert list(stored(literal).s32s) == [1, 3, 2, 4]


def test_narrow_elements_take_a_byte_with_empty_high_bits() -> None:
    literal = Literal([-1, 7], Shape.parse("s4[2]{0:E(4)}"))
    assert stored(literal).s4s == b"\x0f\x07"


def test_signaling_nans_and_negative_zeros() -> None:
    bits = np.array([0x7F800001, 0xFFC12345, 0x80000000], np.uint32)
    again = read_literal(stored(Literal(bits.view(np.float32))))
    assert again.array.view(np.uint32).tolist() == bits.tolist()


def test_dynamic_dimensions_are_filled_up_to_their_bounds() -> None:
    literal = Literal(np.array([[1, 2]], np.int32), Shape.parse("s32[<=2,3]").with_dynamic_dimension(1))
    message = stored(literal)
    assert list(message.s32s) == [1, 2, 0, 0, 0, 0]
    assert list(message.dynamic_sizes) == [1, 2]
    assert read_literal(message) == literal


def test_empty_arrays_have_no_elements() -> None:
    literal = Literal(np.zeros((2, 0), np.float16))
    assert stored(literal).ByteSize() == LiteralProto(shape=stored(literal).shape).ByteSize()
    assert read_literal(stored(literal)) == literal


def test_nobody_knows_the_elements_of_an_elided_literal() -> None:
    with pytest.raises(EvaluationError) as caught:
        stored(Literal.elided(Shape.parse("f32[100]")))
    assert caught.value.rule == "literal.elided"


TWO = "element_type: {} dimensions: 2 layout {{ minor_to_major: 0 }}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"shape {{ {TWO.format('S32')} }} s32s: [1, 2, 3]", "proto.literal-size"),
        (f"shape {{ {TWO.format('F32')} }}", "literal.byte-size"),
        (f"shape {{ {TWO.format('C64')} }} c64s: [1, 2]", "literal.byte-size"),
        (f"shape {{ {TWO.format('S8')} }} s8s: 'abc'", "literal.byte-size"),
        (
            "shape { element_type: F32 dimensions: 1000000000000 layout { minor_to_major: 0 } }",
            "literal.byte-size",
        ),
        ("shape { element_type: TUPLE tuple_shapes { element_type: TOKEN } }", "proto.literal-size"),
        ("shape { element_type: OPAQUE_TYPE }", "proto.literal-shape"),
        (f"shape {{ element_type: F32 dimensions: {INT64_MIN} }}", "proto.literal-shape"),
        ("shape { element_type: F32 dimensions: [1000000000, 0] }", "proto.literal-shape"),
        (f"shape {{ element_type: F32 dimensions: [0, {1 << 62}, {1 << 62}] }}", "proto.literal-shape"),
        (f"shape {{ element_type: F32 {'dimensions: 1 ' * 65} }} f32s: 1", "proto.literal-shape"),
        (
            f"shape {{ {TWO.format('S32')} is_dynamic_dimension: true }} s32s: [1, 2] dynamic_sizes: -1",
            "proto.literal-dynamic-sizes",
        ),
    ],
)
def test_literals_that_do_not_fit_their_shape(text: str, rule: str) -> None:
    """Nothing is allocated that the message does not hold."""
    assert refusal(text_format.Parse(text, LiteralProto())).rule == rule


def test_unknown_layout_fields_are_not_in_the_way() -> None:
    layout = LayoutProto.FromString(LayoutProto(minor_to_major=[0]).SerializeToString() + b"\x20\x01")
    message = ShapeProto(element_type=11, dimensions=[2], layout=layout)  # type: ignore[arg-type]
    assert read_shape(message) == Shape.parse("f32[2]")
