"""The functions of the page, called with the page's arguments and evaluated on the page's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import HloError
from hloom.shape.element_type import BF16, F32, S8, S32
from hloom.shape.shape import Shape
from tests import agreement
from tests.arrays import f32, s8, s32, u64
from tests.builder.building import ADD, ADD_S32, GE, LT, MAX, MIN, built, ops, scalar, value

V = f32([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]], [[30, 31, 32], [35, 36, 37]],
       [[40, 41, 42], [45, 46, 47]]])  # fmt: skip


def rule(function, *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


# -- making and moving elements


def test_constants_and_iota() -> None:
    assert value(lambda b: ops.ConstantR0(b, 2.5)) == f32(2.5)
    assert value(lambda b: ops.ConstantR1(b, [1, 2])).tolist() == [1, 2]
    assert value(lambda b: ops.ConstantR1(b, 3, 7)).tolist() == [7, 7, 7]
    assert value(lambda b: ops.ConstantR2(b, [[1.0, 2.0]], BF16)).dtype == BF16.dtype
    assert value(lambda b: ops.ConstantFromArray(b, s8([[1]]))).dtype == np.int8
    assert value(lambda b: ops.Iota(b, "s32[2,3]", 1)).tolist() == [[0, 1, 2]] * 2
    assert value(lambda b: ops.Iota(b, F32, 3)).tolist() == [0, 1, 2]
    assert value(lambda b: ops.EmptyTuple(b)) == ()


def test_broadcast_puts_new_dimensions_in_front() -> None:
    assert value(lambda x: ops.Broadcast(x, [2, 3]), f32(2)).tolist() == [[2] * 3] * 2
    assert value(lambda x: ops.BroadcastInDim(x, [2, 2], [1]), s32([1, 2])).tolist() == [[1, 2], [1, 2]]
    assert value(lambda x: ops.BroadcastInDim(x, [2, 2], [0]), s32([1, 2])).tolist() == [[1, 1], [2, 2]]
    assert value(lambda x: ops.BroadcastInDim(x, [2, 3], [0, 1]), f32([[1], [2]])).tolist() == [
        [1] * 3,
        [2] * 3,
    ]
    assert rule(lambda x: ops.BroadcastInDim(x, [2, 2], []), "f32[2]") == "broadcasting.dimensions-count"
    assert rule(lambda x: ops.BroadcastInDim(x, [2], [1]), "f32[2]") == "broadcasting.dimensions-in-range"
    assert (
        rule(lambda x: ops.BroadcastInDim(x, [2, 2], [1, 0]), "f32[2,2]")
        == "broadcasting.dimensions-increasing"
    )
    assert rule(lambda x: ops.BroadcastInDim(x, [3], [0]), "f32[2]") == "broadcasting.sizes"


@pytest.mark.parametrize(
    ("dimensions", "shape"),
    [([0, 1, 2], (24,)), ([0, 1], (8, 3)), ([1, 2], (4, 6)), ([1], (4, 2, 3)), ([], (4, 2, 3))],
)
def test_collapse(dimensions, shape) -> None:
    assert (value(lambda v: ops.Collapse(v, dimensions), V) == V.reshape(shape)).all()


def test_collapse_takes_consecutive_dimensions_in_order() -> None:
    assert rule(lambda v: ops.Collapse(v, [1, 0]), "f32[4,2,3]") == "collapse.consecutive"
    assert rule(lambda v: ops.Collapse(v, [0, 2]), "f32[4,2,3]") == "collapse.consecutive"
    assert rule(lambda v: ops.Collapse(v, [2, 3]), "f32[4,2,3]") == "collapse.dimensions-in-range"


def test_reshape_in_both_forms() -> None:
    in_order = value(lambda v: ops.Reshape(v, [0, 1, 2], [24]), V)
    assert (in_order == V.reshape(24)).all()
    assert value(lambda v: ops.Reshape(v, [1, 2, 0], [24]), V).tolist() == [
        10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47
    ]  # fmt: skip
    assert value(lambda v: ops.Reshape(v, [1, 2, 0], [2, 6, 2]), V)[0, 0].tolist() == [10, 20]
    assert (value(lambda v: ops.Reshape(v, [8, 3]), V) == V.reshape(8, 3)).all()
    assert (value(lambda v: ops.Reshape(Shape.parse("f32[8,3]"), v), V) == V.reshape(8, 3)).all()


def test_pad_slice_transpose_reverse_concatenate() -> None:
    x = f32([[1, 2], [3, 4]])
    assert value(lambda v: ops.Pad(v, 0, [(0, 1), (1, 0, 1)]), x).tolist() == [
        [0, 1, 0, 2],
        [0, 3, 0, 4],
        [0] * 4,
    ]
    assert value(lambda v: ops.PadInDim(v, 9, 1, -1, 0), x).tolist() == [[2], [4]]
    assert value(lambda v: ops.Slice(v, [2], [4]), f32([0, 1, 2, 3, 4])).tolist() == [2, 3]
    assert value(lambda v: ops.Slice(v, [0], [5], [2]), f32([0, 1, 2, 3, 4])).tolist() == [0, 2, 4]
    assert value(lambda v: ops.SliceInDim(v, 1, 2, 1, -1), x).tolist() == [[2], [4]]
    assert rule(lambda v: ops.Slice(v, [2], [4, 5]), "f32[5]") == "slice.counts"
    assert (value(lambda v: ops.Transpose(v, [1, 0]), x) == x.T).all()
    assert (value(lambda v: ops.Rev(v, [0]), x) == x[::-1]).all()
    assert (value(lambda v: ops.ConcatInDim([v, v], 0), x) == np.concatenate([x, x])).all()
    assert (value(lambda v: ops.Concatenate(v.builder, [v, v], 1), x) == np.hstack([x, x])).all()
    assert rule(lambda v: ops.ConcatInDim([], 0), "f32[5]") == "concatenate.operands"


def test_dynamic_slices() -> None:
    a = f32([0, 1, 2, 3, 4])
    assert value(lambda x, s: ops.DynamicSlice(x, [s], [2]), a, np.int32(2)).tolist() == [2, 3]
    assert value(lambda x, s: ops.DynamicSlice(x, s, [2]), a, s32([2])).tolist() == [2, 3]
    b = np.arange(12, dtype=f32).reshape(4, 3)
    assert value(lambda x: ops.DynamicSlice(x, [2, 1], [2, 2]), b).tolist() == [[7, 8], [10, 11]]
    assert value(lambda x, s: ops.DynamicSlice(x, [s, 0], [1, 1]), b, np.uint8(9)).tolist() == [[9]]
    assert value(lambda x: ops.DynamicUpdateSlice(x, f32([5, 6]), [2]), a).tolist() == [0, 1, 5, 6, 4]


def test_gather_rows_in_both_spellings() -> None:
    x, i = np.arange(12, dtype=f32).reshape(4, 3), s32([2, 0])
    numbers = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
    assert (value(lambda x, i: ops.Gather(x, i, [1], [0], [1, 3], [0], 1), x, i) == x[i]).all()
    assert (value(lambda x, i: ops.Gather(x, i, numbers, [1, 3]), x, i) == x[i]).all()
    assert (value(lambda x, i: ops.Gather(x, i, [1], [0], [1, 3], [0]), x, i) == x[i]).all()


def test_scatter_adds_rows_in_both_spellings() -> None:
    x, i, u = np.zeros((3, 2), f32), s32([2, 0, 2]), np.ones((3, 2), f32)
    numbers = {
        "update_window_dims": [1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
    }
    expected = [[1, 1], [0, 0], [2, 2]]
    assert value(lambda x, i, u: ops.Scatter(x, i, u, ADD, 1, [1], [0], [0]), x, i, u).tolist() == expected
    assert value(lambda x, i, u: ops.Scatter(x, i, u, ADD, numbers), x, i, u).tolist() == expected


def test_tuples() -> None:
    x = f32([1, 2])
    assert value(lambda v: ops.GetTupleElement(ops.Tuple([v, v + 1]), 1), x).tolist() == [2, 3]
    on, off = value(lambda v: ops.Select(False, ops.Tuple([v, v]), ops.Tuple([-v, v + 1])), x)
    assert (on.tolist(), off.tolist()) == ([-1, -2], [2, 3])
    assert rule(lambda v: ops.Select(False, ops.Tuple([v, v]), ops.Tuple([v])), "f32[2]") == "select.tuples"
    assert rule(lambda v: ops.Select(v, 1.0, 2.0), "pred[2]") == "builder.operand"


def test_dynamic_dimensions() -> None:
    def sums(v):
        return ops.Reduce(ops.SetDimensionSize(v, 3, 0), 0, ADD_S32, [0])

    assert value(sums, s32([1, 2, 3, 4, 5])) == 6
    assert value(lambda v: ops.GetDimensionSize(v, 0), s32([1, 2, 3])) == 3
    assert value(lambda v: ops.RemoveDynamicDimension(v, 0), s32([1, 2, 3])).tolist() == [1, 2, 3]

    def doubled(v):
        return ops.Reduce(ops.SetDimensionSize(v, 2, 0) + 10, 0, ADD_S32, [0])

    assert value(doubled, s32([1, 2, 3])) == 23
    reshaped = built(lambda v, n: ops.DynamicReshape(v, [n, 2], [3, 2], [True, False]), "f32[6]", "s32[]")
    assert str(reshaped.entry.root.shape) == "f32[<=3,2]{1,0}"


# -- conversion


def test_conversions() -> None:
    x = f32([1.5, -1.5])
    assert value(lambda v: ops.ConvertElementType(v, S32), x).tolist() == [1, -1]
    assert value(lambda v: ops.ConvertElementType(v, "bf16"), x).dtype == BF16.dtype
    assert value(lambda v: ops.BitcastConvertType(v, np.int32), f32([1])).tolist() == [0x3F800000]
    assert value(lambda v: ops.BitcastConvertType(v, S8), f32([1])).shape == (1, 4)
    assert value(lambda v: ops.BitcastConvertType(ops.BitcastConvertType(v, S8), F32), f32([1])).tolist() == [
        1
    ]
    assert rule(lambda v: ops.BitcastConvertType(v, F32), "s8[3]") == "bitcast-convert.last-dimension"
    assert value(lambda v: ops.ReducePrecision(v, mantissa_bits=2, exponent_bits=5), f32([1.3])).tolist() == [
        1.25
    ]
    assert (
        built(lambda v, r: ops.StochasticConvertType(v, r, BF16), "f32[2]", "u32[2]").entry.root.shape.rank
        == 1
    )


def test_real_and_complex() -> None:
    z = value(lambda x, y: ops.Conj(ops.Complex(x, y)), f32(1), f32(2))
    assert z == 1 - 2j
    assert value(lambda x: ops.Conj(x), f32(3)) == 3
    assert value(lambda x: ops.Imag(x), f32(3)) == 0
    assert value(lambda x, y: ops.Atan2(y=y, x=x), f32(1), f32(0)) == 0


def test_total_order() -> None:
    x, y = f32([-0.0, np.nan]), f32([0.0, np.nan])
    assert value(ops.Lt, x, y).tolist() == [False, False]
    assert value(ops.LtTotalOrder, x, y).tolist() == [True, False]
    assert value(ops.EqTotalOrder, x, y).tolist() == [False, True]
    assert value(lambda a, b: ops.Compare(a, b, "GE"), x, y).tolist() == [True, False]
    assert value(ops.GeTotalOrder, s32([1]), s32([1])).tolist() == [True]


# -- contraction


def test_dots() -> None:
    a, b = np.arange(6, dtype=f32).reshape(2, 3), np.arange(12, dtype=f32).reshape(3, 4)
    assert (value(ops.Dot, a, b) == a @ b).all()
    assert (value(lambda x, y: x @ y, a, b) == a @ b).all()
    assert rule(ops.Dot, "f32[]", "f32[]") == "dot.rank"
    wide = built(lambda x, y: ops.Dot(x, y, "highest", F32), "bf16[2,3]", "bf16[3]")
    assert wide.entry.root.shape.element_type is F32
    assert "operand_precision={highest,highest}" in wide.to_text()


def test_dot_general_on_the_pages_numbers() -> None:
    lhs, rhs = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    numbers = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    assert value(lambda a, b: ops.DotGeneral(a, b, numbers), lhs, rhs).tolist() == [[6, 12], [15, 30]]
    lhs, rhs = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]]] * 2)
    numbers = {
        "lhs_contracting_dims": [2],
        "rhs_contracting_dims": [1],
        "lhs_batch_dims": [0],
        "rhs_batch_dims": [0],
    }
    assert (value(lambda a, b: ops.DotGeneral(a, b, numbers), lhs, rhs) == lhs).all()


def test_ragged_dot() -> None:
    numbers = {
        "lhs_contracting_dims": [1],
        "rhs_contracting_dims": [1],
        "lhs_ragged_dims": [0],
        "rhs_group_dims": [0],
    }
    lhs, rhs = np.ones((4, 2), f32), np.stack([np.ones((2, 3), f32), np.full((2, 3), 2, f32)])
    found = value(lambda a, b: ops.RaggedDot(a, b, [1, 3], numbers), lhs, rhs)
    assert found.tolist() == [[2] * 3, [4] * 3, [4] * 3, [4] * 3]


@pytest.mark.parametrize(
    ("padding", "expected"),
    [("SAME", (1, 1, 3, 4)), ("VALID", (1, 1, 2, 2)), ([(1, 0), (-1, 2)], (1, 1, 3, 3))],
)
def test_convolution_paddings(padding, expected) -> None:
    c = built(lambda x, k: ops.Conv(x, k, [2, 2], padding), "f32[1,1,6,7]", "f32[1,1,3,4]")
    assert c.entry.root.shape.dimensions == expected


def test_convolution_against_nested_loops() -> None:
    rng = np.random.default_rng(0)
    x, k = rng.integers(0, 5, (2, 3, 5, 6)).astype(f32), rng.integers(0, 5, (4, 3, 2, 3)).astype(f32)
    stride, low = (2, 1), (1, 2)
    found = value(lambda a, b: ops.ConvWithGeneralPadding(a, b, stride, [(1, 0), (2, 1)]), x, k)
    expected = np.zeros_like(found)
    for b, oz, oy, ox in np.ndindex(expected.shape):
        for iz, ky, kx in np.ndindex(k.shape[1:]):
            iy, ix = oy * stride[0] + ky - low[0], ox * stride[1] + kx - low[1]
            if 0 <= iy < 5 and 0 <= ix < 6:
                expected[b, oz, oy, ox] += x[b, iz, iy, ix] * k[oz, iz, ky, kx]
    assert (found == expected).all()


def test_convolution_in_another_dimension_order_and_dilated() -> None:
    c = built(
        lambda x, k: ops.ConvGeneralDilated(x, k, [1], [(0, 0)], [2], [3], "0bf_0io->0bf", 2, 1),
        "f32[5,1,4]", "f32[2,2,6]",
    )  # fmt: skip
    assert c.entry.root.shape.dimensions == (6, 1, 6)
    same = built(lambda x, k: ops.ConvGeneral(x, k, [1], "SAME", "0bf_0io->0bf"), "f32[5,1,4]", "f32[2,4,6]")
    assert same.entry.root.shape.dimensions == (5, 1, 6)


def test_what_no_window_is() -> None:
    assert rule(lambda x, k: ops.Conv(x, k, [1], "WIDE"), "f32[1,1,5]", "f32[1,1,2]") == "window.padding-kind"
    assert rule(lambda x, k: ops.Conv(x, k, [1], "VALID"), "f32[1,5]", "f32[1,1,2]") == "convolution.ranks"
    assert rule(lambda x, k: ops.Conv(x, k, [1], [(0, 0)] * 2), "f32[1,1,5]", "f32[1,1,2]") == "window.rank"


def test_linear_algebra_and_fourier() -> None:
    m = f32([[4, 2], [2, 5]])
    agreement.equal(value(lambda a: ops.Cholesky(a, True), m), [[2, 0], [1, 2]])
    lower = np.tril(m)
    solved = value(lambda a, b: ops.TriangularSolve(a, b, True, True, False, "NO_TRANSPOSE"), lower, m)
    agreement.equal(lower @ solved, m)
    agreement.equal(value(lambda x: ops.Fft(x, "RFFT", [4]), f32([1, 2, 3, 4])), [10, -2 + 2j, -2])


def test_batch_normalization() -> None:
    x, one, zero = np.arange(6, dtype=f32).reshape(3, 2), np.ones(2, f32), np.zeros(2, f32)
    y, mean, variance = value(lambda x, s, o: ops.BatchNormTraining(x, s, o, 0.001, 1), x, one, zero)
    agreement.equal(mean, x.mean(0))
    agreement.near(variance, x.astype(np.float64).var(0))
    again = value(lambda *a: ops.BatchNormInference(*a, 0.001, 1), x, one, zero, mean, variance)
    agreement.near(again, (x - mean) / np.sqrt(np.float64(variance) + 0.001))
    agreement.equal(again, y)
    gradient, _, offset = value(
        lambda x, s, m, v, g: ops.BatchNormGrad(x, s, batch_mean=m, batch_var=v, grad_output=g, epsilon=0.001,
                                                feature_index=1),
        x, one, mean, variance, f32([[1, 2], [2, 2], [6, 2]]),
    )  # fmt: skip
    deviation = np.sqrt(np.float64(variance[0]) + 0.001)
    # grad - mean - (x - mean) / v * mean of (x - mean) grad, whose terms are at most 6
    inner = np.array([-2, -1, 3]) - np.array([-2, 0, 2]) / deviation**2 * (10 / 3)
    agreement.within(gradient[:, 0], inner / deviation, 32 * np.finfo(f32).eps * 6)
    assert offset.tolist() == [9, 6]


# -- reductions, windows, sorting


def test_reductions_of_the_page() -> None:
    v = f32([[1, 2, 3], [4, 5, 6]])
    assert value(lambda x: ops.Reduce(x, 0, ADD, [0]), v).tolist() == [5, 7, 9]
    assert value(lambda x: ops.Reduce(x.builder, [x], [0.0], ADD, [1]), v).tolist() == [6, 15]
    assert value(lambda x: ops.ReduceAll(x, 0.0, ADD), v) == 21
    assert rule(lambda x: ops.Reduce([x, x], [0.0], ADD, [0]), "f32[2]") == "reduce.initial-values"


def test_a_variadic_reduction_finds_the_place_of_the_largest() -> None:
    def larger(value_1, index_1, value_2, index_2):
        first = value_1 >= value_2
        return ops.Tuple([ops.Select(first, value_1, value_2), ops.Select(first, index_1, index_2)])

    step = scalar(larger, "f32", "s32", "f32", "s32")
    x, i = f32([3, 9, 4]), np.arange(3, dtype=np.int32)
    best, place = value(lambda x, i: ops.Reduce([x, i], [-np.inf, np.int32(0)], step, [0]), x, i)
    assert (best, place) == (9, 1)


@pytest.mark.parametrize(("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_window_minima(padding: str, expected) -> None:
    values = f32([10000, 1000, 100, 10, 1])
    found = value(lambda x: ops.ReduceWindow(x, 1e9, MIN, [3], [2], padding), values)
    assert found.tolist() == expected


def test_windows_of_the_page() -> None:
    x = np.arange(24, dtype=f32).reshape(4, 6)
    found = value(lambda v: ops.ReduceWindow(v, 0.0, ADD, [2, 3], [2, 3], "VALID"), x)
    assert (found == x.reshape(2, 2, 2, 3).sum((1, 3))).all()
    found = value(
        lambda v: ops.ReduceWindowWithGeneralPadding(v, -np.inf, MAX, [2], [1], [1], [2], [(0, 1)]), x[0]
    )
    assert found.tolist() == [2, 3, 4, 5, 4]
    assert (
        rule(lambda v: ops.ReduceWindow(v, 0, ADD, [2], [2], "VALID"), "f32[4,6]")
        == "reduce-window.window-rank"
    )
    two = rule(lambda v: ops.ReduceWindow([v, v], [0], ADD, [2], [2], "VALID"), "f32[4]")
    assert two == "reduce-window.initial-values"


def test_select_and_scatter_sums_where_windows_overlap() -> None:
    operand = f32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 7, 2]])
    source = f32([[2, 6], [3, 1]])

    def scattered(x, s):
        return ops.SelectAndScatter(x, GE, [2, 3], [2, 2], "VALID", s, 0, ADD)

    expected = np.zeros_like(operand)
    expected[1, 2], expected[2, 2] = 2 + 6, 3 + 1
    assert value(scattered, operand, source).tolist() == expected.tolist()
    assert (
        rule(lambda x: ops.SelectAndScatter(x, GE, [2], [2], "VALID", x, 0, ADD), "f32[2,2]")
        == "select-and-scatter.window-rank"
    )


def test_map_and_scan() -> None:
    x = f32([1, 2, 3])
    assert value(lambda v: ops.Map([v, v], ADD), x).tolist() == [2, 4, 6]
    assert value(lambda v: ops.Map(v.builder, [v, v], ADD, [0]), x).tolist() == [2, 4, 6]
    assert rule(lambda v: ops.Map([v], ADD, [0], [v]), "f32[2]") == "map.static-operands"
    step = scalar(lambda x, c: ops.Tuple([x + c, x + c]), "f32", "f32")
    sums, last = value(lambda v: ops.Scan([v], [0.0], step, 0), x)
    assert (sums.tolist(), last) == ([1, 3, 6], 6)


def test_sort_and_top_k() -> None:
    x, y = f32([3, 1, 2]), s32([30, 10, 20])
    assert value(lambda v: ops.Sort([v], LT), x).tolist() == [1, 2, 3]
    by_first = scalar(lambda a, b, c, d: a < b, "f32", "f32", "s32", "s32")
    keys, values = value(lambda a, b: ops.Sort([a, b], by_first, 0, True), x, y)
    assert (keys.tolist(), values.tolist()) == ([1, 2, 3], [10, 20, 30])
    largest, places = value(lambda v: ops.TopK(v, 2), x)
    assert (largest.tolist(), places.tolist()) == ([3, 2], [0, 2])


# -- control flow


def test_call_in_every_spelling() -> None:
    x = f32([1, 2])
    add = built(lambda a, b: a + b, "f32[2]", "f32[2]")
    for call in (
        lambda v: ops.Call(add, v, v),
        lambda v: ops.Call(add, [v, v]),
        lambda v: ops.Call(v.builder, add, [v, v]),
        lambda v: ops.Call(add, v, np.array([1, 2])),
    ):
        assert value(call, x).tolist() == [2, 4]
    c = built(lambda v: ops.CompositeCall(add, v, v, name="foo.bar", version=1), "f32[2]")
    assert 'composite.name="foo.bar"' in c.to_text()
    assert 'composite.version="1"' in c.to_text()


def test_conditional_in_both_forms() -> None:
    plus, minus = built(lambda x: x + 1, "f32[]"), built(lambda x: x - 1, "f32[]")
    for pred, expected in ((True, 11), (False, 19)):
        found = value(lambda p, a, b: ops.Conditional(p, a, plus, b, minus), np.bool_(pred), f32(10), f32(20))
        assert found == expected
    for index, expected in ((0, 11), (1, 19), (7, 19), (-1, 19)):
        found = value(
            lambda i, a, b: ops.Conditional(
                branch_index=i, branch_computations=[plus, minus], branch_operands=[a, b]
            ),
            np.int32(index), f32(10), f32(20),
        )  # fmt: skip
        assert found == expected
    assert rule(lambda x: ops.Conditional(x, x), "pred[]") == "conditional.arguments"
    pair = (ops.Conditional, [1.0, plus, 2.0, minus], [[plus, minus], [1.0, 2.0]])
    for form, wrong in zip(pair[1:], ("s32[]", "pred[]"), strict=True):
        assert rule(lambda x, form=form: ops.Conditional(x, *form), wrong) == "conditional.branch-index"


def test_while_of_the_page() -> None:
    state = "(s32[], f32[10])"
    condition = built(lambda s: s[0] < 1000, state)
    body = built(lambda s: ops.Tuple([s[0] + 1, s[1] + 1]), state)

    def loop(b):
        return ops.While(condition, body, ops.Tuple([ops.Constant(b, 0), ops.Constant(b, [0.0] * 10)]))

    count, vector = value(loop)
    assert count == 1000
    assert vector.tolist() == [1000] * 10


def test_fusion_barrier_and_order() -> None:
    x = f32([1, 2])
    negate = built(lambda v: -v, "f32[2]")
    assert value(lambda v: ops.Fusion([v], negate, "kLoop"), x).tolist() == [-1, -2]
    assert value(lambda v: ops.OptimizationBarrier(v), x).tolist() == [1, 2]
    assert value(lambda v: ops.AddDependency(v, ops.CreateToken(v.builder)), x).tolist() == [1, 2]
    assert value(lambda b: ops.AfterAll(b, [ops.CreateToken(b), ops.CreateToken(b)])) is None
    assert value(lambda v: ops.CopyDone(ops.CopyStart(v)), x).tolist() == [1, 2]
    assert value(lambda v: ops.AsyncDone(ops.AsyncUpdate(ops.AsyncStart(v, negate))), x).tolist() == [-1, -2]
    assert value(lambda v: ops.Bitcast(v, "f32[2,1]"), x).tolist() == [[1], [2]]


def test_custom_calls() -> None:
    c = built(
        lambda v: ops.CustomCall("target", [v, v], "f32[3]", opaque="text", has_side_effect=True), "f32[2]"
    )
    text = c.to_text()
    assert 'custom_call_target="target"' in text
    assert "custom_call_has_side_effect=true" in text
    assert 'backend_config="text"' in text
    laid_out = built(
        lambda v: ops.CustomCallWithLayout(
            "t", [v], "f32[2,2]{0,1}", operand_shapes_with_layout=[Shape.parse("f32[2,2]{0,1}")]
        ),
        "f32[2,2]",
    )
    assert "operand_layout_constraints={f32[2,2]{0,1}}" in laid_out.to_text()
    assert built(lambda b: ops.CustomCall(b, "t", shape="f32[]")).entry.root.opcode == "custom-call"
    assert rule(lambda v: ops.CustomCall("t", [v]), "f32[2]") == "custom-call.shape-stated"


# -- devices and host


def test_collectives_have_the_shapes_of_the_page() -> None:
    def shape_of(function, *shapes: str) -> str:
        return built(function, *shapes).entry.root.shape.to_string(layout=False)

    groups = [[0, 1], [2, 3]]
    assert shape_of(lambda x: ops.AllGather(x, 0, 2, groups, channel_id=1), "f32[2,3]") == "f32[4,3]"
    assert shape_of(lambda x: ops.AllGather([x, x], 0, 2), "f32[2]") == "(f32[4], f32[4])"
    assert shape_of(lambda x: ops.AllReduce(x, ADD, replica_group_ids=groups), "f32[2]") == "f32[2]"
    assert shape_of(lambda x: ops.AllReduce(ops.Tuple([x, x]), ADD), "f32[2]") == "(f32[2], f32[2])"
    assert shape_of(lambda x: ops.AllReduce(ops.Tuple([x]), ADD), "f32[2]") == "(f32[2])"
    assert shape_of(lambda x: ops.CrossReplicaSum(x), "pred[2]") == "pred[2]"
    assert shape_of(lambda x: ops.ReduceScatter(x, ADD, 0, 2, groups), "f32[4]") == "f32[2]"
    assert shape_of(lambda x: ops.AllToAll(x, 1, 0, 4), "f32[4,16]") == "f32[16,4]"
    assert shape_of(lambda x: ops.AllToAll(x, 0, 0, 4), "f32[4,16]") == "f32[4,16]"
    assert shape_of(lambda x: ops.AllToAllTuple([x, x], [[0, 1]]), "f32[4]") == "(f32[4], f32[4])"
    assert shape_of(lambda x: ops.CollectiveBroadcast(x, groups), "f32[4]") == "f32[4]"
    assert shape_of(lambda x: ops.CollectivePermute(x, [(0, 1), (1, 0)]), "f32[4]") == "f32[4]"
    assert shape_of(lambda x: ops.AllGatherDone(ops.AllGatherStart(x, 0, 2)), "f32[2]") == "f32[4]"
    assert shape_of(lambda x: ops.AllReduceDone(ops.AllReduceStart(x, ADD)), "f32[2]") == "f32[2]"
    permuted = shape_of(
        lambda x: ops.CollectivePermuteDone(ops.CollectivePermuteStart(x, [(0, 1)])), "f32[2]"
    )
    assert permuted == "f32[2]"
    ragged = ["f32[8]", "s64[2]", "s64[2]", "f32[8]", "s64[2]", "s64[2]"]
    assert shape_of(lambda *a: ops.RaggedAllToAll(*a, [[0, 1]]), *ragged) == "f32[8]"
    assert shape_of(ops.ReplicaId) == "u32[]"
    assert shape_of(ops.PartitionId) == "u32[]"
    assert rule(lambda x: ops.AllToAll(x, 1, 0, 3), "f32[4,16]") == "collective.shards-divide"
    assert rule(lambda x: ops.ReduceScatter(x, ADD, 0, 3), "f32[4]") == "collective.shards-divide"


def test_host_exchange() -> None:
    c = built(lambda b: ops.Infeed(b, "f32[2]", "config"))
    assert str(c.entry.root.shape) == "f32[2]{0}"
    assert built(lambda x: ops.Outfeed(x, "f32[2]", "config"), "f32[2]").entry.root.shape.is_token
    assert rule(lambda x: ops.Outfeed(x, "f32[3]"), "f32[2]") == "outfeed.shape-matches"
    sent = built(lambda x: ops.SendDone(ops.Send(x, 3)), "f32[2]")
    assert sent.to_text().count("channel_id=3") == 2
    received = built(lambda b: ops.RecvDone(ops.Recv(b, "f32[2]", {"handle": 4})))
    assert received.entry.root.shape.to_string(layout=False) == "(f32[2], token[])"

    def exchange(x):
        token = ops.SendToHost(x, ops.CreateToken(x.builder), "f32[2]", 1)
        return ops.RecvFromHost(ops.SendWithToken(x, token, 2), "f32[2]", channel_handle=3)

    assert built(exchange, "f32[2]").to_text().count("is_host_transfer=true") == 4
    with_token = built(lambda b: ops.RecvWithToken(ops.CreateToken(b), "f32[2]", 1))
    assert with_token.entry.root.shape.is_tuple
    wrong = rule(lambda x: ops.SendToHost(x, ops.CreateToken(x.builder), "f32[3]", 1), "f32[2]")
    assert wrong == "send.shape-matches"


def test_random_numbers() -> None:
    assert value(lambda b: ops.RngUniform(ops.Constant(b, 0.0), 1.0, "f32[100]")).shape == (100,)
    assert value(lambda b: ops.RngNormal(ops.Constant(b, 0.0), 1.0, "f32[3]")).dtype == np.float32
    state, bits = value(lambda s: ops.RngBitGenerator("threefry", s, "u64[2,2]"), u64([1, 2]))
    assert state.tolist() == [1, 6]
    assert bits[0, 0] == 9236835810183407956
    assert built(lambda b: ops.RngGetAndUpdateState(b, 3, "u64[2]")).entry.root.shape.rank == 1
