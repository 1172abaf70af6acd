"""JAX's linear algebra on CPUs, which calls LAPACK: the values of jaxlib, on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError
from hloom.operations.lapack import evaluation
from hloom.operations.lapack.library import routine, set_thread_count
from hloom.runtime.custom_call import unregister_custom_call
from tests import agreement

TYPES = ((np.float32, np.complex128), (np.float64, np.complex64))
"""Every case has two types, alternately."""
Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]


def drawn(generator: np.random.Generator, kind: Any, *shape: int) -> np.ndarray:
    values = generator.standard_normal(shape)
    if np.dtype(kind).kind == "c":
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(kind)


def cases(kind: Any) -> Iterator[Case]:
    """Functions of JAX with their arguments: every routine, tall, wide, empty and singular matrices."""
    from jax.lax import linalg
    from jax.numpy import linalg as numeric

    generator = np.random.default_rng(0)
    square, tall, wide = (drawn(generator, kind, *shape) for shape in ((2, 4, 4), (2, 5, 3), (3, 5)))
    positive = (square @ square.conj().swapaxes(1, 2) + 4 * np.eye(4)).astype(kind)
    lower = np.tril(square) + 4 * np.eye(4, dtype=kind)
    right, transposed = drawn(generator, kind, 2, 4, 3), drawn(generator, kind, 2, 3, 4)
    ones = np.ones((2, 4), kind)
    qr_iteration = linalg.SvdAlgorithm.QR
    yield "cholesky", linalg.cholesky, (positive,)
    yield "cholesky of none", linalg.cholesky, (-positive,)
    yield "lu", linalg.lu, (tall,)
    yield "lu wide", linalg.lu, (wide,)
    yield "lu empty", linalg.lu, (np.zeros((0, 3), kind),)
    yield "qr", lambda a: linalg.qr(a, full_matrices=False), (tall,)
    yield "qr full", lambda a: linalg.qr(a, full_matrices=True), (tall,)
    yield "qr wide", lambda a: linalg.qr(a, full_matrices=False), (wide,)
    yield "qr pivoted", lambda a: linalg.qr(a, pivoting=True, full_matrices=False), (tall,)
    yield "svd", lambda a: linalg.svd(a, full_matrices=False), (tall,)
    yield "svd full", lambda a: linalg.svd(a, full_matrices=True), (wide,)
    yield "svd values", lambda a: linalg.svd(a, compute_uv=False), (tall,)
    yield "svd by qr", lambda a: linalg.svd(a, full_matrices=False, algorithm=qr_iteration), (tall,)
    yield "eigh", linalg.eigh, (positive,)
    yield "eigh upper", lambda a: linalg.eigh(a, lower=False, symmetrize_input=False), (square,)
    yield "eigh of no matrix", linalg.eigh, (np.zeros((0, 3, 3), kind),)
    yield "eig", linalg.eig, (square,)
    yield "eig of NaN", linalg.eig, (square * np.nan,)
    yield (
        "eigenvalues",
        lambda a: linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False),
        (square,),
    )
    yield "schur", linalg.schur, (square,)
    yield "hessenberg", linalg.hessenberg, (square,)
    yield "tridiagonal", linalg.tridiagonal, (positive,)
    yield "tridiagonal upper", lambda a: linalg.tridiagonal(a, lower=False), (positive,)
    yield (
        "triangular solve",
        lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
        (lower, right),
    )
    yield (
        "triangular solve from the right",
        lambda a, b: linalg.triangular_solve(
            a, b, left_side=False, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=True
        ),
        (lower, transposed),
    )
    yield "tridiagonal solve", linalg.tridiagonal_solve, (ones, 4 * ones, ones, right)
    yield "inverse", numeric.inv, (square,)
    yield "determinant", numeric.slogdet, (square,)


NAMES = [
    "cholesky", "cholesky of none", "lu", "lu wide", "lu empty", "qr", "qr full", "qr wide", "qr pivoted",
    "svd", "svd full", "svd values", "svd by qr", "eigh", "eigh upper", "eigh of no matrix", "eig",
    "eig of NaN",
    "eigenvalues", "schur", "hessenberg", "tridiagonal", "tridiagonal upper", "triangular solve",
    "triangular solve from the right", "tridiagonal solve", "inverse", "determinant",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for n, name in enumerate(NAMES) for kind in TYPES[n % 2]]
)
def test_the_values_are_those_of_jaxlib(name: str, kind: type[np.generic]) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        found = {each: (function, arguments) for each, function, arguments in cases(kind)}
        assert list(found) == NAMES
        function, arguments = found[name]
        lowered = jax.jit(function).lower(*arguments)
        text = lowered.compiler_ir("hlo").as_hlo_module().to_string()
        wanted = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(*arguments))]
    module = hloom.HloModule.from_text(text)
    # Both sides are backward stable: each is off by a few units for each of at most n^3 operations, times the
    # condition of these matrices and of their eigenvectors, which is below 50.
    unit = float(np.finfo(cast("Any", kind)).eps)
    for backend in ("evaluator", "cpu"):
        result = hloom.compile(module, backend=backend)(*arguments)
        for ours, theirs in zip(leaves_of(result), wanted, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            limit = 50 * 5**3 * unit * max(1.0, float(np.nan_to_num(np.abs(theirs)).max(initial=0)))
            agreement.within(ours, theirs, 0 if ours.dtype.kind == "i" else limit)


def leaves_of(value: Any) -> list[np.ndarray]:
    """The arrays in nested tuples."""
    return [leaf for part in value for leaf in leaves_of(part)] if isinstance(value, tuple) else [value]


def test_a_registered_function_takes_the_place_of_a_known_one() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[2,2] parameter(0)
  ROOT c = (f32[2,2], s32[]) custom-call(a), custom_call_target="lapack_spotrf_ffi",
    backend_config={uplo = 76 : ui8}
}"""
    module = hloom.HloModule.from_text(text)
    hloom.register_custom_call("lapack_spotrf_ffi", lambda a: (a, np.int32(7)))
    try:
        assert int(hloom.compile(module)(np.eye(2, dtype=np.float32))[1]) == 7
    finally:
        unregister_custom_call("lapack_spotrf_ffi")
    assert int(hloom.compile(module)(np.eye(2, dtype=np.float32))[1]) == 0


def test_routines_that_do_not_exist_are_refused() -> None:
    with pytest.raises(EvaluationError) as caught:
        routine("snonsense", 1)
    assert caught.value.rule == "custom-call.routine"


CHOLESKY = """HloModule m
ENTRY e {
  a = f64[2,3,3]{1,2,0} parameter(0)
  ROOT r = (f64[2,3,3]{1,2,0}, s32[2]) custom-call(a), custom_call_target="lapack_dpotrf_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
}"""


@pytest.mark.parametrize("fails", [False, True])
def test_routines_run_in_the_calling_thread(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS has one thread while a call is under way, and as many as before when it ends."""
    before = set_thread_count(2)
    if before == 1 and set_thread_count(2) == 1:
        pytest.skip("scipy has another library than OpenBLAS")
    seen: list[int] = []

    def spy(name: str, count: int) -> Any:
        seen.append(set_thread_count(1))
        if fails:
            raise ZeroDivisionError
        return routine(name, count)

    monkeypatch.setattr(evaluation, "routine", spy)
    executable = hloom.compile(hloom.HloModule.from_text(CHOLESKY), "evaluator")
    try:
        if fails:
            with pytest.raises(ZeroDivisionError):
                executable(np.stack([np.eye(3)] * 2))
        else:
            agreement.same(executable(np.stack([np.eye(3)] * 2))[0], np.stack([np.eye(3)] * 2))
        assert set(seen) == {1}
        assert set_thread_count(2) == 2
    finally:
        set_thread_count(before)
