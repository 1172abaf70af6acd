"""Systems of differential equations, filters and dynamic programs: loops of small steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, normal, program, uniform


def lorenz(x: Any, y: Any, z: Any) -> Any:
    """Return the derivatives of the Lorenz system."""
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


def runge_kutta(derivative: Any, y: Any, h: float = 0.01) -> Any:
    """Return the state after a step of length h."""
    a = derivative(y)
    b = derivative(y + h / 2 * a)
    c = derivative(y + h / 2 * b)
    return y + h / 6 * (a + 2 * b + 2 * c + derivative(y + h * c))


@program(normal(1000, 3))
def lorenz_under_vmap(y: Any) -> Any:
    def solved(y: Any) -> Any:
        return lax.fori_loop(0, 200, lambda _, y: runge_kutta(lambda y: jnp.stack(lorenz(*y)), y), y)

    return jax.vmap(solved)(y)


@program(normal(3, 1000))
def lorenz_by_rows(y: Any) -> Any:
    return lax.fori_loop(0, 200, lambda _, y: runge_kutta(lambda y: jnp.stack(lorenz(*y)), y), y)


@program(normal(1000, 3))
def lorenz_by_columns(y: Any) -> Any:
    def derivative(y: Any) -> Any:
        return jnp.stack(lorenz(y[:, 0], y[:, 1], y[:, 2]), -1)

    return lax.fori_loop(0, 200, lambda _, y: runge_kutta(derivative, y), y)


@program(normal(3))
def one_lorenz_trajectory(y: Any) -> Any:
    def step(y: Any, _: Any) -> Any:
        y = runge_kutta(lambda y: jnp.stack(lorenz(*y)), y)
        return y, y

    return lax.scan(step, y, None, 1000)[1]


@program(normal(500, 4))
def kalman_filter(observed: Any) -> Any:
    identity = jnp.eye(4)

    def step(state: Any, z: Any) -> Any:
        x, p = state
        x, p = 0.9 * x, 0.81 * p + 0.1 * identity
        gain = p @ jnp.linalg.inv(p + identity)
        return (x + gain @ (z - x), p - gain @ p), x

    return lax.scan(step, (jnp.zeros(4), identity), observed)[1]


@program(normal(256), normal(256))
def time_warping(a: Any, b: Any) -> Any:
    costs = (a[:, None] - b[None]) ** 2

    def row(above: Any, costs: Any) -> Any:
        def cell(left: Any, x: Any) -> Any:
            cost, up, diagonal = x
            total = cost + jnp.minimum(jnp.minimum(up, diagonal), left)
            return total, total

        diagonals = jnp.concatenate([jnp.full(1, jnp.inf), above[:-1]])
        return lax.scan(cell, jnp.inf, (costs, above, diagonals))[1], None

    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0][-1]


@program(uniform(128, 128))
def shortest_paths(d: Any) -> Any:
    return lax.fori_loop(0, 128, lambda k, d: jnp.minimum(d, d[:, k][:, None] + d[k][None]), d)


@program(uniform(200, 4))
def overlapping_boxes(boxes: Any) -> Any:
    def step(i: Any, chosen: Any) -> Any:
        overlap = jnp.minimum(boxes[i, 0], boxes[:, 0]) * jnp.minimum(boxes[i, 1], boxes[:, 1])
        covered = overlap / (jnp.maximum(boxes[i, 0], boxes[:, 0]) + 0.1) > 0.8
        return chosen & ~(covered & (jnp.arange(200) > i) & chosen[i])

    return lax.fori_loop(0, 200, step, jnp.ones(200, bool))


@program(integers(4, 20_000))
def automaton(letters: Any) -> Any:
    def step(state: Any, letter: Any) -> Any:
        return jnp.where(letter == state % 4, state + 1, state * 2 % 97), state

    return lax.scan(step, 0, letters)[1]
