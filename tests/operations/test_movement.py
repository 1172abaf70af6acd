"""Elements in other places: broadcast, reshape, transpose, reverse, slice, pad, concatenate."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from hloom.errors import EvaluationError
from tests import agreement
from tests.evaluation import evaluate, parse, refused

V = np.array(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ],
    np.float32,
)
A = np.arange(5, dtype=np.float32)
B = np.arange(12, dtype=np.float32).reshape(4, 3)


def apply(operation: str, *arguments: object) -> np.ndarray:
    """Evaluate one operation on arguments, which its text calls a, b, c."""
    lines = []
    for number, (name, argument) in enumerate(zip("abc", arguments, strict=False)):
        array = np.asarray(argument)
        lines.append(f"{name} = {_type(array)}[{','.join(map(str, array.shape))}] parameter({number})")
    return evaluate("\n".join([*lines, f"ROOT r = {operation}"]), *map(np.asarray, arguments))


def _type(array: np.ndarray) -> str:
    names = {"float32": "f32", "int32": "s32", "int4": "s4", "bool": "pred", "bfloat16": "bf16"}
    return names[array.dtype.name]


# Broadcast.


def test_the_pages_broadcast_of_a_scalar() -> None:
    agreement.equal(apply("f32[2,3] broadcast(a), dimensions={}", np.float32(2)), np.full((2, 3), 2))


def test_broadcast_puts_dimensions_where_it_is_told() -> None:
    result = apply("f32[4,2,3] broadcast(a), dimensions={0,2}", B)
    assert all((result[:, i, :] == B).all() for i in range(2))


def test_broadcast_may_permute() -> None:
    result = apply("f32[3,2,4] broadcast(a), dimensions={2,0}", B)
    assert all((result[:, i, :] == B.T).all() for i in range(2))


def test_an_empty_broadcast() -> None:
    assert apply("f32[0,3] broadcast(a), dimensions={1}", A[:3]).shape == (0, 3)


# Reshape: the pages Collapse and Reshape.


@pytest.mark.parametrize("sizes", [(24,), (4, 6), (8, 3), (2, 6, 2), (24, 1, 1)])
def test_in_order_collapse(sizes: tuple[int, ...]) -> None:
    result = apply(f"f32[{','.join(map(str, sizes))}] reshape(a)", V)
    assert result.shape == sizes
    assert result.reshape(-1)[:8].tolist() == [10, 11, 12, 15, 16, 17, 20, 21]


def test_out_of_order_collapse() -> None:
    text = "v = f32[4,2,3] parameter(0)\nt = f32[2,3,4] transpose(v), dimensions={1,2,0}\nROOT r = "
    v021_24 = evaluate(text + "f32[24] reshape(t)", V)
    assert v021_24.tolist() == [
        10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47,
    ]  # fmt: skip
    v021_83 = evaluate(text + "f32[8,3] reshape(t)", V)
    assert v021_83.tolist() == [
        [10, 20, 30], [40, 11, 21], [31, 41, 12], [22, 32, 42],
        [15, 25, 35], [45, 16, 26], [36, 46, 17], [27, 37, 47],
    ]  # fmt: skip
    v021_262 = evaluate(text + "f32[2,6,2] reshape(t)", V)
    assert v021_262.tolist() == [
        [[10, 20], [30, 40], [11, 21], [31, 41], [12, 22], [32, 42]],
        [[15, 25], [35, 45], [16, 26], [36, 46], [17, 27], [37, 47]],
    ]


def test_reshape_between_a_scalar_and_one_element() -> None:
    assert apply("f32[] reshape(a)", np.full((1, 1), 5, np.float32)) == 5
    assert apply("f32[1,1] reshape(a)", np.float32(5)).tolist() == [[5]]


def test_reshape_of_nothing() -> None:
    assert apply("f32[0,7] reshape(a)", np.zeros((3, 0), np.float32)).shape == (0, 7)


@pytest.mark.parametrize(
    ("operand", "actual", "result", "sizes"),
    [
        ("f32[<=4,2]", (3, 2), "f32[<=8]", (6,)),
        ("f32[<=8]", (6,), "f32[<=4,2]", (3, 2)),
        ("f32[<=3,<=4,2]", (2, 3, 2), "f32[<=3,1,<=8]", (2, 1, 6)),
        ("f32[<=3,<=4]", (2, 0), "f32[<=3,<=4,1]", (2, 0, 1)),
        ("f32[<=3,4]", (0, 4), "f32[<=12]", (0,)),
    ],
)
def test_dynamic_sizes_follow_from_the_operand(
    operand: str, actual: tuple[int, ...], result: str, sizes: tuple[int, ...]
) -> None:
    values = np.arange(math.prod(actual), dtype=np.float32).reshape(actual)
    found = evaluate(f"a = {operand} parameter(0)\nROOT r = {result} reshape(a)", values)
    assert found.shape == sizes
    assert found.reshape(-1).tolist() == values.reshape(-1).tolist()


def test_an_inferred_dimension_takes_what_the_others_leave() -> None:
    text = "a = f32[<=12] parameter(0)\nROOT r = f32[<=3,<=4] reshape(a), inferred_dimension=1"
    assert evaluate(text, np.zeros(9, np.float32)).shape == (3, 3)
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, np.zeros(10, np.float32))
    assert caught.value.rule == "reshape.actual-size"


def test_dynamic_sizes_that_nothing_tells() -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate("a = f32[<=12] parameter(0)\nROOT r = f32[<=3,<=4] reshape(a)", np.zeros(9, np.float32))
    assert caught.value.rule == "reshape.dynamic-sizes"


DYNAMIC_RESHAPE = """a = f32[12] parameter(0)
m = s32[] parameter(1)
n = s32[] parameter(2)
p = f32[<=12] set-dimension-size(a, m), dimensions={0}
ROOT r = f32[3,<=4] dynamic-reshape(p, m, n)"""


def test_dynamic_reshape_takes_its_sizes_from_scalars() -> None:
    text = DYNAMIC_RESHAPE.replace("(p, m, n)", "(p, three, n)").replace(
        "p = ", "three = s32[] constant(3)\np = "
    )
    result = evaluate(text, np.arange(12, dtype=np.float32), np.int32(6), np.int32(2))
    assert result.tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, np.arange(12, dtype=np.float32), np.int32(6), np.int32(3))
    assert caught.value.rule == "dynamic-reshape.actual-size"


def test_dynamic_reshape_holds_sizes_to_their_bounds() -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(DYNAMIC_RESHAPE, np.arange(12, dtype=np.float32), np.int32(5), np.int32(1))
    assert caught.value.rule == "dynamic-reshape.size-bound"


# Transpose and reverse.


def test_transpose_permutes() -> None:
    result = apply("f32[3,4,2] transpose(a), dimensions={2,0,1}", V)
    agreement.equal(result, V.transpose(2, 0, 1))
    assert result.shape == tuple(V.shape[d] for d in (2, 0, 1))


def test_transpose_of_a_scalar() -> None:
    assert apply("f32[] transpose(a), dimensions={}", np.float32(3)) == 3


def test_reverse_maps_i_to_n_minus_1_minus_i() -> None:
    agreement.equal(apply("f32[4,3] reverse(a), dimensions={0,1}", B), B[::-1, ::-1])
    agreement.equal(apply("f32[4,3] reverse(a), dimensions={1}", B), B[:, ::-1])
    agreement.equal(apply("f32[4,3] reverse(a), dimensions={}", B), B)


# Slice.


def test_the_pages_slices() -> None:
    assert apply("f32[2] slice(a), slice={[2:4]}", A).tolist() == [2, 3]
    assert apply("f32[2,2] slice(a), slice={[2:4], [1:3]}", B).tolist() == [[7, 8], [10, 11]]


def test_strides_round_up() -> None:
    assert apply("f32[3] slice(a), slice={[0:5:2]}", A).tolist() == [0, 2, 4]
    assert apply("f32[2] slice(a), slice={[1:5:3]}", A).tolist() == [1, 4]
    assert apply("f32[0] slice(a), slice={[5:5:1]}", A).tolist() == []
    assert apply("f32[1] slice(a), slice={[4:5:1000000]}", A).tolist() == [4]


# Pad.


def pad_one_by_one(array: np.ndarray, value: float, config: list[tuple[int, int, int]]) -> np.ndarray:
    """Every element at low + i * (interior + 1), if it is still there."""
    sizes = [d + max(d - 1, 0) * n + lo + hi for d, (lo, hi, n) in zip(array.shape, config, strict=True)]
    result = np.full(sizes, value, array.dtype)
    for index in np.ndindex(*array.shape):
        place = [lo + i * (n + 1) for i, (lo, _, n) in zip(index, config, strict=True)]
        if all(0 <= p < size for p, size in zip(place, sizes, strict=True)):
            result[tuple(place)] = array[index]
    return result


@pytest.mark.parametrize(
    "config",
    [
        [(0, 0, 0), (0, 0, 0)],
        [(1, 2, 0), (0, 3, 1)],
        [(-1, 0, 2), (-2, -1, 1)],
        [(-2, 5, 1), (3, -3, 0)],
        [(-10, 12, 1), (0, 0, 3)],
        [(7, -10, 1), (-3, 3, 0)],
        [(-4, 0, 0), (1, 1, 0)],
    ],
)
def test_interior_first_then_the_edges(config: list[tuple[int, int, int]]) -> None:
    expected = pad_one_by_one(B, 9, config)
    sizes = ",".join(map(str, expected.shape))
    padding = "x".join("_".join(map(str, d)) for d in config)
    agreement.equal(apply(f"f32[{sizes}] pad(a, b), padding={padding}", B, np.float32(9)), expected)


def test_padding_nothing_and_scalars() -> None:
    assert apply("f32[3] pad(a, b), padding=1_2_5", A[:0], np.float32(9)).tolist() == [9, 9, 9]
    assert apply("f32[] pad(a, b), padding=", np.float32(1), np.float32(9)) == 1


# Concatenate.


def test_the_pages_concatenations() -> None:
    one = [np.array(pair, np.int32) for pair in ([2, 3], [4, 5], [6, 7])]
    assert apply("s32[6] concatenate(a, b, c), dimensions={0}", *one).tolist() == [2, 3, 4, 5, 6, 7]
    two = [np.array(rows, np.int32) for rows in ([[1, 2], [3, 4], [5, 6]], [[7, 8]])]
    result = apply("s32[4,2] concatenate(a, b), dimensions={0}", *two)
    assert result.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_concatenation_with_nothing_and_of_one() -> None:
    assert apply("f32[5] concatenate(a, b), dimensions={0}", A, A[:0]).tolist() == A.tolist()
    assert apply("f32[5] concatenate(a), dimensions={0}", A).tolist() == A.tolist()


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, np.bool_, ml_dtypes.bfloat16])
def test_movement_keeps_every_type(dtype: type) -> None:
    values = np.array([0, 1, 1, 0], dtype)
    name = _type(values)
    result = apply(f"{name}[8] concatenate(a, b), dimensions={{0}}", values, values[::-1].copy())
    assert result.dtype == values.dtype
    padded = apply(f"{name}[6] pad(a, b), padding=1_1", values, values[1])
    assert padded.astype(float).tolist() == [1, 0, 1, 1, 0, 1]


# What is refused.

P = """a = f32[4,3] parameter(0)
s = f32[] parameter(1)
t = (f32[4,3]) tuple(a)
narrow = f32[4,1] slice(a), slice={[0:4], [0:1]}
whole = s32[4,3] iota(), iota_dimension=0
"""


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("broadcast.operand-array", "b = f32[2] broadcast(t), dimensions={}"),
        ("broadcast.element-type", "b = s32[4,3] broadcast(a), dimensions={0,1}"),
        ("broadcast.dimensions-rank", "b = f32[4,3] broadcast(a), dimensions={0}"),
        ("broadcast.dimension-range", "b = f32[4,3] broadcast(a), dimensions={0,2}"),
        ("broadcast.dimensions-unique", "b = f32[4,3] broadcast(a), dimensions={0,0}"),
        ("broadcast.dimension-size", "b = f32[4,4] broadcast(a), dimensions={0,1}"),
        ("reshape.operand-array", "b = f32[12] reshape(t)"),
        ("reshape.element-type", "b = s32[12] reshape(a)"),
        ("reshape.element-count", "b = f32[13] reshape(a)"),
        ("reshape.inferred-dimension", "b = f32[12] reshape(a), inferred_dimension=1"),
        ("dynamic-reshape.element-type", "n = s32[] constant(1)\nb = s32[<=12] dynamic-reshape(a, n)"),
        ("dynamic-reshape.element-count", "n = s32[] constant(1)\nb = f32[<=13] dynamic-reshape(a, n)"),
        ("dynamic-reshape.size-count", "n = s32[] constant(1)\nb = f32[<=12] dynamic-reshape(a, n, n)"),
        ("dynamic-reshape.size-scalar", "b = f32[<=12] dynamic-reshape(a, s)"),
        ("transpose.operand-array", "b = f32[3,4] transpose(t), dimensions={1,0}"),
        ("transpose.permutation", "b = f32[3,4] transpose(a), dimensions={1,1}"),
        ("transpose.permutation", "b = f32[3,4] transpose(a), dimensions={1}"),
        ("instruction.shape-matches", "b = f32[4,3] transpose(a), dimensions={1,0}"),
        ("reverse.operand-array", "b = f32[4,3] reverse(t), dimensions={0}"),
        ("reverse.dimension-range", "b = f32[4,3] reverse(a), dimensions={2}"),
        ("reverse.dimensions-unique", "b = f32[4,3] reverse(a), dimensions={1,1}"),
        ("slice.operand-array", "b = f32[4,3] slice(t), slice={[0:4], [0:3]}"),
        ("slice.rank", "b = f32[4,3] slice(a), slice={[0:4]}"),
        ("slice.start", "b = f32[4,3] slice(a), slice={[-1:4], [0:3]}"),
        ("slice.limit-after-start", "b = f32[4,3] slice(a), slice={[3:2], [0:3]}"),
        ("slice.limit", "b = f32[4,3] slice(a), slice={[0:5], [0:3]}"),
        ("slice.stride", "b = f32[4,3] slice(a), slice={[0:4:0], [0:3]}"),
        ("pad.operand-array", "b = f32[4,3] pad(t, s), padding=0_0x0_0"),
        ("pad.value-scalar", "b = f32[4,3] pad(a, a), padding=0_0x0_0"),
        ("pad.rank", "b = f32[4,3] pad(a, s), padding=0_0"),
        ("pad.interior", "b = f32[1,3] pad(a, s), padding=0_0_-1x0_0_0"),
        ("pad.result-size", "b = f32[1,3] pad(a, s), padding=-3_-2x0_0"),
        ("concatenate.operands", "b = f32[4,3] concatenate(), dimensions={0}"),
        ("concatenate.operand-array", "b = f32[4,3] concatenate(t), dimensions={0}"),
        ("concatenate.one-dimension", "b = f32[4,3] concatenate(a), dimensions={0,1}"),
        ("concatenate.dimension-range", "b = f32[4,3] concatenate(a), dimensions={2}"),
        ("concatenate.dimension-range", "b = f32[2] concatenate(s, s), dimensions={0}"),
        ("concatenate.same-rank", "c = f32[4] constant({1,2,3,4})\nb = concatenate(a, c), dimensions={0}"),
        ("concatenate.same-dimensions", "b = concatenate(a, narrow), dimensions={0}"),
        ("concatenate.same-element-type", "b = concatenate(a, whole), dimensions={0}"),
        ("pad.same-element-type", "c = s32[] constant(1)\nb = f32[4,3] pad(a, c), padding=0_0x0_0"),
    ],
)  # fmt: skip
def test_refused(rule: str, text: str) -> None:
    assert refused(P + text).rule == rule


# Dynamic dimensions in shapes.


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        ("transpose(a), dimensions={1,0}", "f32[3,<=4]"),
        ("reverse(a), dimensions={0}", "f32[<=4,3]"),
        ("slice(a), slice={[0:4], [0:2]}", "f32[<=4,2]"),
        ("slice(a), slice={[0:3], [0:3]}", "f32[3,3]"),
        ("concatenate(a, a), dimensions={0}", "f32[<=8,3]"),
        ("concatenate(a, a), dimensions={1}", "f32[<=4,6]"),
        ("pad(a, s), padding=1_0x0_0", "f32[<=5,3]"),
    ],
)
def test_dynamic_dimensions_propagate(operation: str, shape: str) -> None:
    text = f"a = f32[<=4,3] parameter(0)\ns = f32[] parameter(1)\nROOT r = {operation}"
    assert parse(text).entry.root.shape.to_string(layout=False) == shape


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        ("4", "4", "4"), ("<=4", "4", "<=4"), ("<=4", "<=4", "<=4"), ("?", "4", "4"), ("?", "<=4", "<=4"),
        ("?", "?", "?"),
    ],
)  # fmt: skip
def test_concatenated_arrays_join_what_is_known_of_other_dimensions(
    one: str, other: str, joined: str
) -> None:
    for a, b in ((one, other), (other, one)):
        parameters = f"a = f32[{a},3] parameter(0)\nb = f32[{b},2] parameter(1)"
        assert (
            parse(f"{parameters}\nROOT r = concatenate(a, b), dimensions={{1}}").entry.root.shape.to_string(
                layout=False
            )
            == f"f32[{joined},5]"
        )
