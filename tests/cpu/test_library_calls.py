"""Custom calls of LAPACK in native code: decompositions multiply to the matrices that they are of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hloom.codegen.llvm import print_module
from hloom.errors import HloError
from hloom.operations.lapack import routines
from hloom.operations.lapack.library import set_thread_count
from tests import agreement
from tests.evaluation import evaluate
from tests.native_runs import compiled

Array = np.ndarray[Any, Any]
KINDS = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
REAL = {"f32": "f32", "f64": "f64", "c64": "f32", "c128": "f64"}
SIZES = [(3, 4, 4), (2, 9, 5), (2, 5, 9), (1, 41, 35), (2, 24, 16), (2, 1, 3), (2, 3, 1)]
"""Matrices smaller than a tile, whole tiles and parts of these, long enough for blocks, rows and columns."""
QR_SIZES = [
    *SIZES, (1, 3, 3), (1, 6, 2), (2, 2, 5), (4, 4, 4), (19, 9, 5), (9, 5, 9), (5, 1, 3), (5, 3, 1),
    (8, 53, 3),
]  # fmt: skip
SQUARE = [(3, 4, 4), (2, 1, 1), (1, 41, 41), (2, 16, 16)]


def matrix(kind: str, *sizes: int) -> Array:
    generator = np.random.default_rng(sum(sizes))
    values = generator.standard_normal(sizes)
    if KINDS[kind]().dtype.kind == "c":
        values = values + 1j * generator.standard_normal(sizes)
    return np.asarray(values.astype(KINDS[kind]))


def run(kind: str, calls: str, results: str, *arguments: Array) -> Any:
    """Run a program that does not call the host; ``<T>``, ``<R>``, ``<P>`` stand for types and prefix."""
    native = compiled(filled(kind, calls, results))
    assert not native.program.host_calls
    return native(*arguments)


def filled(kind: str, calls: str, results: str) -> str:
    text = f"{calls}\n  ROOT r = tuple({results})"
    for name, value in (("T", kind), ("R", REAL[kind]), ("P", PREFIXES[kind])):
        text = text.replace(f"<{name}>", value)
    return text


def call(operands: str, results: str, routine: str, attributes: str = "") -> str:
    return (
        f'({results}) custom-call({operands}), custom_call_target="lapack_<P>{routine}_ffi", '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={{{attributes}}}"
    )


def adjoint(a: Array) -> Array:
    return a.swapaxes(-1, -2).conj()


def backward(a: Array, *factors: Array) -> Any:
    """Return the bound of the error of a backward stable decomposition: n^2 units of the factors' norms.

    Higham, Accuracy and Stability of Numerical Algorithms, theorems 10.3, 19.4: the constants of n^2
    and n^1.5 are below 8 for complex numbers, and the products of the test add n units.
    """
    unit = np.finfo(a.dtype).eps
    size = max(a.shape[-2:])
    norms = [np.linalg.norm(factor.astype(np.complex128), axis=(-2, -1), keepdims=True) for factor in factors]
    return 16 * size**2 * unit * np.prod(norms, axis=0) * np.ones(a.shape)


def product(*factors: Array) -> Array:
    wide = [factor.astype(np.complex128) for factor in factors]
    made = wide[0]
    for factor in wide[1:]:
        made = made @ factor
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes",
    [
        *(*SIZES, (1, 6, 6), (1, 2, 5), (4, 5, 5), (37, 4, 4), (19, 7, 3), (19, 3, 7), (9, 16, 16)),
        *((1, 10, 10), (3, 33, 33), (2, 64, 64), (1, 101, 101)),
    ],
)
def test_lu(kind: str, sizes: tuple[int, int, int]) -> None:
    _, m, n = sizes
    k, a = min(m, n), matrix(kind, *sizes)
    packed, pivots, info = lu(kind, a)
    lower, upper = np.tril(packed, -1)[..., :k] + np.eye(m, k, dtype=a.dtype), np.triu(packed)[:, :k]
    permuted = a.copy()
    for one, swaps in zip(permuted, pivots, strict=True):
        for row, other in enumerate(swaps - 1):
            one[[row, other]] = one[[other, row]]
    # Higham, theorem 9.3, for numbers of two parts
    bound = 8 * k * np.finfo(a.dtype).eps * (np.abs(lower) @ np.abs(upper))
    agreement.within(product(lower, upper), permuted.astype(np.complex128), bound)
    assert not info.any()
    assert (np.abs(lower) <= 1.5).all()  # |re| + |im| of a complex pivot is the largest, by LAPACK's rule


@pytest.mark.parametrize("kind", KINDS)
def test_lu_of_singular_and_unusual_matrices(kind: str) -> None:
    """Our own code, for many small matrices and for one, decomposes them as LAPACK does for the evaluator."""
    zeros, ones = np.zeros((3, 3)), np.ones((3, 3))
    special = [
        zeros, ones, np.eye(3), np.eye(3)[::-1], np.diag([1.0, 0.0, 0.0]), np.diag([0.0, 0.0, 2.0]),
        -np.tri(3), np.array([[0.0, 1, 2], [0, 0, 3], [4, 0, 0]]), 1e30 * np.eye(3)[[1, 2, 0]],
    ]  # fmt: skip
    a = np.array(special).astype(KINDS[kind])
    many = lu(kind, a)
    for number, one in enumerate(a):
        wanted = evaluate(filled(kind, *lu_calls(one[None])), one[None])
        for got, alone, correct in zip(many, lu(kind, one[None]), wanted, strict=True):
            agreement.equal(got[number], correct[0])
            agreement.equal(alone, correct)
    assert many[2].tolist() == [1, 2, 0, 0, 2, 1, 0, 0, 0]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("n", [10, 37])
def test_lu_chooses_the_first_of_equal_pivots(kind: str, n: int) -> None:
    """Numbers are powers of two, so that all factors are exact."""
    rng = np.random.default_rng(n)
    powers = np.ldexp(1.0, rng.integers(-3, 3, (n, n)))
    special = [
        np.zeros((n, n)), np.ones((n, n)), np.eye(n)[::-1], powers * np.eye(n)[rng.permutation(n)],
        powers * np.tri(n).T, np.diag(np.arange(n) % 3 - 1.0), np.kron([[1, 1], [1, -1]], np.eye(n))[:n, :n],
    ]  # fmt: skip
    a = np.array(special).astype(KINDS[kind])
    for one, *got in zip(a, *lu(kind, a), strict=True):
        wanted = evaluate(filled(kind, *lu_calls(one[None])), one[None])
        for found, correct in zip(got, wanted, strict=True):
            agreement.equal(found, correct[0])


def test_lu_of_matrices_with_nan_ends() -> None:
    for n in (3, 21):
        a = np.full((5, n, n), np.nan, np.float32)
        packed, pivots, _ = lu("f32", a)
        assert np.isnan(packed).any(axis=(1, 2)).all() and ((pivots >= 1) & (pivots <= n)).all()


def lu(kind: str, a: Array) -> Any:
    return run(kind, *lu_calls(a), a)


def lu_calls(a: Array) -> tuple[str, str]:
    """Return the calls and the results of a program of LU factors."""
    b, m, n = a.shape
    k = min(m, n)
    made = call("a", f"<T>[{b},{m},{n}], s32[{b},{k}], s32[{b}]", "getrf")
    return f"  a = <T>[{b},{m},{n}] parameter(0)\n  c = {made}\n" + elements("c", 3), "o0, o1, o2"


def elements(name: str, count: int, first: int = 0) -> str:
    return "\n".join(f"  o{first + n} = get-tuple-element({name}), index={n}" for n in range(count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes", [*SIZES, (4, 4, 4), (19, 9, 5), (9, 5, 9), (5, 1, 3), (5, 3, 1), (8, 53, 3)]
)
def test_qr(kind: str, sizes: tuple[int, int, int]) -> None:
    b, m, n = sizes
    k, a = min(m, n), matrix(kind, *sizes)
    packed, _ = reflectors(kind, a)
    q = leading_columns(kind, a, k)
    r = np.triu(packed)[:, :k]
    agreement.within(product(q, r), a.astype(np.complex128), backward(a, a))
    agreement.within(product(adjoint(q), q), np.eye(k) + np.zeros((b, k, k)), backward(q, q, q)[:, :k])


def reflectors(kind: str, a: Array) -> Any:
    """Return R with the vectors of the reflectors below its diagonal, and their factors."""
    b, m, n = a.shape
    first = call("a", f"<T>[{b},{m},{n}], <T>[{b},{min(m, n)}]", "geqrf")
    return run(kind, f"  a = <T>[{b},{m},{n}] parameter(0)\n  c = {first}\n{elements('c', 2)}", "o0, o1", a)


def leading_columns(kind: str, a: Array, count: int) -> Array:
    """Return the leading columns of Q, for at least as many columns as reflectors."""
    packed, tau = reflectors(kind, a)
    b, m, _ = a.shape
    extended = np.zeros((b, m, count), a.dtype)
    extended[:, :, : min(packed.shape[2], count)] = packed[:, :, :count]
    routine = "ungqr" if kind[0] == "c" else "orgqr"
    made = call("p, t", f"<T>[{b},{m},{count}]", routine)[1:].replace(")", "", 1)
    text = (
        f"  p = <T>[{b},{m},{count}] parameter(0)\n  t = <T>[{b},{tau.shape[1]}] parameter(1)\n  q = {made}"
    )
    return run(kind, text, "q", extended, tau)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(2, 7, 3), (5, 7, 3), (9, 4, 4), (6, 6, 1), (1, 5, 3)])
@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("is_adjoint", [True, False])
def test_products_with_q(kind: str, sizes: tuple[int, int, int], is_left: bool, is_adjoint: bool) -> None:
    b, m, _ = sizes
    a = matrix(kind, *sizes)
    packed, tau = reflectors(kind, a)
    q = leading_columns(kind, a, m)
    others = 3
    c = matrix(kind, b, m, others) if is_left else matrix(kind, b, others, m)
    shape = f"<T>[{b},{c.shape[1]},{c.shape[2]}]"
    routine = "unmqr" if kind[0] == "c" else "ormqr"
    sides = f"left = {str(is_left).lower()}, transpose = {str(is_adjoint).lower()}"
    made = call("p, t, c", shape, routine, sides)[1:].replace(")", "", 1)
    text = (
        f"  p = <T>[{b},{m},{packed.shape[2]}] parameter(0)\n  t = <T>[{b},{tau.shape[1]}] parameter(1)\n"
        f"  c = {shape} parameter(2)\n  r = {made}"
    ).replace("  r =", "  x =")
    (found,) = run(kind, text, "x", packed, tau, c)
    factor = adjoint(q) if is_adjoint else q
    wanted = product(factor, c) if is_left else product(c, factor)
    agreement.within(found, wanted, backward(c, c, np.ones((b, 1, 1), c.dtype)) + backward(q, q)[:1, :1, :1])


@pytest.mark.parametrize("kind", KINDS)
def test_qr_of_unusual_matrices(kind: str) -> None:
    """Columns that are zero below the diagonal have no reflector; squares neither overflow nor vanish."""
    one, limits = matrix(kind, 3, 3), np.finfo(KINDS[kind])
    large, small = float(limits.max) / 64, float(limits.tiny) * 64
    special = [
        np.zeros((3, 3)), np.eye(3), -np.eye(3), np.triu(one.real), np.diag([0.0, 0.0, 2.0]), one,
        np.ones((3, 3)), one * large, one * small, np.eye(3)[::-1], one * [1, 0, 1], one * [large, small, 1],
    ]  # fmt: skip
    a = np.array(special).astype(KINDS[kind])
    packed, tau = reflectors(kind, a)
    q = leading_columns(kind, a, 3)
    # Higham, theorem 19.4, for each column: 8 n^1.5 units of its norm, and numbers as small as denormal ones
    bound = 72 * limits.eps * (np.abs(a.astype(np.complex128)).max(axis=1, keepdims=True) + small)
    agreement.within(product(q, np.triu(packed)), a.astype(np.complex128), bound * np.ones(a.shape))
    agreement.within(product(adjoint(q), q), np.eye(3) + np.zeros(a.shape), 72 * limits.eps)
    assert not tau[:5].any() and tau[5:].any(axis=1).all()


def test_qr_of_matrices_with_nan_has_nan() -> None:
    a = np.stack([np.eye(3), *3 * [np.ones((3, 3))], np.full((3, 3), np.inf)]).astype(np.float32)
    a[[1, 2, 3], [0, 1, 2], [0, 0, 1]] = np.nan
    packed, tau = reflectors("f32", a)
    assert np.isfinite(packed[0]).all() and not tau[0].any()
    assert np.isnan(packed[1:]).any(axis=(1, 2)).all() and np.isnan(tau[1:]).any(axis=1).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("routine", ["gesdd", "gesvd"])
def test_singular_values(kind: str, sizes: tuple[int, int, int], routine: str) -> None:
    b, m, n = sizes
    k, a = min(m, n), matrix(kind, *sizes)
    shapes = f"<T>[{b},{m},{n}], <R>[{b},{k}], <T>[{b},{m},{k}], <T>[{b},{k},{n}], s32[{b}]"
    made = call("a", shapes, routine, "mode = 83 : ui8")
    text = f"  a = <T>[{b},{m},{n}] parameter(0)\n  c = {made}\n{elements('c', 5)}"
    values, u, vt, info = run(kind, text, "o1, o2, o3, o4", a)
    agreement.within(product(u * values[:, None], vt), a.astype(np.complex128), backward(a, a))
    assert not info.any()
    assert (np.diff(values) <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SQUARE)
def test_eigenvectors_of_hermitian_matrices(kind: str, sizes: tuple[int, int, int]) -> None:
    b, n, _ = sizes
    a = matrix(kind, *sizes)
    a = (a + adjoint(a)).astype(a.dtype)
    routine = "heevd" if kind[0] == "c" else "syevd"
    made = call("a", f"<T>[{b},{n},{n}], <R>[{b},{n}], s32[{b}]", routine, "mode = 86 : ui8, uplo = 85 : ui8")
    text = f"  a = <T>[{b},{n},{n}] parameter(0)\n  c = {made}\n{elements('c', 3)}"
    vectors, values, info = run(kind, text, "o0, o1, o2", a)
    agreement.within(
        product(vectors * values[:, None], adjoint(vectors)), a.astype(np.complex128), backward(a, a)
    )
    assert not info.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SQUARE)
def test_eigenvectors(kind: str, sizes: tuple[int, int, int]) -> None:
    """Left and right vectors, in real matrices with pairs of conjugate eigenvalues and without."""
    b, n, _ = sizes
    a = matrix(kind, *sizes)
    values = [f"<T>[{b},{n}]"] * (1 if kind[0] == "c" else 2)
    vector = f"{'c128' if REAL[kind] == 'f64' else 'c64'}[{b},{n},{n}]"
    shapes = ", ".join([*values, vector, vector, f"s32[{b}]"])
    made = call("a", shapes, "geev", "compute_left = 86 : ui8, compute_right = 86 : ui8")
    count = len(values) + 3
    names = ", ".join(f"o{number}" for number in range(count))
    text = f"  a = <T>[{b},{n},{n}] parameter(0)\n  c = {made}\n{elements('c', count)}"
    *found, left, right, info = run(kind, text, names, a)
    w = found[0] if len(found) == 1 else found[0] + 1j * found[1]
    agreement.within(product(a, right), right * w[:, None].astype(np.complex128), backward(a, a))
    agreement.within(
        product(adjoint(left), a), w[..., None].astype(np.complex128) * adjoint(left), backward(a, a)
    )
    assert not info.any()
    lengths = np.linalg.norm(right, axis=1)
    agreement.within(lengths, np.ones((b, n)), 16 * n * np.finfo(a.dtype).eps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", SQUARE)
def test_schur_forms(kind: str, sizes: tuple[int, int, int]) -> None:
    b, n, _ = sizes
    a = matrix(kind, *sizes)
    values = [f"<T>[{b},{n}]"] * (1 if kind[0] == "c" else 2)
    shapes = ", ".join([f"<T>[{b},{n},{n}]"] * 2 + [*values, f"s32[{b}]", f"s32[{b}]"])
    made = call("a", shapes, "gees", "mode = 86 : ui8, sort = 78 : ui8")
    text = f"  a = <T>[{b},{n},{n}] parameter(0)\n  c = {made}\n{elements('c', len(values) + 4)}"
    form, vectors = run(kind, text, "o0, o1", a)
    agreement.within(product(vectors, form, adjoint(vectors)), a.astype(np.complex128), backward(a, a))
    assert not np.tril(form, -2).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes",
    [
        *(*SQUARE, (1, 6, 6), (4, 1, 1), (9, 7, 7), (21, 4, 4), (8, 16, 16)),
        *((1, 20, 20), (2, 32, 32), (3, 33, 33), (1, 41, 41)),
    ],
)
@pytest.mark.parametrize("uplo", "LU")
def test_cholesky(kind: str, sizes: tuple[int, int, int], uplo: str) -> None:
    """The other triangle stays as it was."""
    b, n, _ = sizes
    x = matrix(kind, *sizes)
    a = (x @ adjoint(x) + n * np.eye(n)).astype(x.dtype)
    outside = np.triu_indices(n, 1) if uplo == "L" else np.tril_indices(n, -1)
    given = a.copy()
    given[:, *outside] = 77
    made = call("a", f"<T>[{b},{n},{n}], s32[{b}]", "potrf", f"uplo = {ord(uplo)} : ui8")
    text = f"  a = <T>[{b},{n},{n}] parameter(0)\n  c = {made}\n{elements('c', 2)}"
    packed, info = run(kind, text, "o0, o1", given)
    assert (packed[:, *outside] == 77).all()
    factor = np.tril(packed) if uplo == "L" else adjoint(np.triu(packed))
    agreement.within(product(factor, adjoint(factor)), a.astype(np.complex128), backward(a, factor, factor))
    assert not info.any()


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("pivot", [-1.0, 0.0, np.nan])
def test_cholesky_tells_the_first_pivot_that_is_not_positive(kind: str, uplo: str, pivot: float) -> None:
    n = 37
    places = [0, 3, 15, 16, 36]
    a = np.array([np.eye(n)] * (len(places) + 1), KINDS[kind])
    for number, place in enumerate(places):
        a[number, place, place] = pivot
    made = call("a", f"<T>[{len(a)},{n},{n}], s32[{len(a)}]", "potrf", f"uplo = {ord(uplo)} : ui8")
    text = f"  a = <T>[{len(a)},{n},{n}] parameter(0)\n  c = {made}\n{elements('c', 2)}"
    packed, info = run(kind, text, "o0, o1", a)
    assert info.tolist() == [*(place + 1 for place in places), 0]
    agreement.equal(packed[-1], a[-1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("uplo", "LU")
def test_cholesky_of_many_matrices_that_are_not_positive(kind: str, uplo: str) -> None:
    """Matrices that fail do not change others, and what LAPACK does not compute stays."""
    good = np.array([[4.0, 2, 2], [2, 5, 3], [2, 3, 6]])
    special = [
        good, -good, np.zeros((3, 3)), np.diag([1.0, -2.0, 3.0]), np.diag([1.0, 1.0, 0.0]), good,
        np.full((3, 3), np.nan), np.array([[1.0, 2, 3], [2, 1, 4], [3, 4, 1]]),
    ]  # fmt: skip
    a = np.array(special).astype(KINDS[kind])
    b = len(special)
    made = call("a", f"<T>[{b},3,3], s32[{b}]", "potrf", f"uplo = {ord(uplo)} : ui8")
    text = f"  a = <T>[{b},3,3] parameter(0)\n  c = {made}\n{elements('c', 2)}"
    packed, info = run(kind, text, "o0, o1", a)
    assert info.tolist() == [0, 1, 1, 2, 3, 0, 1, 2]
    agreement.equal(packed[5], packed[0])
    factor = np.tril(packed[0]) if uplo == "L" else adjoint(np.triu(packed[0]))
    bound = backward(a[0], factor, factor)
    agreement.within(product(factor, adjoint(factor)), a[0].astype(np.complex128), bound)
    stays = [1, 2, 3, 4]
    agreement.equal(packed[stays], a[stays])
    corner = packed[7] if uplo == "L" else packed[7].T
    assert (corner[0, 0], corner[1, 0], corner[1, 1]) == (1, 2, -3) and corner[2, 2] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "columns"), [(4, 3), (5, 3), (8, 1), (9, 1), (40, 3)])
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("op", "NTC")
def test_triangular_solve(kind: str, n: int, columns: int, side: str, op: str) -> None:
    """Small systems by the kernel of triangular-solve, others by LAPACK."""
    a = np.tril(matrix(kind, 2, n, n)) / n + 2 * np.eye(n, dtype=KINDS[kind])
    a = a.astype(KINDS[kind])
    right = matrix(kind, 2, n, columns) if side == "L" else matrix(kind, 2, columns, n)
    shape = "<T>[2," + ",".join(map(str, right.shape[1:])) + "]"
    letters = {"diag": "N", "side": side, "trans_x": op, "uplo": "L"}
    attributes = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in letters.items())
    made = call("a, b", shape, "trsm", attributes)[1:].replace(")", "", 1)
    text = f"  a = <T>[2,{n},{n}] parameter(0)\n  b = {shape} parameter(1)\n  x = {made}"
    (x,) = run(kind, text, "x", a, right)
    applied = {"N": a, "T": a.swapaxes(1, 2), "C": adjoint(a)}[op]
    found = product(applied, x) if side == "L" else product(x, applied)
    limit = 16 * n**2 * np.finfo(a.dtype).eps * np.linalg.norm(a) * np.linalg.norm(x)
    agreement.within(found, right.astype(np.complex128), limit)


def test_the_number_of_threads_is_restored() -> None:
    """A matrix so large that the library would share its work computes in the calling thread."""
    before = set_thread_count(2)
    try:
        if set_thread_count(2) != 2:
            pytest.skip("scipy has another library than OpenBLAS")
        test_lu("f64", (1, 41, 35))
        assert set_thread_count(2) == 2
    finally:
        set_thread_count(before)


@pytest.mark.parametrize(("n", "times"), [(8, 0), (1000, 0), (1001, 1)])
def test_calls_of_large_matrices_hold_the_library_to_one_thread(n: int, times: int) -> None:
    made = call("x", f"f32[{n},{n}], s32[{n}], s32[]", "getrf").replace("<P>", "s")
    text = print_module(compiled(f"x = f32[{n},{n}] parameter(0)\n  ROOT r = {made}").program.module)
    assert text.count("call void @hloom_library_enter") == times
    assert text.count("call void @hloom_library_leave") == times


FORK = """
import ctypes, os
from hloom.cpu.runtime.support import support

symbols = support().symbols
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
enter, leave = call(symbols["hloom_library_enter"]), call(symbols["hloom_library_leave"])
numbers = []
get = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 2)
set_ = ctypes.CFUNCTYPE(None, ctypes.c_int)(numbers.append)
enter(get, set_)
child = os.fork()
if not child:
    enter(get, set_)
    os._exit(len(numbers))
_, status = os.waitpid(child, 0)
leave(get, set_)
print(os.waitstatus_to_exitcode(status), numbers)
"""


def test_a_forked_child_sets_the_number_of_threads_anew() -> None:
    """The thread of the parent that was calling the library is not in the child, and never leaves."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "2 [1, 2]"


@pytest.mark.parametrize("arrays", ["a-b", "tau"])
def test_declarations_that_name_no_array_are_refused(arrays: str) -> None:
    declare: Callable[..., None] = vars(routines)["_declare"]
    with pytest.raises(HloError) as caught:
        declare(f"unknown: a[M,N] -> {arrays}\n  arguments M N a\n")
    assert caught.value.rule == "lapack.declaration"


@pytest.mark.parametrize(
    ("n", "columns", "own"),
    [(1, 1, True), (4, 9, True), (300, 20, True), (2048, 1, True), (2049, 1, False), (0, 2, False)],
)
def test_triangular_systems_are_solved_without_the_library(n: int, columns: int, own: bool) -> None:
    """Only matrices of more than 16 MiB are the library's."""
    made = call(
        "a, b",
        f"f32[{n},{columns}]",
        "trsm",
        "diag = 85 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 85 : ui8",
    )
    text = (
        f"  a = f32[{n},{n}] parameter(0)\n  b = f32[{n},{columns}] parameter(1)\n"
        f"  ROOT x = {made[1:].replace(')', '', 1)}".replace("<P>", "s")
    )
    module = compiled(text).optimized
    assert any(i.opcode == "triangular-solve" for i in module.instructions()) == own


def test_an_invalid_call_that_does_not_run_is_no_error() -> None:
    """JAX compiles such programs only to look at them."""
    text = """HloModule m
branch {
  a = f32[2] parameter(0)
  ROOT r = f32[2] custom-call(a), custom_call_target="lapack_sgetrf_ffi", api_version=API_VERSION_TYPED_FFI
}
other {
  ROOT a = f32[2] parameter(0)
}
ENTRY e {
  p = pred[] parameter(0)
  a = f32[2] parameter(1)
  ROOT r = f32[2] conditional(p, a, a), true_computation=branch, false_computation=other
}"""
    run, a = compiled(text), np.array([1, 2], np.float32)
    agreement.same(run(np.bool_(False), a), a)
    with pytest.raises(HloError) as caught:
        run(np.bool_(True), a)
    assert caught.value.rule == "custom-call.operands"
