"""Element types: names, numbers, widths, and numpy's counterparts."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from hloom.errors import ParseError, ShapeError
from hloom.shape.element_type import (
    BF16,
    C64,
    C128,
    F8E4M3FN,
    F8E8M0FNU,
    F32,
    F64,
    PRED,
    S4,
    S32,
    TOKEN,
    U8,
    ElementType,
)

# PrimitiveType of xla_data.proto.
NUMBERS = {
    "pred": 1, "s1": 30, "s2": 26, "s4": 21, "s8": 2, "s16": 3, "s32": 4, "s64": 5,
    "u1": 31, "u2": 27, "u4": 22, "u8": 6, "u16": 7, "u32": 8, "u64": 9,
    "f16": 10, "f32": 11, "f64": 12, "bf16": 16, "c64": 15, "c128": 18,
    "f8e5m2": 19, "f8e4m3fn": 20, "f8e4m3b11fnuz": 23, "f8e5m2fnuz": 24, "f8e4m3fnuz": 25, "f8e4m3": 28,
    "f8e3m4": 29, "f4e2m1fn": 32, "f8e8m0fnu": 33, "f6e3m2fn": 35,
    "f6e2m3fn": 36, "tuple": 13, "opaque": 14, "token": 17, "buffer": 34,
}  # fmt: skip


def test_the_types_are_xlas() -> None:
    assert {element_type.name: element_type.number for element_type in ElementType.all()} == NUMBERS


def test_numbers_agree_with_jaxlib() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    named = {name.lower(): member.value for name, member in hlo.PrimitiveType.__members__.items()}
    named["opaque"] = named.pop("opaque_type")
    del named["primitive_type_invalid"]
    assert {name: ElementType.parse(name).number for name in named} == named


@pytest.mark.parametrize("element_type", ElementType.all(), ids=str)
def test_every_type_is_found_again(element_type: ElementType) -> None:
    assert ElementType.parse(element_type.name) is element_type
    assert ElementType.parse(element_type.name.upper()) is element_type
    assert ElementType.from_number(element_type.number) is element_type
    assert pickle.loads(pickle.dumps(element_type)) is element_type
    assert copy.deepcopy(element_type) is element_type
    if element_type.is_array:
        assert ElementType.from_dtype(element_type.dtype) is element_type


def test_widths_and_kinds() -> None:
    assert [t.bits for t in (PRED, S4, BF16, C64)] == [8, 4, 16, 64]
    assert [t.bytes for t in (PRED, S4, BF16, C64)] == [1, 1, 2, 8]
    assert S32.is_integer and S32.is_signed and not PRED.is_integer
    assert U8.is_unsigned and not U8.is_signed
    assert F8E4M3FN.is_floating and C64.is_complex and not C64.is_floating
    assert (C64.component, C128.component, F32.component) == (F32, F64, F32)
    assert not TOKEN.is_array


def test_limits_are_the_finite_ones() -> None:
    assert S4.limits == (-8, 7)
    assert PRED.limits == (False, True)
    assert F8E4M3FN.limits == (-448.0, 448.0)
    assert F8E8M0FNU.limits[0] > 0
    with pytest.raises(ShapeError, match=r"element-type\.ordered"):
        _ = C64.limits


def test_dtypes_of_numpy_and_ml_dtypes() -> None:
    assert ElementType.from_dtype("int32") is S32
    assert ElementType.from_dtype(np.dtype(">i4")) is S32
    assert ElementType.from_dtype(ml_dtypes.bfloat16) is BF16
    assert ElementType.from_dtype(np.longlong).name == "s64"


def test_types_do_not_change() -> None:
    with pytest.raises(AttributeError):
        F32.bits = 64


def test_what_is_no_type_is_refused() -> None:
    for text in ("f31", "", "bf8", "float"):
        with pytest.raises(ParseError, match=r"element-type\.known"):
            ElementType.parse(text)
    with pytest.raises(ParseError, match=r"element-type\.known"):
        ElementType.from_number(0)
    for dtype in ("datetime64[s]", "U5", "object", object()):
        with pytest.raises(ShapeError, match=r"element-type\.from-dtype"):
            ElementType.from_dtype(dtype)
    with pytest.raises(ShapeError, match=r"element-type\.has-dtype"):
        _ = TOKEN.numpy_dtype
