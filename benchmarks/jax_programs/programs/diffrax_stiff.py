"""A stiff equation (Robertson's) by an implicit solver with adaptive steps (diffrax)."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp


def rates(t: Any, y: Any, k: Any) -> Any:
    """Return the derivative of the three concentrations."""
    first, second, third = k[0] * y[0], k[1] * y[1] * y[1], k[2] * y[1] * y[2]
    return jnp.stack([third - first, first - second - third, second])


def build() -> Any:
    """Return the jitted solver and its rate constants."""

    @jax.jit
    def solve(k: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(rates), diffrax.Kvaerno5(), 0.0, 100.0, 2e-4, jnp.array([1.0, 0.0, 0.0]), args=k,
            saveat=diffrax.SaveAt(ts=jnp.array([1e-2, 1.0, 10.0, 100.0])),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).ys  # fmt: skip

    return solve, jnp.array([0.04, 3e4, 1e2])


def step(state: Any) -> Any:
    """Solve; return the state and the concentrations."""
    return state, state[0](state[1])


TOLERANCE = 1e-3
"""The solver's own: its steps depend on comparisons of rounded errors."""
