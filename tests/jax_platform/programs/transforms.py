"""jit, derivatives, vmap, and their compositions."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_platform.programs.program import computed, message_of, numbers, program


def network(weights: Any, x: Any) -> Any:
    for matrix, bias in weights:
        x = jnp.tanh(x @ matrix + bias)
    return x


WEIGHTS = [(numbers(6, 6, seed=n) / 3, numbers(6, seed=9 + n)) for n in range(3)]
X = numbers(4, 6, seed=20)


@program
def jit_of_pytrees_and_static_arguments() -> Any:
    @partial(jax.jit, static_argnums=1, static_argnames="mode")
    def f(tree: Any, power: int, *, mode: str = "sum") -> Any:
        total = tree["a"] * power + tree["b"][0]
        return {"total": total, "shown": total.sum() if mode == "sum" else total.max()}

    tree = {"a": np.arange(6, dtype=np.int32), "b": (np.int32(3), None)}
    return f(tree, 2), f(tree, 3, mode="max"), cast("Any", f)._cache_size()


@program
def jit_within_jit() -> Any:
    inner = jax.jit(lambda x: x * 3 + 1)
    outer = jax.jit(lambda x: inner(inner(x)) - inner(x))
    return outer(np.arange(5, dtype=np.int32)), jax.jit(inner, inline=True)(7)


@program
def jit_without_results_and_with_constants() -> Any:
    table = np.arange(12, dtype=np.int16).reshape(3, 4)
    nothing = jax.jit(lambda x: None)(1.0)
    return nothing, jax.jit(lambda x: (x, jnp.asarray(table), 3, x))(np.uint8(4)), jax.jit(lambda: 5)()


@program
def gradient_of_a_network() -> Any:
    return computed(jax.value_and_grad(lambda w, x: (network(w, x) ** 2).sum()), WEIGHTS, X)


@program
def gradient_with_auxiliary_results() -> Any:
    def loss(w: Any) -> Any:
        y = w * 3
        return (y * y).sum(), {"y": y}

    return jax.jit(jax.grad(loss, has_aux=True))(np.arange(4, dtype=np.float32))


@program
def jacobians_forward_and_reverse() -> Any:
    def f(x: Any) -> Any:
        return jnp.sin(x) * x[::-1]

    x = numbers(5)
    return computed(lambda x: (jax.jacfwd(f)(x), jax.jacrev(f)(x)), x)


@program
def hessian() -> Any:
    return computed(jax.hessian(lambda x: jnp.exp(x).sum() * (x * x).sum()), numbers(4))


@program
def pushforward_and_linearization() -> Any:
    def f(x: Any) -> Any:
        return jnp.tanh(x) * x

    def both(x: Any, t: Any) -> Any:
        value, linear = jax.linearize(f, x)
        return jax.jvp(f, (x,), (t,)), value, linear(t)

    return computed(both, numbers(3, 4), numbers(3, 4, seed=1))


@program
def pullback_and_transpose() -> Any:
    matrix = numbers(4, 3)

    def both(x: Any, y: Any) -> Any:
        value, pullback = jax.vjp(lambda x: matrix @ jnp.sin(x), x)
        return value, pullback(y), jax.linear_transpose(lambda x: matrix @ x, x)(y)

    return computed(both, numbers(3, seed=2), numbers(4, seed=3))


@program
def derivatives_of_higher_order() -> Any:
    f = jax.grad(jax.grad(jax.grad(lambda x: x**5)))
    return jax.jit(f)(2.0), jax.jit(jax.grad(lambda x: lax.stop_gradient(x) * x))(3.0)


@program
def vmap_over_any_axis() -> Any:
    x, y = np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.arange(3, dtype=np.int32)
    first = jax.vmap(lambda a, b: a * b + a[0], in_axes=(1, 0), out_axes=2)(x, y)
    nested = jax.vmap(jax.vmap(lambda a, b: a.sum() - b, (0, None)), (None, 0))(x, y)
    return jax.jit(lambda: (first, nested))()


@program
def collectives_of_vmapped_axes() -> Any:
    def f(x: Any) -> Any:
        index = lax.axis_index("i")
        moved = lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)])
        return lax.psum(x, "i"), lax.pmax(x, "i"), lax.all_gather(x, "i"), moved, x * index

    return jax.jit(jax.vmap(f, axis_name="i"))(np.arange(12, dtype=np.int32).reshape(3, 4))


@program
def gradients_of_single_examples() -> Any:
    def loss(w: Any, x: Any) -> Any:
        return (jnp.tanh(x @ w) ** 2).sum()

    return computed(jax.vmap(jax.grad(loss), (None, 0)), numbers(6, 2), X)


@program
def custom_derivative_forward() -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return f(primals[0]), tangents[0] * 100

    x = np.arange(3, dtype=np.float32)
    total = jax.jit(jax.grad(lambda x: f(x).sum()))
    return jax.jit(f)(x), jax.jvp(f, (x,), (x,)), total(x), jax.vmap(jax.grad(f))(x)


@program
def custom_derivative_reverse() -> Any:
    @partial(jax.custom_vjp, nondiff_argnums=(1,))
    def clipped(x: Any, limit: float) -> Any:
        return x * 4

    def forward(x: Any, limit: float) -> Any:
        return clipped(x, limit), (x > 0,)

    def backward(limit: float, kept: Any, g: Any) -> Any:
        return (jnp.where(kept[0], jnp.clip(g, -limit, limit), 0),)

    clipped.defvjp(forward, backward)
    x = np.arange(-2, 3, dtype=np.float32)
    return jax.jit(jax.grad(lambda x: (clipped(x, 0.5) * 8).sum()))(x), jax.vmap(
        jax.grad(clipped), (0, None)
    )(x, 0.25)


@program
def custom_rule_for_vmap() -> Any:
    @jax.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return x + 1

    @f.def_vmap
    def rule(size: int, batched: Any, x: Any) -> Any:
        return x + 10 * size, batched[0]

    return f(np.int32(1)), jax.jit(jax.vmap(f))(np.arange(4, dtype=np.int32))


@program
def checkpoints() -> Any:
    def f(x: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(x) * 2
        return x.sum()

    saved = jax.checkpoint(f, policy=jax.checkpoint_policies.nothing_saveable)
    return computed(lambda x: (jax.grad(jax.checkpoint(f))(x), jax.grad(saved)(x)), numbers(5))


@program
def shapes_without_computation() -> Any:
    found = jax.eval_shape(jax.jit(network), WEIGHTS, X)
    jaxpr = jax.make_jaxpr(lambda x: jnp.cumsum(x))(np.arange(3))
    return list(found.shape), str(found.dtype), "cumsum" in str(jaxpr)


@program
def named_computations() -> Any:
    @jax.named_call
    def inner(x: Any) -> Any:
        with jax.named_scope("scoped"):
            return x * 2 - 1

    return jax.jit(lambda x: inner(x) + inner(x + 1))(np.arange(4, dtype=np.int32))


@program
def vectorized_signatures() -> Any:
    @partial(jnp.vectorize, signature="(n,m),(m)->(n)")
    def apply(a: Any, b: Any) -> Any:
        return (a * b).sum(-1)

    return jax.jit(apply)(
        np.arange(24, dtype=np.int32).reshape(2, 4, 3), np.arange(6, dtype=np.int32).reshape(2, 3)
    )


@program
def attention_and_normalization() -> Any:
    def block(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2
        weights = jax.nn.softmax(scores, where=None)
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 0.1)

    return computed(block, *(numbers(2, 5, 2, 4, seed=n) for n in range(3)))


@program
def errors_of_tracing() -> Any:
    branch = message_of(lambda: jax.jit(lambda x: 1 if x > 0 else 2)(1), jax.errors.TracerBoolConversionError)
    shape = message_of(lambda: jax.jit(lambda x: x @ np.ones((5, 5)))(np.ones((4, 4))), TypeError)
    return "Attempted boolean conversion" in branch, shape
