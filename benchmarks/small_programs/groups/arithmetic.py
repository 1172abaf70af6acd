"""Elementwise arithmetic and elementary functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, normal, program, uniform


@program(normal(1_000_000))
def gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


@program(normal(1_000_000))
def gelu_by_tanh(x: Any) -> Any:
    return jax.nn.gelu(x)


@program(normal(1_000_000))
def silu(x: Any) -> Any:
    return jax.nn.silu(x)


@program(normal(1_000_000))
def softplus(x: Any) -> Any:
    return jax.nn.softplus(x)


@program(normal(1_000_000), normal(1_000_000))
def tanh_in_bf16(x: Any, y: Any) -> Any:
    x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    return jnp.tanh(x * y) + x


@program(normal(300_000, dtype="float64"))
def functions_in_f64(x: Any) -> Any:
    return jnp.sin(x) * jnp.exp(-x * x) + jnp.log1p(jnp.abs(x))


@program(uniform(500_000), uniform(500_000))
def powers(x: Any, y: Any) -> Any:
    return x**y


@program(normal(300_000), normal(300_000))
def complex_exponential(real: Any, imaginary: Any) -> Any:
    z = lax.complex(real, imaginary)
    return jnp.abs(jnp.exp(0.1j * z) * z)


@program(integers(1 << 30, 1_000_000))
def integer_division(x: Any) -> Any:
    return (x % 1000) // 7 + (x >> 3) ^ (x * 31)


@program(integers(1 << 30, 1_000_000))
def population_count(x: Any) -> Any:
    return lax.population_count(x).sum()


@program(*[normal(300, 300)] * 3, uniform(300, 300))
def adam(weights: Any, gradient: Any, mean: Any, variance: Any) -> Any:
    mean = 0.9 * mean + 0.1 * gradient
    variance = 0.999 * variance + 0.001 * gradient * gradient
    return weights - 1e-3 * mean / (jnp.sqrt(variance) + 1e-8), mean, variance


@program(uniform(100_000))
def square_roots_by_newton(x: Any) -> Any:
    def root(a: Any) -> Any:
        return lax.while_loop(lambda r: jnp.abs(r * r - a) > 1e-5, lambda r: 0.5 * (r + a / r), a)

    return jax.vmap(root)(x + 1)
