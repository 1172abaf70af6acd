"""Random keys and bits of every generator, and distributions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from hloom.error_bounds.floating import eps
from tests.jax_platform.programs.program import close, program

GENERATORS = ("threefry2x32", "rbg", "unsafe_rbg")


def about(value: Any, count: float = 32) -> Any:
    """Return results of chains of elementary functions: some units of their sizes, or of 1."""
    found = np.asarray(value)
    return close(found, count * eps(found.dtype) * np.maximum(np.abs(found), 1))


@program
def keys_of_threefry() -> Any:
    key = random.key(42)
    folded = jax.jit(lambda k: (random.split(k, 5), random.fold_in(k, 7), random.split(k, (2, 3))))(key)
    return folded, random.PRNGKey(3), random.key_data(random.wrap_key_data(jnp.array([1, 2], np.uint32)))


@program
def keys_of_rbg() -> Any:
    def f(key: Any) -> Any:
        return random.split(key, 3), random.fold_in(key, 9), random.bits(random.split(key)[1], (7,))

    return [jax.jit(f)(random.key(5, impl=name)) for name in GENERATORS[1:]]


@program
def bits_of_all_sizes() -> Any:
    return {
        name: jax.jit(
            lambda k: [random.bits(k, (3, 5), kind) for kind in ("uint8", "uint16", "uint32")]
        )(random.key(11, impl=name))
        for name in GENERATORS
    }  # fmt: skip


@program
def uniform_numbers() -> Any:
    def f(key: Any) -> Any:
        return (
            random.uniform(key, (9,)),
            random.uniform(key, (4,), jnp.bfloat16),
            random.bernoulli(key, 0.3, (20,)),
            random.uniform(key, (4,), jnp.float16),
            random.randint(key, (9,), -50, 1000),
            random.randint(key, (5,), 0, 255, jnp.uint8),
            random.rademacher(key, (6,)),
        )

    others = {
        name: jax.jit(lambda k: random.uniform(k, (5,)))(random.key(2, impl=name)) for name in GENERATORS
    }
    return jax.jit(f)(random.key(2)), others


@program
def permutations_and_choices() -> Any:
    def f(key: Any) -> Any:
        x = jnp.arange(20).reshape(10, 2)
        return (
            random.permutation(key, 30),
            random.permutation(key, x),
            random.permutation(key, x, independent=True),
            random.choice(key, 50, (6,)),
            random.choice(key, 50, (6,), replace=False),
        )

    return jax.jit(f)(random.key(8))


@program
def keys_under_vmap_and_scan() -> Any:
    keys = random.split(random.key(0), 4)
    draws = jax.vmap(lambda k: random.bits(k, (3,)))(keys)

    def step(key: Any, _: Any) -> Any:
        key, used = random.split(key)
        return key, random.randint(used, (), 0, 100)

    return draws, jax.lax.scan(step, keys[0], None, length=6), keys[1:3], random.key_data(keys).shape[1]


@program
def keys_of_64_bits() -> Any:
    with jax.enable_x64(True):
        key = random.key(2**40 + 3)
        return (
            key,
            random.bits(key, (3,), "uint64"),
            random.randint(key, (4,), 0, 2**60),
            random.uniform(key, (3,)),
        )


@program
def normal_numbers() -> Any:
    def f(key: Any) -> Any:
        half = random.truncated_normal(key, -1, 1, (9,))
        return (
            random.normal(key, (50,)),
            half,
            random.normal(key, (5,), jnp.complex64),
            random.cauchy(key, (5,)) * 0,
        )

    found = jax.jit(f)(random.key(1))
    return [about(part) for part in found]


@program
def distributions_by_inversion() -> Any:
    names = ("exponential", "gumbel", "laplace", "logistic", "maxwell", "rayleigh")
    draw = {"rayleigh": lambda k: random.rayleigh(k, 1.0, (12,))}
    f = jax.jit(lambda k: [draw.get(n, lambda k, n=n: getattr(random, n)(k, (12,)))(k) for n in names])
    return {name: about(part) for name, part in zip(names, f(random.key(4)), strict=True)}


@program
def distributions_by_rejection() -> Any:
    found, counts = jax.jit(lambda k: (random.gamma(k, 2.5, (6,)), random.poisson(k, 4.0, (8,))))(
        random.key(6)
    )
    return about(found, 128), counts


@program
def categories() -> Any:
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    return jax.jit(lambda k: random.categorical(k, logits, shape=(40,)))(random.key(9))


@program
def generators_by_configuration() -> Any:
    with jax.threefry_partitionable(False):
        old = random.bits(random.key(1), (5,))
    with jax.default_prng_impl("rbg"):
        other = random.key(1)
    return old, str(jax.random.key_impl(other)), random.bits(other, (5,))


@program
def bit_generators_of_lax() -> Any:
    state = np.arange(1, 5, dtype=np.uint32)
    draw: Any = jax.lax.rng_bit_generator
    f = jax.jit(lambda s: (draw(s, (3, 5)), draw(s, (4,), dtype=jnp.uint8), draw(s, (3,), dtype=jnp.uint16)))
    return f(state)
