"""Matrix products of cuBLAS: dumps of GPUs run on both backends."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from tests import agreement
from tests.library_calls.runs import run

ROWS_BY_COLUMNS = {
    "lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"],
    "lhs_batch_dimensions": [], "rhs_batch_dimensions": [],
}  # fmt: skip


def gemm(**settings: Any) -> str:
    """Return the configuration of a product in XLA's JSON."""
    fields = {"alpha_real": 1, "alpha_imag": 0, "beta": 0, "dot_dimension_numbers": ROWS_BY_COLUMNS}
    return json.dumps({"operation_queue_id": "0", "gemm_backend_config": fields | settings})


A = np.arange(10, dtype=np.float32).reshape(5, 2) - 4
B = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
C = np.arange(15, dtype=np.float32).reshape(5, 3)
BIAS = np.array([10, -20, 3], np.float32)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_products_with_coefficients(target: str) -> None:
    config = gemm(alpha_real=2, beta=-1)
    agreement.equal(run("(f32[5,3], s8[64])", target, [A, B, C], config)[0], 2 * (A @ B) - C)


def test_a_result_without_a_workspace() -> None:
    agreement.equal(run("f32[5,3]", "__cublas$gemm", [A, B], gemm(epilogue="DEFAULT")), A @ B)


def test_configurations_of_old_dumps_have_no_section() -> None:
    config = json.dumps({"alpha_real": 1, "beta": 0, "dot_dimension_numbers": ROWS_BY_COLUMNS})
    agreement.equal(run("f32[5,3]", "__cublas$gemm", [A, B], config), A @ B)


def test_batches() -> None:
    numbers = {
        "lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["2"],
        "lhs_batch_dimensions": ["0"], "rhs_batch_dimensions": ["0"],
    }  # fmt: skip
    x, y = np.arange(24.0).reshape(2, 3, 4), np.arange(30.0).reshape(2, 5, 3)
    found = run("f64[2,4,5]", "__cublas$gemm", [x, y], gemm(dot_dimension_numbers=numbers))
    agreement.equal(found, np.einsum("bki,bjk->bij", x, y))


def test_complex_coefficients() -> None:
    x, y = (A + 1j).astype(np.complex64), (B - 2j).astype(np.complex64)
    found = run("c64[5,3]", "__cublas$gemm", [x, y], gemm(alpha_real=0, alpha_imag=1))
    agreement.equal(found, 1j * (x @ y))


def test_integers() -> None:
    found = run("s32[5,3]", "__cublas$gemm", [A.astype(np.int8), B.astype(np.int8)], gemm())
    agreement.same(found, (A @ B).astype(np.int32))


def test_the_bias_is_along_the_inner_dimension() -> None:
    config = gemm(epilogue="BIAS")
    found = run("(f32[5,3]{1,0}, s8[8])", "__cublas$lt$matmul", [A, B, BIAS], config)
    agreement.equal(found[0], A @ B + BIAS)
    tall = np.arange(5, dtype=np.float32)
    found = run("(f32[5,3]{0,1}, s8[8])", "__cublas$lt$matmul", [A, B, tall], config)
    agreement.equal(found[0], A @ B + tall[:, None])


def test_relu_behind_matrix_and_bias() -> None:
    config = gemm(epilogue="BIAS_RELU", beta=1)
    found = run("(f32[5,3], s8[8])", "__cublas$lt$matmul", [A, B, C, BIAS], config)
    agreement.equal(found[0], np.maximum(A @ B + C + BIAS, 0))


@pytest.mark.parametrize("epilogue", ["GELU", "GELU_AUX", "BIAS_GELU_AUX", "BIAS_GELU"])
def test_gelu_and_its_argument(epilogue: str) -> None:
    has_aux, has_bias = epilogue.endswith("AUX"), epilogue.startswith("BIAS")
    shape = "(f32[5,3], f32[5,3], s8[8])" if has_aux else "(f32[5,3], s8[8])"
    operands = [0.1 * A, B, *([0.1 * BIAS] if has_bias else [])]
    found = run(shape, "__cublas$lt$matmul", operands, gemm(epilogue=epilogue))
    x = (0.1 * A).astype(np.float64) @ B + (0.1 * BIAS if has_bias else 0)
    wanted = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x.ravel()]
    # an absolute error of tanh's argument and of 1 + tanh
    agreement.within(found[0], np.reshape(wanted, x.shape), 2e-6 * (1 + np.abs(x)))
    if has_aux:
        agreement.within(found[1], x, 1e-6 * (1 + np.abs(x)))


def test_bf16_is_rounded_once_behind_the_epilogue() -> None:
    x, y = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    bias = np.array([1 / 256, 0, 0]).astype(ml_dtypes.bfloat16)
    config = gemm(epilogue="BIAS_RELU", alpha_real=0.125)
    found = run("(bf16[5,3], s8[8])", "__cublas$lt$matmul", [x, y, bias], config)
    wanted = np.maximum(0.125 * (A @ B) + bias.astype(np.float32), 0).astype(ml_dtypes.bfloat16)
    agreement.same(found[0], wanted)


E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
SCALES = [np.float32(2), np.float32(0.5)]


def test_8_bit_floats_are_scaled() -> None:
    operands = [A.astype(E4M3), B.astype(E4M3), *SCALES]
    agreement.equal(run("(f32[5,3], s8[8])", "__cublas$lt$matmul$f8", operands, gemm())[0], A @ B)


def test_8_bit_results_are_scaled_and_clamped() -> None:
    operands = [A.astype(E4M3), B.astype(E4M3), *SCALES, np.float32(100)]
    shape, config = "(f8e4m3fn[5,3], f32[], s8[8])", gemm(damax_output=True)
    found = run(shape, "__cublas$lt$matmul$f8", operands, config)
    agreement.same(found[0], np.clip(100 * (A @ B), -448, 448).astype(E4M3))
    agreement.equal(found[1], np.abs(A @ B).max())


def test_older_calls_state_four_scales() -> None:
    operands = [A.astype(E4M3), B.astype(E4M3), C, *SCALES, np.float32(3), np.float32(1), BIAS]
    found = run("(f32[5,3], s8[8])", "__cublas$lt$matmul$f8", operands, gemm(beta=1, epilogue="BIAS"))
    agreement.equal(found[0], A @ B + 3 * C + BIAS)


@pytest.mark.parametrize(
    ("target", "config", "words"),
    [
        ("__cublas$lt$matmul", gemm(epilogue="SWISH"), "the epilogue SWISH"),
        ("__cublas$lt$matmul", gemm(epilogue="BIAS"), "0 operands left for the bias"),
        ("__cublas$lt$matmul", '"{"', "backend_config is malformed: it is not JSON"),
        (
            "__cublas$lt$matmul",
            gemm(dot_dimension_numbers=3),
            "dot_dimension_numbers is 3, wanted is an object",
        ),
        ("__cublas$lt$matmul$f8", gemm(), "scales of blocks"),
        ("__cublas$gemm", gemm(beta=1), "no matrix to add"),
        ("__cublas$gemm", gemm(alpha_real="much"), "alpha_real is 'much', wanted is a number"),
        ("__cublas$gemm", gemm(epilogue=2), "epilogue is 2, wanted is a string"),
        ("__cublas$lt$matmul", '"[1]"', r"it is \[1\], wanted is a JSON object"),
    ],
)
def test_configurations_that_are_not_emulated(target: str, config: str, words: str) -> None:
    for backend in ("cpu", "evaluator"):
        with pytest.raises(hloom.HloError, match=words) as caught:
            run("(f32[5,3], s8[8])", target, [A, B], config, backends=[backend])
        assert caught.value.rule == "custom-call.emulation"


def test_a_registered_function_comes_first() -> None:
    hloom.register_custom_call("__cublas$gemm", lambda a, b: np.full((5, 3), 7, np.float32))
    try:
        agreement.equal(run("f32[5,3]", "__cublas$gemm", [A, B], gemm()), np.full((5, 3), 7))
    finally:
        from hloom.runtime.custom_call import unregister_custom_call

        unregister_custom_call("__cublas$gemm")


def test_the_error_for_unknown_targets_lists_the_known_ones() -> None:
    with pytest.raises(hloom.HloError, match=r"__cublas\$gemm.*cu_threefry2x32.*lapack_\?potrf_ffi"):
        run("f32[5,3]", "__cublas$unheard_of", [A, B], gemm(), backends=["evaluator"])
