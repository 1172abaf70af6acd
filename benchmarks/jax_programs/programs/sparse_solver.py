"""Conjugate gradients with a sparse matrix (jax.experimental.sparse)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental import sparse

SIDE = 48


def build() -> Any:
    """Return the jitted solver, the matrix and the right side."""
    line = scipy.sparse.diags([-1.0, 2.1, -1.0], [-1, 0, 1], (SIDE, SIDE))
    matrix = scipy.sparse.kron(line, scipy.sparse.eye(SIDE)) + scipy.sparse.kron(scipy.sparse.eye(SIDE), line)

    @jax.jit
    def solve(matrix: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda x: matrix @ x, b, maxiter=40, tol=0.0)[0]

    b = np.random.RandomState(0).standard_normal(SIDE * SIDE).astype(np.float32)
    return solve, sparse.BCOO.from_scipy_sparse(matrix.astype(np.float32)), jnp.asarray(b)


def step(state: Any) -> Any:
    """Iterate 40 times; return the state and the solution."""
    return state, state[0](state[1], state[2])
