"""Loops, branches, scans, and derivatives through them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_platform.programs.program import computed, numbers, program

I = np.arange(6, dtype=np.int32)  # noqa: E741


@program
def branches() -> Any:
    f = jax.jit(lambda p, x: lax.cond(p, lambda x: (x * 2, x[0]), lambda x: (x - 1, x[1]), x))
    return f(True, I), f(False, I)


@program
def switch_clamps_its_index() -> Any:
    f = jax.jit(lambda i, x: lax.switch(i, [lambda x: x, lambda x: -x, lambda x: x * x], x))
    return [f(i, I) for i in (-3, 0, 1, 2, 7)]


@program
def vmapped_branches() -> Any:
    f = jax.vmap(lambda i, x: lax.switch(i, [lambda x: x, lambda x: x * 3], x))
    g = jax.vmap(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * x, x), (0, None))
    return jax.jit(f)(I % 2, I), jax.jit(g)(I > 2, np.int32(5))


@program
def gradient_through_branches() -> Any:
    def f(x: Any) -> Any:
        return lax.cond(
            x > 1, lambda x: lax.switch(2, [jnp.negative, jnp.abs, jnp.square], x), jnp.negative, x
        )

    return [jax.jit(jax.grad(f))(x) for x in (0.5, 3.0)]


@program
def loop_until() -> Any:
    def collatz(n: Any) -> Any:
        return lax.while_loop(
            lambda s: s[0] != 1, lambda s: (jnp.where(s[0] % 2, 3 * s[0] + 1, s[0] // 2), s[1] + 1), (n, 0)
        )

    return jax.jit(collatz)(27), jax.jit(jax.vmap(collatz))(I + 1)


@program
def loop_that_never_runs() -> Any:
    f = jax.jit(lambda x: lax.while_loop(lambda s: s.sum() > 100, lambda s: s * 2, x))
    g = jax.jit(lambda x, n: lax.fori_loop(0, n, lambda i, s: s + i, x))
    return f(I), g(I, 0), g(I, 10)


@program
def loops_within_loops() -> Any:
    def f(x: Any) -> Any:
        return lax.fori_loop(
            0, 4, lambda i, s: lax.fori_loop(0, i, lambda j, t: t.at[j].add(i * j), s) * 2, x
        )

    return jax.jit(f)(I)


@program
def scan_of_trees() -> Any:
    def step(carry: Any, x: Any) -> Any:
        total, largest = carry
        return (total + x["a"], jnp.maximum(largest, x["b"])), (total, x["b"][::-1])

    xs = {"a": I, "b": np.arange(18, dtype=np.int32).reshape(6, 3) % 7}
    start = (np.int32(1), np.zeros(3, np.int32))
    forward = jax.jit(lambda: lax.scan(step, start, xs))()
    backward = jax.jit(lambda: lax.scan(step, start, xs, reverse=True, unroll=4))()
    return forward, backward


@program
def scan_without_inputs() -> Any:
    def step(state: Any, _: Any) -> Any:
        return state * np.uint32(1664525) + np.uint32(1013904223), state >> 24

    return jax.jit(lambda s: lax.scan(step, s, None, length=50))(np.uint32(1))


@program
def gradient_through_a_scan() -> Any:
    def loss(w: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(w @ h + x), h.sum()), jnp.zeros(4), xs)[0].sum()

    return computed(jax.grad(loss), numbers(4, 4) / 4, numbers(7, 4, seed=1))


@program
def forward_derivative_of_a_loop() -> Any:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * s[1] - 0.5), (0, x))[1]

    return computed(
        lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)), np.linspace(-0.9, 0.9, 6, dtype=np.float32)
    )


@program
def vmapped_loops() -> Any:
    f = jax.vmap(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (0, 1)))
    g = jax.vmap(lambda c, x: lax.scan(lambda s, y: (s + y, s * y), c, x), (0, 1))
    return jax.jit(f)(I), jax.jit(g)(I[:3], np.arange(12, dtype=np.int32).reshape(4, 3))


@program
def map_in_batches() -> Any:
    x = np.arange(35, dtype=np.int32).reshape(7, 5)
    return jax.jit(lambda x: lax.map(lambda r: r.sum() * r, x, batch_size=3))(x)


@program
def associative_scans() -> Any:
    def compose(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    pairs = (I % 3, I)
    f = jax.jit(
        lambda p: (lax.associative_scan(compose, p), lax.associative_scan(jnp.maximum, p[0], reverse=True))
    )
    return f(pairs)


@program
def roots_with_implicit_derivatives() -> Any:
    def root(a: Any) -> Any:
        def solve(f: Any, x: Any) -> Any:
            return lax.fori_loop(0, 6, lambda _, x: x - f(x) / (2 * x), x)

        return lax.custom_root(lambda x: x * x - a, 1.0, solve, lambda g, y: y / g(1.0))

    return computed(lambda a: (root(a), jax.grad(root)(a)), np.float32(2.0))


@program
def linear_solve_with_implicit_derivatives() -> Any:
    matrix = numbers(4, 4) + 8 * np.eye(4, dtype=np.float32)
    inverse = np.linalg.inv(matrix.astype(np.float64)).astype(np.float32)

    def solve(b: Any) -> Any:
        return lax.custom_linear_solve(
            lambda x: matrix @ x, b, lambda _, y: inverse @ y, lambda _, y: inverse.T @ y
        )

    return computed(lambda b: (solve(b), jax.grad(lambda b: solve(b).sum())(b)), numbers(4, seed=1))


@program
def state_of_many_types_in_a_loop() -> Any:
    def body(s: Any) -> Any:
        return s[0] + 1, ~s[1], s[2].astype(jnp.int8) * 2, [s[3][0] + 1j, s[3][1][::-1]]

    def f(x: Any) -> Any:
        start = (0, jnp.array([True, False]), jnp.arange(3, dtype=jnp.int8), [jnp.complex64(2), x])
        return lax.while_loop(lambda s: s[0] < 5, body, start)

    return jax.jit(f)(I)


@program
def loop_that_allocates_much() -> Any:
    def body(i: Any, s: Any) -> Any:
        return jnp.sort(s)[::-1] ^ (jnp.cumsum(s) + i)

    return jax.jit(lambda x: lax.fori_loop(0, 50, body, x))(np.arange(1000, dtype=np.int32))[::100]
