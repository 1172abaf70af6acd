"""dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.evaluation import evaluate, parse, refused

A = np.arange(5, dtype=np.float32)
B = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_the_pages_slices() -> None:
    one = """a = f32[5] parameter(0)
    s = s32[] constant(2)
    ROOT r = f32[2] dynamic-slice(a, s), dynamic_slice_sizes={2}"""
    assert evaluate(one, A).tolist() == [2, 3]
    two = """b = f32[4,3] parameter(0)
    x = s32[] constant(2)
    y = s32[] constant(1)
    ROOT r = f32[2,2] dynamic-slice(b, x, y), dynamic_slice_sizes={2,2}"""
    assert evaluate(two, B).tolist() == [[7, 8], [10, 11]]


def test_the_old_form_has_one_vector_of_starts() -> None:
    text = """b = f32[4,3] parameter(0)
    s = s32[2] constant({2, 1})
    ROOT r = f32[2,2] dynamic-slice(b, s), dynamic_slice_sizes={2,2}"""
    assert evaluate(text, B).tolist() == [[7, 8], [10, 11]]


def test_the_pages_updates() -> None:
    one = """a = f32[5] parameter(0)
    u = f32[2] constant({5, 6})
    s = s32[] constant(2)
    ROOT r = f32[5] dynamic-update-slice(a, u, s)"""
    assert evaluate(one, A).tolist() == [0, 1, 5, 6, 4]
    two = """b = f32[4,3] parameter(0)
    u = f32[3,2] constant({{12, 13}, {14, 15}, {16, 17}})
    s = s32[] constant(1)
    ROOT r = f32[4,3] dynamic-update-slice(b, u, s, s)"""
    assert evaluate(two, B).tolist() == [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]]
    assert B[1, 1] == 4  # the operand itself is as it was


def slice_at(dtype: str, start: np.generic, size: int = 10, length: int = 3) -> list[float]:
    text = f"""a = s32[{size}] iota(), iota_dimension=0
    s = {dtype}[] parameter(0)
    ROOT r = s32[{length}] dynamic-slice(a, s), dynamic_slice_sizes={{{length}}}"""
    return evaluate(text, start).tolist()


@pytest.mark.parametrize(
    ("dtype", "start", "first"),
    [
        ("s32", np.int32(-1), 0),
        ("s32", np.int32(7), 7),
        ("s32", np.int32(8), 7),
        ("s64", np.int64(-(2**63)), 0),
        ("s64", np.int64(2**63 - 1), 7),
        ("u64", np.uint64(2**64 - 1), 7),
        ("u32", np.uint32(2**32 - 1), 7),
        ("s8", np.int8(-128), 0),
        ("u4", np.array(15, ml_dtypes.uint4), 7),
        ("s4", np.array(-8, ml_dtypes.int4), 0),
    ],
)
def test_starts_are_clamped_whatever_their_type(dtype: str, start: np.generic, first: int) -> None:
    assert slice_at(dtype, start) == [first, first + 1, first + 2]


def test_narrow_unsigned_starts_do_not_wrap() -> None:
    assert slice_at("u8", np.uint8(200), size=300) == [200, 201, 202]
    assert slice_at("u8", np.uint8(255), size=300, length=45) == list(range(255, 300))


def test_nested_slices_clamp_separately() -> None:
    text = """a = f32[10] iota(), iota_dimension=0
    nine = s32[] constant(9)
    zero = s32[] constant(0)
    b = f32[4] dynamic-slice(a, nine), dynamic_slice_sizes={4}
    ROOT c = f32[1] dynamic-slice(b, zero), dynamic_slice_sizes={1}"""
    assert evaluate(text).tolist() == [6]


def test_an_update_of_a_shifted_self_reads_the_old_values() -> None:
    text = """a = f32[5] parameter(0)
    one = s32[] constant(1)
    head = f32[4] slice(a), slice={[0:4]}
    ROOT r = f32[5] dynamic-update-slice(a, head, one)"""
    assert evaluate(text, A).tolist() == [0, 0, 1, 2, 3]


def test_scalars_and_nothing() -> None:
    assert evaluate("a = f32[] constant(3)\nROOT r = f32[] dynamic-slice(a), dynamic_slice_sizes={}") == 3
    text = """a = f32[5] parameter(0)
    s = s32[] constant(9)
    u = f32[0] constant({})
    e = f32[0] dynamic-slice(a, s), dynamic_slice_sizes={0}
    w = f32[5] dynamic-update-slice(a, u, s)
    ROOT r = (f32[0], f32[5]) tuple(e, w)"""
    empty, whole = evaluate(text, A)
    assert empty.shape == (0,)
    assert whole.tolist() == A.tolist()


def test_a_whole_slice_of_a_dynamic_dimension_is_dynamic() -> None:
    text = """a = f32[<=4,3] parameter(0)
    z = s32[] constant(0)
    ROOT r = dynamic-slice(a, z, z), dynamic_slice_sizes={4,2}"""
    assert parse(text).entry.root.shape.to_string(layout=False) == "f32[<=4,2]"


P = """a = f32[4,3] parameter(0)
u = f32[2,2] parameter(1)
i = s32[] parameter(2)
j = s64[] parameter(3)
f = f32[] parameter(4)
v = s32[3] parameter(5)
t = (f32[4,3]) tuple(a)
"""
SLICE = "r = f32[2,2] dynamic-slice(a, i, i), dynamic_slice_sizes={2,2}"
UPDATE = "r = f32[4,3] dynamic-update-slice(a, u, i, i)"


@pytest.mark.parametrize(
    ("rule", "text", "old", "new"),
    [
        ("operand-array", SLICE, "(a,", "(t,"),
        ("operand-array", SLICE, "i, i", "i, t"),
        ("start-indices-integer", SLICE, "i, i", "f, f"),
        ("start-indices-same-type", SLICE, "i, i", "i, j"),
        ("start-indices-count", SLICE, "i, i", "i"),
        ("start-indices-count", SLICE, "i, i", "v"),
        ("start-indices-scalar", SLICE, "i, i", "i, v"),
        ("sizes-count", SLICE, "{2,2}", "{2}"),
        ("sizes-range", SLICE, "{2,2}", "{2,4}"),
        ("sizes-range", SLICE, "{2,2}", "{2,-1}"),
        ("operand-array", UPDATE, "(a,", "(t,"),
        ("start-indices-integer", UPDATE, "i, i", "f, f"),
        ("start-indices-same-type", UPDATE, "i, i", "i, j"),
        ("start-indices-count", UPDATE, "i, i", "i, i, i"),
        ("start-indices-scalar", UPDATE, "i, i", "v, i"),
        ("update-rank", UPDATE, "u,", "f,"),
        ("update-size", UPDATE, "(a, u,", "(u, a,"),
        (
            "same-element-type",
            UPDATE.replace("u,", "w,"),
            "r =",
            "w = s32[2,2] iota(), iota_dimension=0\nr =",
        ),
    ],
)
def test_refused(rule: str, text: str, old: str, new: str) -> None:
    opcode = "dynamic-update-slice" if "update" in text else "dynamic-slice"
    assert old in text
    assert refused(P + text.replace(old, new)).rule == f"{opcode}.{rule}"
