"""JAX programs whose dumps are checked: each function gives one with its arguments, for up to 8 devices.

Arrays are drawn with numpy, so that JAX compiles (and XLA dumps) little beside the program itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Call:
    """A compiled function and the arguments of one run; with f64 among them, in JAX's 64-bit mode."""

    function: Any
    arguments: tuple[Any, ...]

    @property
    def is_wide(self) -> bool:
        return any(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(self.arguments))


PROGRAMS: dict[str, Callable[[], Call]] = {}
"""The programs, by name."""
DEVICES = 8


def program(function: Callable[[], Call]) -> Callable[[], Call]:
    """Add a program to the corpus."""
    PROGRAMS[function.__name__] = function
    return function


def jit(function: Any, **options: Any) -> Callable[..., Call]:
    """Return what takes the arguments of a run of a function compiled by jax.jit."""
    return lambda *arguments: Call(jax.jit(function, **options), arguments)


def pmap(function: Any, axis: str) -> Callable[..., Call]:
    """Return what takes the arguments of a run of a function compiled by jax.pmap."""
    return lambda *arguments: Call(jax.pmap(function, axis), arguments)


def normal(*sizes: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Draw normal numbers."""
    return np.random.default_rng(seed).standard_normal(sizes).astype(dtype)


def integers(most: int, *sizes: int, dtype: Any = np.int32, seed: int = 0) -> Any:
    """Draw integers from 0 up to most, exclusive."""
    return np.random.default_rng(seed).integers(0, most, sizes).astype(dtype)


def mesh(*axes: tuple[str, int]) -> Mesh:
    """Return a mesh over all devices."""
    sizes = [size for _, size in axes]
    return Mesh(np.array(jax.devices()[:DEVICES]).reshape(sizes), [name for name, _ in axes])


# -- arithmetic


@program
def elementwise() -> Call:
    return jit(lambda x, y: jnp.tanh(x) * jnp.exp(-y) + jnp.where(x > y, x, jnp.sqrt(jnp.abs(y))))(
        normal(17, 33), normal(17, 33, seed=1)
    )


@program
def several_results() -> Call:
    return jit(lambda x, y: {"sum": x + y, "parts": (x * 2, [y, x - y])})(normal(5), normal(5, seed=1))


@program
def products() -> Call:
    def f(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.relu(x @ w + b), jnp.einsum("bij,bkj->bik", x.reshape(4, 8, 16), x.reshape(4, 8, 16))

    return jit(f)(normal(32, 16), normal(16, 24, seed=1), normal(24, seed=2))


@program
def bfloat16() -> Call:
    x = normal(16, 32, dtype=ml_dtypes.bfloat16)
    return jit(lambda x: (jax.nn.gelu(x @ x.T), jnp.sum(x, 1), jnp.max(x)))(x)


@program
def int8() -> Call:
    def f(a: Any, b: Any) -> Any:
        return lax.dot(a, b, preferred_element_type=jnp.int32), a.astype(jnp.int4), a // 3, a << 2

    return jit(f)(integers(100, 16, 32, dtype=np.int8), integers(100, 32, 8, dtype=np.int8, seed=1))


@program
def fp8() -> Call:
    def f(x: Any, y: Any) -> Any:
        a, b = x.astype(jnp.float8_e4m3fn), y.astype(jnp.float8_e5m2)
        return lax.dot(a, b, preferred_element_type=jnp.float32), a

    return jit(f)(normal(8, 16), normal(16, 8, seed=1))


@program
def complex_numbers() -> Call:
    z = (normal(12) + 1j * normal(12, seed=1)).astype(np.complex64)
    return jit(lambda z: (z * jnp.conj(z), jnp.exp(z), jnp.abs(z), jnp.angle(z), z @ z))(z)


@program
def doubles() -> Call:
    def f(x: Any) -> Any:
        return jnp.sin(x) @ x, jnp.arange(5), jnp.cumsum(x, 0)

    return jit(f)(normal(16, 16, dtype=np.float64))


@program
def powers_of_two() -> Call:
    return jit(lambda x: (jnp.exp2(x), jnp.log2(jnp.abs(x)), jnp.ldexp(x, 3)))(normal(40))


@program
def softmax() -> Call:
    return jit(lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, 1), jnp.argmax(x, 1)))(normal(32, 50))


@program
def normalization() -> Call:
    def f(x: Any, scale: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale

    return jit(f)(normal(16, 64), normal(64, seed=1))


# -- movement and indices


@program
def movement() -> Call:
    def f(x: Any) -> Any:
        parts = jnp.concatenate([x, jnp.flip(x, 0)], 1)
        return jnp.pad(parts.T, ((1, 2), (0, 3))), jnp.roll(x, 3, 1), jnp.tile(x, (2, 1)), x[::2, 1:-1:3]

    return jit(f)(normal(8, 13))


@program
def dynamic_update() -> Call:
    def f(x: Any, y: Any, i: Any) -> Any:
        x = lax.dynamic_update_slice(x, y, (i, 2))
        return x, lax.dynamic_slice(x, (i, i), (3, 3)), x.at[i].set(0.0)

    return jit(f)(normal(10, 12), normal(3, 4, seed=1), np.int32(5))


@program
def gather_and_scatter() -> Call:
    def f(x: Any, i: Any, u: Any) -> Any:
        return x[i], x.at[i].add(u), x.at[:, i % 4].max(1.0), jnp.take_along_axis(x, i[:, None] % 8, 1)

    return jit(f)(normal(20, 8), integers(20, 20), normal(20, 8, seed=1))


@program
def segment_sum() -> Call:
    return jit(partial(jax.ops.segment_sum, num_segments=6))(normal(40, 3), integers(6, 40))


@program
def one_hot_lookup() -> Call:
    def loss(table: Any, tokens: Any) -> Any:
        return jnp.sum(table[tokens] ** 2)

    return jit(jax.value_and_grad(loss))(normal(30, 8), integers(30, 4, 5))


@program
def sorting() -> Call:
    def f(x: Any, k: Any) -> Any:
        return jnp.sort(x, 0), jnp.argsort(x, 1), lax.sort((k, x[0]), num_keys=1), jnp.unique(k, size=5)

    return jit(f)(normal(9, 16), integers(9, 16))


@program
def top_k() -> Call:
    return jit(lambda x: lax.top_k(x, 5))(normal(6, 100))


@program
def searchsorted() -> Call:
    return jit(lambda a, v: (jnp.searchsorted(a, v), jnp.histogram(v, a)[0]))(
        np.linspace(-2, 2, 9, dtype=np.float32), normal(30)
    )


@program
def rotations() -> Call:
    return jit(lambda x: (jnp.roll(x, -2), jnp.roll(x, (1, 2), (0, 1)), jnp.flip(x)))(normal(5, 7))


# -- sums and windows


@program
def cumulative() -> Call:
    return jit(lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x), lax.cumlogsumexp(x)))(
        normal(7, 40)
    )


@program
def pooling() -> Call:
    def f(x: Any) -> Any:
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        largest = lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")
        return jnp.sum(largest), lax.reduce_window(x, 0.0, lax.add, window, strides, "VALID")

    return jit(jax.value_and_grad(f, has_aux=True))(normal(2, 9, 9, 4))


@program
def convolution() -> Call:
    def f(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        plain = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        strided = lax.conv_general_dilated(
            x, w, (2, 2), "VALID", rhs_dilation=(2, 2), dimension_numbers=numbers
        )
        return plain, strided

    return jit(f)(normal(2, 12, 12, 3), normal(3, 3, 3, 8, seed=1))


@program
def depthwise_convolution() -> Call:
    def f(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=8
        )

    return jit(f)(normal(2, 10, 10, 8), normal(3, 3, 1, 8, seed=1))


# -- control flow


@program
def scan() -> Call:
    def step(carry: Any, x: Any) -> Any:
        carry = jnp.tanh(carry @ x[0] + x[1])
        return carry, carry.sum()

    def loss(xs: Any, start: Any) -> Any:
        carry, sums = lax.scan(step, start, xs)
        return jnp.sum(carry) + jnp.sum(sums)

    return jit(jax.value_and_grad(loss))((normal(6, 8, 8), normal(6, 8, seed=1)), normal(4, 8, seed=2))


@program
def while_loop() -> Call:
    def newton(x: Any) -> Any:
        return lax.while_loop(
            lambda state: (state[1] < 50) & jnp.any(jnp.abs(state[0] * state[0] - x) > 1e-2),
            lambda state: ((state[0] + x / state[0]) / 2, state[1] + 1),
            (x, 0),
        )

    return jit(newton)(np.abs(normal(11)) + 1)


@program
def conditional() -> Call:
    def f(i: Any, x: Any) -> Any:
        branches = [jnp.sin, jnp.cos, lambda v: v * 2]
        return lax.switch(i, branches, x), lax.cond(x[0] > 0, lambda v: v + 1, lambda v: v - 1, x)

    return jit(f)(np.int32(2), normal(20))


@program
def nested_loops() -> Call:
    def f(x: Any) -> Any:
        def inner(i: Any, y: Any) -> Any:
            return lax.fori_loop(0, i, lambda j, z: z * 0.5 + x[j], y)

        return lax.fori_loop(0, 5, inner, jnp.zeros(x.shape[1:]))

    return jit(f)(normal(6, 7))


@program
def associative_scan() -> Call:
    return jit(lambda a: lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), a))(
        (normal(33), normal(33, seed=1))
    )


# -- random numbers, transforms, linear algebra


@program
def random_numbers() -> Call:
    def f(seed: Any) -> Any:
        first, second, third = jax.random.split(jax.random.key(seed), 3)
        draws = jax.random.normal(first, (30,)), jax.random.randint(second, (10,), 0, 100)
        return *draws, jax.random.permutation(third, 12), jax.random.bernoulli(first, 0.3, (9,))

    return jit(f)(np.uint32(42))


@program
def random_bits() -> Call:
    def f(seed: Any) -> Any:
        return jax.random.uniform(jax.random.key(seed, impl="rbg"), (16,))

    return jit(f)(np.uint32(7))


@program
def fourier() -> Call:
    return jit(lambda x: (jnp.fft.rfft(x), jnp.fft.ifft(x.astype(jnp.complex64)), jnp.fft.fft2(x)))(
        normal(8, 15)
    )


@program
def linear_algebra() -> Call:
    def f(a: Any, b: Any) -> Any:
        spd = a @ a.T + 8 * jnp.eye(8)
        factor = jnp.linalg.cholesky(spd)
        return factor, jax.scipy.linalg.solve_triangular(factor, b, lower=True), jnp.linalg.solve(spd, b)

    return jit(f)(normal(8, 8), normal(8, 3, seed=1))


@program
def derivatives_of_linear_algebra() -> Call:
    def f(a: Any) -> Any:
        spd = a @ a.T + 6 * jnp.eye(6)
        return jnp.sum(jnp.linalg.cholesky(spd)) + jnp.linalg.slogdet(spd)[1]

    return jit(jax.value_and_grad(f))(normal(6, 6))


@program
def decompositions() -> Call:
    def f(a: Any) -> Any:
        values = jnp.linalg.eigvalsh(a + a.T), jnp.linalg.svd(a, compute_uv=False)
        return *values, jnp.abs(jnp.linalg.qr(a)[1]), jnp.linalg.det(a)

    return jit(f)(normal(6, 6))


# -- transformations


@program
def vmapped() -> Call:
    def f(w: Any, x: Any) -> Any:
        return jnp.dot(w, jnp.sin(x)) + lax.dynamic_index_in_dim(x, 2, keepdims=False)

    return jit(jax.vmap(jax.value_and_grad(f, 1), (None, 0)))(normal(9), normal(5, 9, seed=1))


@program
def custom_derivative() -> Call:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return jnp.sin(x)

    clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g * jnp.cos(x), -0.5, 0.5),))
    return jit(jax.grad(lambda x: jnp.sum(clipped(x) ** 2)))(normal(12))


@program
def rematerialized() -> Call:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.checkpoint(layer)(x, w)
        return jnp.sum(x * x)

    return jit(jax.grad(loss))([normal(8, 8, seed=s) for s in range(3)], normal(4, 8, seed=9))


@program
def second_derivative() -> Call:
    return jit(jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.roll(x, 1) ** 2)))(normal(6))


@program
def donated() -> Call:
    step = jit(lambda p, g: jax.tree.map(lambda a, b: a - 0.1 * b, p, g), donate_argnums=0)
    return step({"w": normal(9, 4), "b": normal(4)}, {"w": normal(9, 4, seed=1), "b": normal(4, seed=2)})


@program
def inner_functions() -> Call:
    inner = jax.jit(lambda x: jnp.sum(jnp.sin(x), axis=0))
    return jit(lambda x: inner(x) + inner(x * 2))(normal(4, 5))


@program
def barrier() -> Call:
    return jit(lambda x: lax.optimization_barrier((jnp.sin(x), x + 1)))(normal(8))


@program
def reduced_precision() -> Call:
    return jit(lambda x: (lax.reduce_precision(x, 5, 10), jnp.round(x), lax.population_count(
        lax.bitcast_convert_type(x, jnp.uint32))))(normal(25))  # fmt: skip


@program
def embedded_constants() -> Call:
    table = normal(8, 8)
    return jit(lambda x: x @ jnp.asarray(table) + jnp.arange(8.0))(normal(3, 8, seed=1))


# -- training steps


@program
def perceptron_step() -> Call:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        for w, b in weights[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = weights[-1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ w + b) * y, 1))

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, jax.tree.map(lambda a, g: a - 0.1 * g, weights, slopes)

    sizes = [12, 16, 16, 5]
    weights = [(0.3 * normal(a, b, seed=a), np.zeros(b, np.float32)) for a, b in pairwise(sizes)]
    return jit(step)(weights, normal(20, 12), np.eye(5, dtype=np.float32)[integers(5, 20)])


@program
def convolutional_step() -> Call:
    def predicted(weights: Any, x: Any) -> Any:
        first, second, last = weights
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=numbers))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(lax.conv_general_dilated(x, second, (2, 2), "SAME", dimension_numbers=numbers))
        return x.reshape(len(x), -1) @ last

    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            return jnp.mean((predicted(weights, x) - y) ** 2)

        value, slopes = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda a, g: a - 0.01 * g, weights, slopes)

    weights = [0.2 * normal(3, 3, 1, 8), 0.2 * normal(3, 3, 8, 8, seed=1), 0.2 * normal(128, 4, seed=2)]
    return jit(step)(weights, normal(4, 16, 16, 1, seed=3), normal(4, 4, seed=4))


def attention(x: Any, w: Any, heads: int) -> Any:
    """Return causal attention of (batch, length, width)."""
    batch, length, width = x.shape
    q, k, v = (p.reshape(batch, length, heads, -1) for p in jnp.split(x @ w["qkv"], 3, 2))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / np.float32(np.sqrt(width // heads))
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v).reshape(x.shape) @ w["out"]


@program
def transformer_step() -> Call:
    width, length, words = 16, 10, 31

    def loss(weights: Any, tokens: Any) -> Any:
        x = weights["table"][tokens[:, :-1]] + weights["places"]
        for layer in weights["layers"]:
            x = x + attention(jax.nn.standardize(x), layer, heads=2)
            x = x + jax.nn.gelu(jax.nn.standardize(x) @ layer["up"]) @ layer["down"]
        chosen = jax.nn.log_softmax(jax.nn.standardize(x) @ weights["table"].T)
        return -jnp.mean(jnp.take_along_axis(chosen, tokens[:, 1:, None], 2))

    def step(weights: Any, moments: Any, tokens: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, tokens)
        moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, slopes)
        return value, jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments

    def drawn(a: int, b: int, seed: int) -> Any:
        return (0.2 * normal(a, b, seed=seed)).astype(np.float32)

    weights = {
        "table": drawn(words, width, 0),
        "places": drawn(length, width, 1),
        "layers": [
            {
                "qkv": drawn(width, 3 * width, 10 * n),
                "out": drawn(width, width, 10 * n + 1),
                "up": drawn(width, 4 * width, 10 * n + 2),
                "down": drawn(4 * width, width, 10 * n + 3),
            }
            for n in (1, 2)
        ],
    }
    return jit(step)(weights, jax.tree.map(np.zeros_like, weights), integers(words, 3, length + 1))


# -- several devices


@program
def parallel_map() -> Call:
    return pmap(lambda x: (x / lax.psum(x, "i"), lax.axis_index("i")), "i")(normal(DEVICES, 5) + 4)


@program
def all_devices_collectives() -> Call:
    def f(x: Any) -> Any:
        total, gathered = lax.psum(x, "i"), lax.all_gather(x, "i")
        scattered = lax.psum_scatter(gathered, "i")
        moved = lax.ppermute(x, "i", [(n, (n + 1) % DEVICES) for n in range(DEVICES)])
        return total, lax.pmax(x, "i"), scattered, moved, lax.all_to_all(gathered, "i", 0, 0)

    return pmap(f, "i")(normal(DEVICES, 6))


@program
def shard_mapped() -> Call:
    grid = mesh(("x", 4), ("y", 2))

    def f(a: Any, b: Any) -> Any:
        return lax.psum(a @ b, "y")

    g = jax.shard_map(f, mesh=grid, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    a = jax.device_put(normal(16, 8), NamedSharding(grid, P("x", "y")))
    return jit(g)(a, jax.device_put(normal(8, 6, seed=1), NamedSharding(grid, P("y", None))))


@program
def sharded_product() -> Call:
    grid = mesh(("x", 4), ("y", 2))
    x = jax.device_put(normal(16, 8), NamedSharding(grid, P("x", None)))
    w = jax.device_put(normal(8, 12, seed=1), NamedSharding(grid, P(None, "y")))
    return jit(lambda x, w: (jax.nn.relu(x @ w), jnp.sum(x)))(x, w)


@program
def sharded_step() -> Call:
    grid = mesh(("batch", 8))

    def step(w: Any, x: Any, y: Any) -> Any:
        value, slope = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
        return value, lax.with_sharding_constraint(w - 0.1 * slope, NamedSharding(grid, P()))

    batch = NamedSharding(grid, P("batch"))
    x, y = jax.device_put(normal(32, 6), batch), jax.device_put(normal(32, 3, seed=1), batch)
    return jit(step)(jax.device_put(normal(6, 3, seed=2), NamedSharding(grid, P())), x, y)


@program
def manual_over_one_axis() -> Call:
    grid = mesh(("x", 4), ("y", 2))

    def f(a: Any) -> Any:
        return lax.ppermute(a, "x", [(n, (n + 1) % 4) for n in range(4)]) + lax.psum(a, "x")

    g = jax.shard_map(f, mesh=grid, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    return jit(g)(jax.device_put(normal(16, 6), NamedSharding(grid, P("x"))))


@program
def resharded() -> Call:
    grid = mesh(("x", 8))
    x = jax.device_put(normal(16, 24), NamedSharding(grid, P("x", None)))
    return jit(lambda x: jnp.sort(x, 0) * 2, out_shardings=NamedSharding(grid, P(None, "x")))(x)
