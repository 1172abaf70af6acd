"""Factorizations, eigenvalues, solves, and functions of matrices.

Factors are compared by what they have in common whatever their signs: products, values, orthogonality.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax

from tests.jax_platform.programs.program import Close, normwise, numbers, program

N = 5
GENERAL = numbers(N, N) + 4 * np.eye(N, dtype=np.float32)
SYMMETRIC = (GENERAL @ GENERAL.T).astype(np.float32)
RECTANGLE = numbers(7, N, seed=3) + 2 * np.eye(7, N, dtype=np.float32)
HERMITIAN = (SYMMETRIC + 1j * (GENERAL - GENERAL.T)).astype(np.complex64)
B = numbers(N, 3, seed=4)
TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def like(value: Any, matrix: Any, power: int = 0, size: float | None = None) -> Close:
    """Return a result of the size of a matrix's norm, with an error by a power of its condition number."""
    wide = np.asarray(matrix, np.complex128)
    norm = float(np.linalg.norm(wide, 2))
    return normwise(
        value, norm if size is None else size, max(wide.shape), float(np.linalg.cond(wide)) ** power
    )


def product(*factors: Any) -> Any:
    """Return the product of matrices in twice the precision, in the first one's type."""
    wide = [np.asarray(f).astype(np.complex128) for f in factors]
    found = np.linalg.multi_dot(wide) if len(wide) > 2 else wide[0] @ wide[-1]
    kind = np.asarray(factors[0]).dtype
    return (found if kind.kind == "c" else found.real).astype(kind)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))


def in_all_types(matrix: Any) -> list[Any]:
    """Return a matrix in the four types of LAPACK, complex ones with an imaginary part."""
    other = matrix + 0.25j * (matrix - matrix.T)
    return [(other if np.dtype(kind).kind == "c" else matrix).astype(kind) for kind in TYPES]


@program
def cholesky() -> Any:
    with jax.enable_x64(True):
        return [like(jax.jit(jnp.linalg.cholesky)(a), a, 1, 3.0) for a in in_all_types(SYMMETRIC)]


@program
def cholesky_of_an_indefinite_matrix_is_nan() -> Any:
    return jax.jit(jnp.linalg.cholesky)(-SYMMETRIC), jax.jit(jax.vmap(jnp.linalg.cholesky))(
        -np.stack([SYMMETRIC] * 2)
    )


@program
def factors_of_lu() -> Any:
    with jax.enable_x64(True):
        found = []
        for a in in_all_types(GENERAL):
            lu, pivots, permutation = jax.jit(lax.linalg.lu)(a)
            found += [like(lu, a, 1, 3.0), pivots, permutation]
        return found


@program
def factors_of_qr() -> Any:
    with jax.enable_x64(True):
        found = []
        for a in [*in_all_types(GENERAL), RECTANGLE, RECTANGLE.T]:
            q, r = jax.jit(jnp.linalg.qr)(a)
            found += [like(product(q, r), a), like(product(adjoint(q), q), a, 0, 1.0), like(np.abs(r), a, 1)]
        return found


@program
def complete_and_pivoted_qr() -> Any:
    q, r = jax.jit(lambda a: jnp.linalg.qr(a, mode="complete"))(RECTANGLE)
    pq, pr, pivots = jax.jit(lambda a: jsp.linalg.qr(a, pivoting=True))(RECTANGLE)
    return like(product(q, r), RECTANGLE), list(q.shape), like(product(pq, pr), RECTANGLE), pivots


@program
def householder_products() -> Any:
    a, taus = jax.jit(lambda a: jnp.linalg.qr(a, mode="raw"))(RECTANGLE)
    packed = np.asarray(a).T
    q = jax.jit(lax.linalg.householder_product)(packed, taus)
    return like(np.abs(np.triu(packed)[:N]), RECTANGLE, 1), like(product(adjoint(q), q), RECTANGLE, 0, 1.0)


@program
def singular_values() -> Any:
    with jax.enable_x64(True):
        found = []
        for a in [*in_all_types(GENERAL), RECTANGLE]:
            u, s, vh = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False))(a)
            found += [like(s, a), like(product(u * np.asarray(s), vh), a)]
        return found, like(jax.jit(lambda a: jnp.linalg.svd(a, compute_uv=False))(RECTANGLE), RECTANGLE)


@program
def symmetric_eigenvalues() -> Any:
    with jax.enable_x64(True):
        found = []
        for a in [SYMMETRIC, SYMMETRIC.astype(np.float64), HERMITIAN, HERMITIAN.astype(np.complex128)]:
            w, v = jax.jit(jnp.linalg.eigh)(a)
            found += [like(w, a), like(product(v * np.asarray(w), adjoint(v)), a)]
        return found, like(jax.jit(lambda a: jnp.linalg.eigvalsh(a, UPLO="U"))(SYMMETRIC), SYMMETRIC)


@program
def general_eigenvalues() -> Any:
    w, v = jax.jit(jnp.linalg.eig)(SYMMETRIC)  # real eigenvalues: their order is well defined
    order = np.argsort(np.real(w))
    back = product(v * np.asarray(w), np.linalg.inv(np.asarray(v, np.complex128)))
    return like(np.real(w)[order], SYMMETRIC), like(back, SYMMETRIC)


@program
def schur_form() -> Any:
    t, z = jax.jit(jsp.linalg.schur)(GENERAL)
    return like(product(z, t, adjoint(z)), GENERAL), like(product(adjoint(z), z), GENERAL, 0, 1.0)


@program
def hessenberg_form() -> Any:
    h, q = jax.jit(lambda a: jsp.linalg.hessenberg(a, calc_q=True))(GENERAL)
    return like(product(q, h, adjoint(q)), GENERAL), like(np.tril(h, -2), GENERAL)


@program
def tridiagonal_form() -> Any:
    _, d, e, _ = jax.jit(lax.linalg.tridiagonal)(SYMMETRIC)
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(np.conj(e), -1)
    return like(np.linalg.eigvalsh(matrix.astype(np.float64)).astype(np.float32), SYMMETRIC)


@program
def tridiagonal_systems() -> Any:
    d, side = 4 + np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    low, high = side * (np.arange(N) > 0), side * (np.arange(N) < N - 1)
    matrix = np.diag(d) + np.diag(low[1:], -1) + np.diag(high[:-1], 1)
    x = jax.jit(lax.linalg.tridiagonal_solve)(low.astype(np.float32), d, high.astype(np.float32), B)
    return like(x, matrix, 1, float(np.abs(np.asarray(x)).max()))


@program
def triangular_systems() -> Any:
    lower = (np.tril(numbers(N, N, seed=8)) + 4 * np.eye(N)).astype(np.float32)
    found = []
    for options in range(16):
        left, low, transposed, unit = (bool(options >> bit & 1) for bit in range(4))
        a = lower if low else lower.T
        solve = jax.jit(
            lambda a, b, o=(left, low, transposed, unit): lax.linalg.triangular_solve(
                a, b, left_side=o[0], lower=o[1], transpose_a=o[2], unit_diagonal=o[3]
            )
        )
        x = solve(a, B if left else B.T)
        solved = a - np.diag(np.diag(a)) + np.eye(N) if unit else a
        found.append(like(x, solved, 1, float(np.abs(np.asarray(x)).max())))
    return found


@program
def linear_systems() -> Any:
    with jax.enable_x64(True):
        found = []
        for a in in_all_types(GENERAL):
            x = jax.jit(jnp.linalg.solve)(a, B.astype(a.dtype))
            found += [
                like(x, a, 1, float(np.abs(np.asarray(x)).max())),
                like(jax.jit(jnp.linalg.inv)(a), a, 1, 1.0),
            ]
        return found


@program
def least_squares() -> Any:
    x = jax.jit(lambda a, b: jnp.linalg.lstsq(a, b)[0])(RECTANGLE, numbers(7, 2, seed=6))
    return like(x, RECTANGLE, 2, 4.0), like(jax.jit(jnp.linalg.pinv)(RECTANGLE), RECTANGLE, 2, 1.0)


@program
def determinants() -> Any:
    determinant = float(np.linalg.det(GENERAL.astype(np.float64)))
    sign, logarithm = jax.jit(jnp.linalg.slogdet)(GENERAL)
    return (
        like(jax.jit(jnp.linalg.det)(GENERAL), GENERAL, 1, abs(determinant)),
        sign,
        like(logarithm, GENERAL, 1, 8.0),
    )


@program
def norms_and_powers() -> Any:
    size = float(np.linalg.norm(GENERAL, 2))
    cubed = jax.jit(lambda a: jnp.linalg.matrix_power(a, 3))(GENERAL)
    norms = jax.jit(lambda a: [jnp.linalg.norm(a, order) for order in (None, 1, 2, np.inf, "nuc")])(GENERAL)
    return (
        like(cubed, GENERAL, 0, size**3),
        [like(n, GENERAL, 0, 5 * size) for n in norms],
        jnp.linalg.matrix_rank(GENERAL),
    )


@program
def functions_of_matrices() -> Any:
    exponential = jax.jit(jsp.linalg.expm)(GENERAL / 8)
    root = jsp.linalg.sqrtm(SYMMETRIC)
    return like(exponential, GENERAL, 0, 4.0), like(product(root, root).real, SYMMETRIC, 1)


@program
def batches_of_matrices() -> Any:
    batch = np.stack([GENERAL, GENERAL.T, SYMMETRIC])
    x = jax.jit(jnp.linalg.solve)(batch, np.stack([B] * 3))
    values = jax.jit(jax.vmap(jnp.linalg.eigvalsh))(np.stack([SYMMETRIC, SYMMETRIC * 2]))
    return like(x, SYMMETRIC, 1, float(np.abs(np.asarray(x)).max())), like(values, SYMMETRIC * 2)


@program
def derivatives_of_factorizations() -> Any:
    logarithm = jax.jit(jax.grad(lambda a: jnp.linalg.slogdet(a)[1]))(GENERAL)
    trace = jax.jit(jax.grad(lambda a: jnp.linalg.eigh(a)[0].sum()))(SYMMETRIC)
    factor = jax.jit(jax.grad(lambda a: jnp.linalg.cholesky(a).sum()))(SYMMETRIC)
    return like(logarithm, GENERAL, 1, 1.0), like(trace, SYMMETRIC, 1, 1.0), like(factor, SYMMETRIC, 1, 1.0)


@program
def iterative_solvers() -> Any:
    def solve(b: Any) -> Any:
        return jsp.sparse.linalg.cg(lambda x: SYMMETRIC @ x, b, maxiter=40, tol=1e-6)[0]

    x = jax.jit(solve)(B[:, 0])
    # The residual is at most tol of the right side, so the error at most that by the condition number.
    return like(x, SYMMETRIC, 1, float(np.linalg.norm(np.asarray(x))) + 1.0)


@program
def empty_and_single_matrices() -> Any:
    empty = np.zeros((0, 0), np.float32)
    return (
        jax.jit(jnp.linalg.det)(empty),
        jax.jit(jnp.linalg.inv)(empty),
        jax.jit(jnp.linalg.eigvalsh)(np.array([[4.0]], np.float32)),
    )


@program
def kalman_filter() -> Any:
    """A loop over small matrices, whose inverse is solved for from the last row to the first."""
    observed, transition = numbers(30, 4, seed=9), 0.9 * np.eye(4, dtype=np.float32)

    def step(state: Any, z: Any) -> Any:
        x, p = transition @ state[0], transition @ state[1] @ transition.T + 0.1 * jnp.eye(4)
        gain = p @ jnp.linalg.inv(p + jnp.eye(4))
        return (x + gain @ (z - x), p - gain @ p), x

    start = jnp.zeros(4), jnp.eye(4)
    (_, p), estimates = jax.jit(lambda z: lax.scan(step, start, z))(observed)
    # each step halves the errors of those before it
    return like(estimates, transition, 1, 2 * float(np.linalg.norm(observed))), like(p, transition, 1, 2.0)
