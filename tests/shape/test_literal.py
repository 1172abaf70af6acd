"""Literals: values and shapes, bits, and bytes in any layout."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import EvaluationError, HloError, ParseError, ShapeError
from hloom.shape.element_type import F32, S4, S32, U8
from hloom.shape.layout import Layout, PaddingValue
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from tests.arrays import f32
from tests.shape.shapes import array_literals, array_shapes, layouts

S = Shape.parse


def test_arrays_keep_their_type() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    literal = Literal(array)
    assert literal.shape == S("f32[2,3]")
    assert (literal.numpy() == array).all()
    assert np.asarray(literal).tolist() == array.tolist()
    assert Literal(np.zeros(2, ml_dtypes.int4)).shape == S("s4[2]")
    assert Literal(np.array(1, ">i4")).to_bytes() == b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (True, "pred[]"), (3, "s32[]"), (1 << 40, "s64[]"), ((1 << 64) - 1, "u64[]"), (1.5, "f32[]"),
        (2j, "c64[]"), ([1, 2], "s32[2]"), ([[0.5], [1.5]], "f32[2,1]"), ([], "f32[0]"), (None, "token[]"),
        ((1, (2.0, None)), "(s32[], (f32[], token[]))"), (np.int8(3), "s8[]"),
    ],
)  # fmt: skip
def test_python_values_have_shapes(value: Any, shape: str) -> None:
    assert Literal(value).shape == S(shape)


def test_python_values_take_the_shape_they_are_given() -> None:
    assert Literal(3, S("bf16[]")).to_bytes() == b"\x40\x40"
    assert Literal([1, 0], S("pred[2]")).numpy().tolist() == [True, False]
    assert Literal([7, -8], S("s4[2]")).numpy().tolist() == [7, -8]
    assert Literal([[]], S("s32[1,0]")).shape == S("s32[1,0]")
    assert Literal((1, (2,)), S("(u8[], (f64[]))")).numpy()[1][0] == np.float64(2)
    assert Literal(Literal(np.float32(1)), S("f32[]{:T(128)}")).shape == S("f32[]{:T(128)}")


@pytest.mark.parametrize(
    ("value", "shape", "rule"),
    [
        (np.zeros(3, np.float32), "f32[2]", "literal.dimensions"),
        (np.zeros(2, np.float32), "f32[]", "literal.dimensions"),
        (np.zeros(3, np.float32), "f32[<=2]", "literal.dimensions"),
        (np.zeros(2, np.float64), "f32[2]", "literal.element-type"),
        (300, "u8[]", "literal.value-in-range"),
        (-1, "u8[]", "literal.value-in-range"),
        (1 << 70, "s64[]", "literal.value-in-range"),
        (1.5, "s32[]", "literal.integer"),
        (1j, "f32[]", "literal.real"),
        ("a", "f32[]", "literal.numbers"),
        ([Fraction(1, 2)], "f32[1]", "literal.numbers"),
        ([1 << 70, Fraction(1, 2)], "s64[2]", "literal.numbers"),
        ([[1], [1, 2]], "s32[2,1]", "literal.numbers"),
        ((1,), "(s32[], s32[])", "literal.tuple-size"),
        (1, "(s32[])", "literal.tuple-size"),
        ((1,), "s32[1]", "literal.is-array"),
        (None, "s32[]", "literal.is-array"),
        (1, "token[]", "literal.has-value"),
        (None, "opaque[]", "literal.has-value"),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any, shape: str, rule: str) -> None:
    with pytest.raises(ShapeError) as error:
        Literal(value, S(shape))
    assert error.value.rule == rule


def test_tuples_and_tokens() -> None:
    literal = Literal((np.float32(1), (np.int32(2), None)))
    assert len(literal) == 2 and literal[1][1] == Literal.token()
    assert literal.numpy() == (1.0, (2, None))
    assert Literal.tuple_(literal.elements) == literal
    assert literal.to_bytes() == b"\0\0\x80\x3f\x02\0\0\0"
    assert Literal.from_bytes(literal.shape, literal.to_bytes()) == literal
    with pytest.raises(ShapeError, match=r"literal\.is-tuple"):
        _ = Literal(1).elements
    with pytest.raises(ShapeError, match=r"shape\.is-array"):
        _ = literal.array


def test_dynamic_dimensions_hold_fewer_elements() -> None:
    literal = Literal(np.arange(7, dtype=np.int8), S("s8[<=10]"))
    assert literal.dynamic_sizes == (7,) and literal.shape.dimensions == (10,)
    assert literal.numpy().tolist() == list(range(7))
    assert literal.to_bytes() == bytes([0, 1, 2, 3, 4, 5, 6, 0, 0, 0])
    assert literal != Literal(np.arange(8, dtype=np.int8), S("s8[<=10]"))
    assert Literal(np.zeros((3, 2), np.float32), S("f32[?,2]")).shape == S("f32[3,2]")


def test_equality_is_of_bits() -> None:
    def f32(bits: int) -> Literal:
        return Literal(np.array(bits, np.uint32).view(np.float32))

    assert f32(0x7FC00000) == f32(0x7FC00000)
    assert f32(0x7FC00000) != f32(0x7FC00001)
    assert Literal(0.0) != Literal(-0.0)
    assert hash(Literal([1, 2])) == hash(Literal([1, 2]))
    assert Literal([1, 2]) != Literal([1, 2], S("s64[2]"))
    assert Literal([1, 2]).relayout(Layout((0,), memory_space=1)) == Literal([1, 2])
    assert Literal(1) != 1
    assert Literal((1, 2)) == Literal((1, 2)) and Literal((1, 2)) != Literal((1, 3))


def test_literals_do_not_change() -> None:
    literal = Literal([1, 2])
    with pytest.raises(ValueError, match="read-only"):
        literal.numpy()[0] = 5
    with pytest.raises(AttributeError):
        literal.shape = Shape(F32)
    assert pickle.loads(pickle.dumps(literal)) == literal


def test_elided_literals_have_no_elements() -> None:
    literal = Literal.elided(S("f32[100]"))
    assert literal.is_elided and str(literal) == "{...}" and literal != Literal.elided(S("f32[100]"))
    assert Literal.tuple_([literal]).is_elided and not Literal.token().is_elided
    with pytest.raises(EvaluationError, match=r"literal\.elided"):
        literal.numpy()


# Bytes.


def test_layouts_order_the_bytes() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert Literal(array, S("u8[2,3]{0,1}")).to_bytes() == bytes([0, 3, 1, 4, 2, 5])
    assert Literal(array, S("u8[2,3]{1,0:T(2,2)}")).to_bytes() == bytes([0, 1, 3, 4, 2, 0, 5, 0])
    assert Literal(array, S("u8[2,3]{1,0:L(8)}")).to_bytes() == bytes([0, 1, 2, 3, 4, 5, 0, 0])
    assert Literal(array).relayout(Layout((0, 1))).to_bytes() == bytes([0, 3, 1, 4, 2, 5])


@pytest.mark.parametrize(
    ("value", "filler"),
    [
        (PaddingValue.INVALID, 0), (PaddingValue.ZERO, 0), (PaddingValue.ONE, 1),
        (PaddingValue.LOWEST, -128), (PaddingValue.HIGHEST, 127), (PaddingValue.UNKNOWN, 0),
    ],
)  # fmt: skip
def test_the_older_padding_has_a_value(value: PaddingValue, filler: int) -> None:
    layout = Layout((0,), padded_dimensions=(4,), padding_value=value)
    shape = Shape.parse("s8[2]").with_layout(layout)
    data = Literal([5, 6], shape).to_bytes()
    assert np.frombuffer(data, np.int8).tolist() == [5, 6, filler, filler]


def test_narrow_elements_are_packed_from_the_low_bits() -> None:
    values = [1, 2, -1]
    assert Literal(values, S("s4[3]")).to_bytes() == b"\x01\x02\x0f"
    assert Literal(values, S("s4[3]{0:E(4)}")).to_bytes() == b"\x21\x0f"
    assert Literal([1, 2, 3, 0, 1], S("u2[5]{0:E(2)}")).to_bytes() == b"\x39\x01"
    assert Literal([1, 0, 1], S("pred[3]{0:E(1)}")).to_bytes() == b"\x05"
    assert Literal([1, 2], S("u8[2]{0:E(16)}")).to_bytes() == b"\x01\0\x02\0"
    assert Literal([1, 2], S("s4[2]{0:E(12)}")).to_bytes() == b"\x01\x20\x00"


def test_packing_is_what_bitcasts_on_cpu_see() -> None:
    jax = pytest.importorskip("jax")
    packed = jax.lax.bitcast_convert_type(jax.numpy.array([1, 2], "int4"), "int8")
    assert bytes([int(packed)]) == Literal([1, 2], S("s4[2]{0:E(4)}")).to_bytes()


@given(array_literals())
def test_bytes_are_read_back(literal: Literal) -> None:
    data = literal.to_bytes()
    assert len(data) == literal.shape.byte_size
    assert Literal.from_bytes(literal.shape, data) == literal


@given(array_shapes(), st.integers(0, 1 << 30))
def test_padding_may_hold_anything(shape: Shape, seed: int) -> None:
    data = np.random.default_rng(seed).bytes(shape.byte_size)
    literal = Literal.from_bytes(shape, data)
    assert Literal.from_bytes(shape, literal.to_bytes()) == literal


@given(array_literals(), st.data())
def test_relayout_keeps_the_value(literal: Literal, data: st.DataObject) -> None:
    layout = data.draw(layouts(literal.shape.rank))
    assert literal.relayout(layout) == literal
    assert (
        Literal.from_bytes(literal.shape.with_layout(layout), literal.relayout(layout).to_bytes()) == literal
    )


@given(array_literals())
def test_layout_order_is_read_back(literal: Literal) -> None:
    assert Literal.from_layout_order(literal.shape, literal.in_layout_order()) == literal


def test_layout_order_leaves_padding_out() -> None:
    literal = Literal(np.arange(6, dtype=np.int32).reshape(2, 3), S("s32[2,3]{0,1:T(2,2)}"))
    assert literal.in_layout_order().tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(ShapeError, match=r"literal\.element-count"):
        Literal.from_layout_order(literal.shape, np.zeros(5, np.int32))


def test_bytes_of_the_wrong_length_are_refused() -> None:
    for data in (b"", b"\0" * 7, b"\0" * 9):
        with pytest.raises(ParseError, match=r"literal\.byte-size"):
            Literal.from_bytes(S("s32[2]"), data)
    with pytest.raises(HloError):
        Literal.from_bytes(S("(s32[], s32[])"), b"\0" * 9)


def test_shapes_can_be_changed_where_the_value_stays() -> None:
    literal = Literal([1, 2]).with_shape(S("s32[2]{0:T(128)}"))
    assert literal.shape == S("s32[2]{0:T(128)}") and literal.numpy().tolist() == [1, 2]
    assert Literal.elided(S("s32[2]")).with_shape(S("s32[<=2]")).is_elided
    assert {S4, S32, U8} == {Literal([1], Shape(t, (1,))).shape.element_type for t in (S4, S32, U8)}


def test_the_shape_may_be_text() -> None:
    assert Literal([[1, 2]], "s4[1,2]{0,1:E(4)}").to_bytes() == b"\x21"


def test_only_short_literals_are_represented_whole() -> None:
    short, long = Literal(np.zeros(100, np.uint8)), Literal(np.zeros(101, np.uint8))
    assert repr(short) == f"Literal({short.to_text()}, 'u8[100]{{0}}')"
    assert repr(long) == "Literal({...}, 'u8[101]{0}')"


class OnlyDLPack:
    """An array of another library, which offers it by DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_comes_in_without_a_copy() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    for literal in (Literal(OnlyDLPack(array)), Literal(OnlyDLPack(array), "s32[2,3]{0,1}")):
        assert np.shares_memory(literal.array, array)
        assert literal.array.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_dlpack_goes_out() -> None:
    literal = Literal(f32([1, 2, 3]))
    taken = np.from_dlpack(literal)
    assert taken.tolist() == [1, 2, 3]
    assert np.shares_memory(taken, literal.array) and not taken.flags.writeable
    assert literal.__dlpack_device__() == (1, 0)
    assert literal.__dlpack__() is not None  # libraries that know no read-only arrays get a copy
