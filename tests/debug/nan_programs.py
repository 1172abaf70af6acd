"""Functions of JAX with a NaN, and their arguments; the comment NaN marks its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.arrays import f32, s32

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
RAMP = np.linspace(-1, 1, 7, dtype=np.float32)


def program(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function with its arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = (function, arguments)
        return function

    return register


@program(RAMP)
def logarithm(x: Any) -> Any:
    y = jnp.tanh(x)
    z = jnp.log(y)  # NaN
    return (z * 2).sum()


@program(RAMP)
def square_root(x: Any) -> Any:
    y = x - 0.5
    return jnp.sqrt(y) + y  # NaN


@program(np.zeros(3, np.float32))
def zero_by_zero(x: Any) -> Any:
    norm = jnp.sqrt((x * x).sum())
    unit = x / norm  # NaN
    return unit @ unit


@program(f32([1e30, 1e25]))
def difference_of_infinities(x: Any) -> Any:
    y = x * x
    z = y - y  # NaN
    return z + 1


@program(f32([90, 100]))
def naive_softmax(x: Any) -> Any:
    e = jnp.exp(x)
    s = e.sum()
    return e / s  # NaN


@program(RAMP)
def arcsine(x: Any) -> Any:
    y = x * 1.5
    z = jnp.arcsin(y)  # NaN
    return jnp.cos(z)


@program(RAMP)
def power_of_negative(x: Any) -> Any:
    exponent = jnp.abs(x) + 0.3
    return jnp.power(x, exponent)  # NaN


@program(np.float32(3))
def loop(x: Any) -> Any:
    def body(i: Any, c: Any) -> Any:
        d = c - 0.5 * i
        return jnp.sqrt(d)  # NaN

    return jax.lax.fori_loop(0, 9, body, x)


@program(RAMP)
def scan(x: Any) -> Any:
    def body(c: Any, v: Any) -> Any:
        c = c + v
        r = jnp.log(c + 0.5)  # NaN
        return c, r

    return jax.lax.scan(body, jnp.float32(0), x)[1]


@program(np.float32(-2))
def branch(x: Any) -> Any:
    def negative(v: Any) -> Any:
        w = v * 3
        return jnp.sqrt(w)  # NaN

    return jax.lax.cond(x > 0, jnp.sin, negative, x)


@program(f32([0, 1]))
def gradient_of_where(x: Any) -> Any:
    def safe(v: Any) -> Any:
        root = jnp.sqrt(v)  # NaN
        return jnp.where(v > 0, root, 0.0).sum()

    return jax.grad(safe)(x)


@program(np.zeros((2, 3), np.float32))
def gradient_of_norm(x: Any) -> Any:
    def length(v: Any) -> Any:
        squares = (v * v).sum()  # NaN
        return jnp.sqrt(squares)

    return jax.vmap(jax.grad(length))(x)


@program(f32([[1, 2], [2, 4]]))
def singular_matrix(x: Any) -> Any:
    determinant = x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]
    scaled = (x - x) / determinant  # NaN
    return scaled @ x


@program(f32([[1, 2], [2, 1]]))
def cholesky(x: Any) -> Any:
    shifted = x + 0.0
    factor = jnp.linalg.cholesky(shifted, symmetrize_input=False)  # NaN
    return factor.sum()


@program(np.arange(5, dtype=np.float32), s32([1, 9]))
def out_of_bounds(x: Any, i: Any) -> Any:
    y = x * 2
    z = y.at[i].get(mode="fill")  # NaN
    return z + 1


@program(f32([-np.inf, -np.inf]))
def softmax_of_masked_row(x: Any) -> Any:
    top = x.max()
    shifted = x - top  # NaN
    return jnp.exp(shifted)


@program(np.ones((4, 4), np.float32), np.full((4, 4), 3e38, np.float32))
def product_that_overflows(x: Any, y: Any) -> Any:
    a = x @ y
    b = a - a  # NaN
    return b.sum()


@program(f32([1, 2, 3]))
def variance_by_cancellation(x: Any) -> Any:
    v = (x * x).mean() - x.mean() ** 2 - 1
    s = jnp.sqrt(v)  # NaN
    return (x - x.mean()) / s


@program(RAMP)
def called_function(x: Any) -> Any:
    @jax.jit
    def inner(v: Any) -> Any:
        w = v + v
        return jnp.arccosh(w)  # NaN

    return inner(x) * 2


@program(f32([np.nan, 1]), f32([1, 1]))
def zero_times_infinity(x: Any, y: Any) -> Any:
    z = jnp.where(jnp.isnan(x), 0.0, y)
    t = (1 / z) * z  # NaN
    return t
