"""Sums of products: dot, ragged-dot, scaled-dot."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests import oracle
from tests.arrays import c64, f32, f64, s8
from tests.evaluation import evaluate
from tests.one_operation import apply, array, program, refusal, same

MATRICES = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHES = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"


def dot(lhs: Any, rhs: Any, attributes: str = MATRICES, result: str = "") -> Any:
    return apply("dot", np.asarray(lhs), np.asarray(rhs), attributes=attributes, result=result)


# The page's examples.


def test_dot_of_vectors_is_a_scalar() -> None:
    vectors = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    assert dot(f32([1, 2, 3]), f32([4, 5, 6]), vectors) == 32


def test_dot_of_matrix_and_vector() -> None:
    assert dot(f32([[1, 2], [3, 4], [5, 6]]), f32([1, 10])).tolist() == [21, 43, 65]


def test_the_pages_contracting_dimensions() -> None:
    lhs, rhs = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    result = dot(lhs, rhs, "lhs_contracting_dims={1}, rhs_contracting_dims={1}")
    assert result.tolist() == [[6, 12], [15, 30]]


def test_the_pages_batch_dimensions() -> None:
    lhs = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    same(dot(lhs, f32([np.eye(2), np.eye(2)]), BATCHES), lhs)


def test_two_batch_dimensions() -> None:
    lhs = np.arange(2 * 3 * 4 * 5, dtype=f32).reshape(2, 3, 4, 5)
    rhs = np.arange(2 * 3 * 5 * 2, dtype=f32).reshape(2, 3, 5, 2)
    attributes = (
        "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}"
    )
    same(dot(lhs, rhs, attributes), lhs @ rhs)


# Dimension numbers.


def test_batch_dimensions_come_first_in_the_order_given() -> None:
    lhs, rhs = np.random.default_rng(0).integers(-9, 9, (2, 3, 4, 5)), np.ones((5, 3, 6, 2), np.int64)
    attributes = (
        "lhs_batch_dims={1,0}, lhs_contracting_dims={3}, rhs_batch_dims={1,3}, rhs_contracting_dims={0}"
    )
    same(dot(lhs, rhs, attributes), np.einsum("abmk,kbna->bamn", lhs, rhs))


def test_several_contracting_dimensions() -> None:
    lhs, rhs = np.arange(24).reshape(2, 3, 4), np.arange(24).reshape(4, 3, 2)
    result = dot(lhs, rhs, "lhs_contracting_dims={2,1}, rhs_contracting_dims={0,1}")
    same(result, np.einsum("ajk,kjb->ab", lhs, rhs))


def test_no_contracting_dimension_is_an_outer_product() -> None:
    result = dot(f32([1, 2]), f32([3, 4, 5]), "")
    assert result.tolist() == [[3, 4, 5], [6, 8, 10]]


def test_scalars() -> None:
    assert dot(f32(3), f32(4), "") == 12


@pytest.mark.parametrize(("m", "k", "n"), [(0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty_sums_are_zero(m: int, k: int, n: int) -> None:
    same(dot(np.ones((m, k), f32), np.ones((k, n), f32)), np.zeros((m, n)))
    same(dot(np.ones((m, k), np.int32), np.ones((k, n), np.int32)), np.zeros((m, n)))


# Element types.


@pytest.mark.parametrize("element_type", ["s4", "u4", "s8", "u8", "s32", "u32", "s64", "u64"])
def test_integers_wrap(element_type: str) -> None:
    bits = int(element_type[1:])
    largest = 2 ** (bits - 1) - 1 if element_type[0] == "s" else 2**bits - 1
    factors = [largest, largest, 3]
    exact = sum(f * f for f in factors) % 2**bits
    wanted = exact - 2**bits if element_type[0] == "s" and exact >= 2 ** (bits - 1) else exact
    lhs = array(element_type, np.array([factors], object))
    assert int(dot(lhs, lhs.T)[0, 0]) == wanted


def test_pred_is_or_of_and() -> None:
    lhs, rhs = np.array([[True, False], [True, True]]), np.array([[False, True], [True, False]])
    assert dot(lhs, rhs).tolist() == [[False, True], [True, True]]


def test_complex_numbers_are_not_conjugated() -> None:
    assert dot(c64([[1j, 2]]), c64([[1j], [1 + 1j]])).tolist() == [[1 + 2j]]


def test_narrow_integers_into_wide_sums() -> None:
    lhs = np.full((1, 300), 127, np.int8)
    assert dot(lhs, lhs.T, result="s32[1,1]").tolist() == [[300 * 127 * 127]]


def test_preds_into_counts() -> None:
    assert dot(np.ones((1, 5), bool), np.ones((5, 1), bool), result="s32[1,1]").tolist() == [[5]]


@pytest.mark.parametrize("element_type", ["bf16", "f16", "f8e4m3fn", "f8e5m2"])
def test_narrow_floats_are_rounded_once(element_type: str) -> None:
    # A running sum of 1 + 1 + ... in so few bits would stop growing long before 200.
    lhs = array(element_type, np.ones((1, 200)))
    same(dot(lhs, lhs.T), array(element_type, [[200]]))


def test_f32_results_of_bf16_keep_what_bf16_would_lose() -> None:
    lhs, rhs = array("bf16", [[256, 1]]), array("bf16", [[1], [1]])
    assert dot(lhs, rhs, result="f32[1,1]") == 257
    assert dot(lhs, rhs) == 256


def test_short_sums_are_formed_term_by_term() -> None:
    # (1e8 + 1) - 1e8 in f32: the 1 is lost, as the definition says; no product or sum is skipped.
    assert dot(f32([[1e8, 1, -1e8]]), f32([[1], [1], [1]])) == 0


def test_long_sums_are_nearer_to_the_exact_sum() -> None:
    lhs = f32([[1e8, *[0.25] * 100, -1e8]])
    assert dot(lhs, np.ones((102, 1), f32)) == 25


def test_mixed_types_meet_in_the_wider_one() -> None:
    assert dot(f32([[1.5]]), array("bf16", [[2]])).dtype == f32
    assert dot(s8([[3]]), array("bf16", [[2]])).dtype == ml_dtypes.bfloat16
    assert dot(f32([[3]]), c64([[2j]])).tolist() == [[6j]]
    assert dot(f64([[0.1]]), f64([[1]]), result="f32[1,1]") == f32(0.1)


def test_infinities_and_nans() -> None:
    result = dot(f32([[np.inf, 1], [np.inf, np.nan]]), f32([[1, 0], [1, 1]]))
    same(result, [[np.inf, np.nan], [np.nan, np.nan]])


@pytest.mark.parametrize("algorithm", ["dot_bf16_bf16_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32"])
def test_algorithm_and_precision_permit_and_do_not_demand(algorithm: str) -> None:
    lhs, rhs = f32([[1 + 2**-20]]), f32([[1]])
    attributes = f"{MATRICES}, operand_precision={{high,highest}}, algorithm={algorithm}"
    same(dot(lhs, rhs, attributes), lhs)


def test_what_lies_beyond_a_dynamic_size_counts_as_zero() -> None:
    text = f"""
      lhs = f32[2,3] parameter(0)
      size = s32[] constant(2)
      dynamic = f32[2,<=3] set-dimension-size(lhs, size), dimensions={{1}}
      rhs = f32[3,2] parameter(1)
      ROOT r = f32[2,2] dot(dynamic, rhs), {MATRICES}
    """
    lhs, rhs = np.arange(6, dtype=f32).reshape(2, 3), np.arange(6, dtype=f32).reshape(3, 2)
    same(evaluate(text, lhs, rhs), lhs[:, :2] @ rhs[:2])


# Rules.


@pytest.mark.parametrize(
    ("lhs", "rhs", "attributes", "rule"),
    [
        ("f32[2,3]", "f32[4,4]", MATRICES, "dot.contracting-sizes"),
        ("f32[2,<=3]", "f32[<=4,4]", MATRICES, "dot.contracting-sizes"),
        ("f32[2,3]", "f32[3,4]", "lhs_contracting_dims={1}", "dot.contracting-count"),
        ("f32[2]", "f32[2]", MATRICES, "dot.dimension-range"),
        ("f32[2,3]", "f32[3]", "lhs_contracting_dims={-1}, rhs_contracting_dims={0}", "dot.dimension-range"),
        ("f32[2,2]", "f32[2,2]", "lhs_contracting_dims={1,1}, rhs_contracting_dims={0,1}",
         "dot.dimensions-distinct"),
        ("f32[2,3,4]", "f32[3,4,5]", BATCHES, "dot.batch-sizes"),
        ("f32[2,3,4]", "f32[2,4,5]", BATCHES.replace("rhs_batch_dims={0}, ", ""), "dot.batch-count"),
        ("token[]", "f32[2]", "", "dot.operand-arrays"),
    ],
)  # fmt: skip
def test_dot_refuses(lhs: str, rhs: str, attributes: str, rule: str) -> None:
    assert refusal("dot", lhs, rhs, attributes=attributes).rule == rule


@pytest.mark.parametrize(
    ("operand", "result"), [("s32[2,2]", "s8[2,2]"), ("c64[2,2]", "f32[2,2]"), ("f32[2,2]", "pred[2,2]")]
)
def test_dot_refuses_results_that_do_not_hold_the_sums(operand: str, result: str) -> None:
    assert refusal("dot", operand, operand, attributes=MATRICES, result=result).rule == "dot.result-type"


def test_dot_refuses_other_dimensions() -> None:
    error = refusal("dot", "f32[2,3]", "f32[3,4]", attributes=MATRICES, result="f32[4,2]")
    assert error.rule == "instruction.shape-matches"


def test_unknown_precision() -> None:
    error = refusal("dot", "f32[2,2]", "f32[2,2]", attributes=MATRICES + ", operand_precision={medium,high}")
    assert error.rule == "operand-precision.known"


# Ragged dot, and the rules that all three share.

FREE = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
INNER = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
RAGGED_BATCH = f"{BATCHES}, lhs_ragged_dims={{0}}"


def ragged(lhs: Any, rhs: Any, sizes: Any, attributes: str) -> Any:
    return apply("ragged-dot", lhs, rhs, np.asarray(sizes, np.int32), attributes=attributes)


def test_ragged_rows_have_kernels_of_their_own() -> None:
    lhs, rhs = np.arange(10.0).reshape(5, 2), np.arange(12.0).reshape(2, 2, 3)
    result = ragged(lhs, rhs, [2, 1], FREE)
    same(result, np.concatenate([lhs[:2] @ rhs[0], lhs[2:3] @ rhs[1], np.zeros((2, 3))]))


def test_ragged_contraction_gives_a_product_for_every_group() -> None:
    lhs, rhs = np.arange(10.0).reshape(2, 5), np.arange(15.0).reshape(5, 3)
    result = ragged(lhs, rhs, [3, 0, 1], INNER)
    same(result, [lhs[:, :3] @ rhs[:3], np.zeros((2, 3)), lhs[:, 3:4] @ rhs[3:4]])


def test_ragged_batch_is_a_dot_of_the_batches_in_groups() -> None:
    lhs, rhs = np.arange(12.0).reshape(3, 2, 2), np.arange(12.0).reshape(3, 2, 2)
    result = ragged(lhs, rhs, [1, 1], RAGGED_BATCH)
    same(result, [lhs[0] @ rhs[0], lhs[1] @ rhs[1], np.zeros((2, 2))])


def test_group_sizes_may_differ_along_the_batch() -> None:
    rng = np.random.default_rng(1)
    lhs, rhs = rng.integers(-5, 5, (2, 5, 3)), rng.integers(-5, 5, (2, 2, 3, 4))
    attributes = (
        "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}, "
        "lhs_ragged_dims={1}, rhs_group_dims={0}"
    )
    result = ragged(lhs, rhs, [[2, 3], [5, 0]], attributes)
    wanted = [np.concatenate([lhs[0, :2] @ rhs[0, 0], lhs[0, 2:] @ rhs[1, 0]]), lhs[1] @ rhs[0, 1]]
    same(result, wanted)
    same(ragged(lhs, rhs, [2, 3], attributes), ragged(lhs, rhs, [[2, 3], [2, 3]], attributes))


def test_what_is_outside_of_a_group_is_not_even_multiplied_by_zero() -> None:
    lhs, rhs = f32([[1, 2]]), f32([[3], [np.inf]])
    assert ragged(lhs, rhs, [1], INNER).tolist() == [[[3]]]


def test_ragged_dot_without_groups() -> None:
    assert ragged(np.ones((2, 5), f32), np.ones((5, 3), f32), np.zeros(0), INNER).shape == (0, 2, 3)


@pytest.mark.parametrize(
    ("lhs", "rhs", "sizes", "attributes", "rule"),
    [
        ("f32[11,5]", "f32[3,5,7]", "s32[3]", FREE.replace("lhs_ragged_dims={0}", "lhs_ragged_dims={}"),
         "ragged-dot.one-ragged-dim"),
        ("f32[11,5]", "f32[3,5,7]", "s32[3]", FREE.replace("lhs_ragged_dims={0}", "lhs_ragged_dims={7}"),
         "ragged-dot.ragged-dim-range"),
        ("f32[11,5]", "f32[3,5,7]", "s32[3]", FREE.replace("rhs_group_dims={0}", "rhs_group_dims={}"),
         "ragged-dot.group-dims"),
        ("f32[11,5]", "f32[3,5,7]", "s32[5]", FREE.replace("rhs_group_dims={0}", "rhs_group_dims={1}"),
         "ragged-dot.group-dim-free"),
        ("f32[11,5]", "f32[3,5,7]", "s32[4]", FREE, "ragged-dot.group-count"),
        ("f32[11,5]", "f32[3,5,7]", "f32[3]", FREE, "ragged-dot.group-sizes-type"),
        ("f32[11,5]", "f32[3,5,7]", "s32[1,3]", FREE, "ragged-dot.group-sizes-rank"),
        ("f32[2,11,5]", "f32[3,2,5,7]", "s32[3,3]",
         "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}, "
         "lhs_ragged_dims={1}, rhs_group_dims={0}", "ragged-dot.group-sizes-dimensions"),
        ("f32[11,5]", "f32[3,6,7]", "s32[3]", FREE, "ragged-dot.contracting-sizes"),
    ],
)  # fmt: skip
def test_ragged_dot_refuses(lhs: str, rhs: str, sizes: str, attributes: str, rule: str) -> None:
    assert refusal("ragged-dot", lhs, rhs, sizes, attributes=attributes).rule == rule


# Scaled dot.


def test_a_scale_holds_for_a_block() -> None:
    lhs, rhs = array("f8e4m3fn", np.ones((1, 64))), array("f8e4m3fn", np.ones((64, 1)))
    lhs_scale, rhs_scale = array("f8e8m0fnu", [[2, 4]]), array("f8e8m0fnu", [[1], [0.5]])
    result = apply("scaled-dot", lhs, lhs_scale, rhs, rhs_scale, attributes=MATRICES, result="f32[1,1]")
    assert result == 32 * 2 * 1 + 32 * 4 * 0.5


def test_a_scalar_scale_stands_for_one() -> None:
    one = array("f8e8m0fnu", 1)
    lhs = array("bf16", [[1, 2]])
    assert apply("scaled-dot", lhs, one, lhs.T, one, attributes=MATRICES).tolist() == [[5]]


@pytest.mark.parametrize(
    ("lhs", "scale", "rule"),
    [
        ("f8e4m3fn[4,64]", "f8e8m0fnu[4,3]", "scaled-dot.scale-divides"),
        ("f8e4m3fn[4,64]", "f8e8m0fnu[2]", "scaled-dot.scale-divides"),
        ("f8e4m3fn[4,64]", "f8e8m0fnu[4,0]", "scaled-dot.scale-divides"),
        ("f8e4m3fn[4,64]", "s8[4,2]", "scaled-dot.element-type"),
        ("s8[4,64]", "f8e8m0fnu[4,2]", "scaled-dot.element-type"),
    ],
)
def test_scaled_dot_refuses(lhs: str, scale: str, rule: str) -> None:
    shapes = (lhs, scale, "f8e4m3fn[64,8]", "f8e8m0fnu[2,8]")
    assert refusal("scaled-dot", *shapes, attributes=MATRICES).rule == rule


@pytest.mark.parametrize("opcode", ["ragged-dot", "scaled-dot"])
@pytest.mark.parametrize(
    ("lhs", "rhs", "attributes", "rule"),
    [
        ("f32[2,3]", "f32[4,4]", MATRICES, "contracting-sizes"),
        ("f32[2,3]", "f32[3,4]", "lhs_contracting_dims={1}", "contracting-count"),
        ("f32[2]", "f32[2]", MATRICES, "dimension-range"),
        ("f32[2,2]", "f32[2,2]", "lhs_contracting_dims={1,1}, rhs_contracting_dims={0,1}",
         "dimensions-distinct"),
        ("f32[2,3,4]", "f32[3,4,5]", BATCHES, "batch-sizes"),
        ("f32[2,3,4]", "f32[2,4,5]", BATCHES.replace("rhs_batch_dims={0}, ", ""), "batch-count"),
        ("token[]", "f32[2]", "", "operand-arrays"),
    ],
)  # fmt: skip
def test_the_other_dots_refuse(opcode: str, lhs: str, rhs: str, attributes: str, rule: str) -> None:
    shapes = (lhs, rhs, "s32[3]") if opcode == "ragged-dot" else (lhs, "f32[]", rhs, "f32[]")
    assert refusal(opcode, *shapes, attributes=attributes).rule == f"{opcode}.{rule}"


def test_the_other_dots_refuse_results_that_do_not_hold_the_sums() -> None:
    shapes = ("s32[11,5]", "s32[3,5,7]", "s32[3]")
    assert refusal("ragged-dot", *shapes, attributes=FREE, result="s8[11,7]").rule == "ragged-dot.result-type"
    shapes = ("f32[2,2]", "f32[]", "f32[2,2]", "f32[]")
    error = refusal("scaled-dot", *shapes, attributes=MATRICES, result="pred[2,2]")
    assert error.rule == "scaled-dot.result-type"


# A second opinion.


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ("f32[7,40]", "f32[40,5]", "f32[7,5]"),
        ("bf16[7,40]", "bf16[40,5]", "f32[7,5]"),
        ("s8[7,40]", "s8[40,5]", "s32[7,5]"),
        ("c64[7,40]", "c64[40,5]", "c64[7,5]"),
        ("f64[7,40]", "f64[40,5]", "f64[7,5]"),
    ],
)
def test_xla_agrees(lhs: str, rhs: str, result: str) -> None:
    rng = np.random.default_rng(2)
    operands = [
        array(shape.split("[")[0], rng.integers(-9, 9, size))
        for shape, size in ((lhs, (7, 40)), (rhs, (40, 5)))
    ]
    text = program("dot", lhs, rhs, attributes=MATRICES, result=result)
    (wanted,) = oracle.run(f"HloModule m\nENTRY e {{\n{text}\n}}", *operands)
    same(apply("dot", *operands, attributes=MATRICES, result=result), wanted)
