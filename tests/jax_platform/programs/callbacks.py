"""Python functions called by programs, and errors that programs raise."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify, io_callback

from tests.jax_platform.programs.program import integers, message_of, program

X = np.arange(6, dtype=np.float32)
SHAPE = jax.ShapeDtypeStruct((6,), jnp.float32)


@program
def pure_callbacks() -> Any:
    def host(x: Any, y: Any) -> Any:
        return np.asarray(x) * 2, np.asarray(y).sum(dtype=np.int32)

    f = jax.jit(lambda x, y: jax.pure_callback(host, (SHAPE, jax.ShapeDtypeStruct((), jnp.int32)), x + 1, y))
    return f(X, integers(3, 4)), f(X * 2, integers(3, 4, seed=1))


@program
def pure_callbacks_under_vmap() -> Any:
    row = jax.ShapeDtypeStruct((3,), jnp.float32)

    def f(method: str) -> Any:
        return jax.jit(
            jax.vmap(lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, row, x, vmap_method=method))
        )(X.reshape(2, 3))

    return [f(method) for method in ("sequential", "expand_dims", "broadcast_all")]


@program
def callbacks_of_all_types() -> Any:
    found = {}
    for kind in (
        "bool",
        "int8",
        "uint16",
        "int32",
        "float16",
        "bfloat16",
        "float32",
        "complex64",
        "float8_e5m2",
    ):
        x = jnp.arange(4).astype(kind)
        given: list[str] = []

        def host(x: Any, given: list[str] = given) -> Any:
            given.append(str(x.dtype))
            return np.asarray(x)[::-1]

        found[kind] = jax.jit(
            lambda x, h=host: jax.pure_callback(h, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        )(x)
        found[f"{kind} given"] = given[0]
    return found


@program
def callbacks_in_loops_and_branches() -> Any:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return np.asarray(x) * 2

    def step(i: Any, s: Any) -> Any:
        called = jax.pure_callback(note, jax.ShapeDtypeStruct((), jnp.int32), s)
        return lax.cond(i > 1, lambda: called + 1, lambda: called)

    return jax.jit(lambda x: lax.fori_loop(0, 4, step, x))(np.int32(1)), seen


@program
def derivative_through_a_callback() -> Any:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return jax.pure_callback(lambda x: np.asarray(x) ** 2, jax.ShapeDtypeStruct((), jnp.float32), x)

    f.defjvp(lambda p, t: (f(*p), 2 * p[0] * t[0]))
    return jax.jit(jax.value_and_grad(f))(3.0)


@program
def ordered_effects() -> Any:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return np.int32(len(seen))

    def f(x: Any) -> Any:
        first = io_callback(note, jax.ShapeDtypeStruct((), jnp.int32), x, ordered=True)
        second = io_callback(note, jax.ShapeDtypeStruct((), jnp.int32), x + 10, ordered=True)
        return first * 100 + second

    jitted = jax.jit(f)
    found = [jitted(np.int32(n)) for n in range(5)]
    looped = jax.jit(lambda: lax.fori_loop(0, 3, lambda i, s: s + f(i), 0))()
    jax.effects_barrier()
    return found, looped, seen


@program
def unordered_effects() -> Any:
    seen: list[int] = []
    f = jax.jit(lambda x: (io_callback(lambda x: seen.append(int(x)), None, x), x * 2)[1])
    results = [f(np.int32(n)) for n in range(8)]
    jax.effects_barrier()
    return results, sorted(seen)


@program
def printing() -> Any:
    def f(x: Any) -> Any:
        jax.debug.print("sum {s} of {n:>3}", s=x.sum(), n=len(x), ordered=True)
        lax.fori_loop(0, 2, lambda i, s: (jax.debug.print("i={i}", i=i, ordered=True), s)[1], 0)
        return x * 2

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = jax.jit(f)(X)
        jax.vmap(lambda x: jax.debug.print("each {x}", x=x))(np.arange(2))
        jax.effects_barrier()
    lines = printed.getvalue().splitlines()
    return result, lines[:3], sorted(lines[3:])


@program
def debug_callbacks() -> Any:
    seen: list[Any] = []

    def step(c: Any, x: Any) -> Any:
        jax.debug.callback(lambda c: seen.append(int(c)), c)
        return c + x, None

    result = jax.jit(lambda x: jax.lax.scan(step, 0, x)[0])(np.arange(5))
    jax.effects_barrier()
    return result, sorted(seen)


@program
def errors_of_callbacks_surface() -> Any:
    def fail(x: Any) -> Any:
        raise ValueError("the host refused")

    f = jax.jit(lambda x: jax.pure_callback(fail, SHAPE, x) + 1)
    message = message_of(lambda: f(X).block_until_ready())
    after = jax.jit(lambda x: x + 1)(X)
    return "ValueError" in message and "the host refused" in message, after


@program
def wrong_results_of_callbacks_are_refused() -> Any:
    f = jax.jit(lambda x: jax.pure_callback(lambda x: np.zeros(3, np.float32), SHAPE, x))
    return "shape" in message_of(lambda: f(X).block_until_ready()).lower()


@program
def programs_within_callbacks() -> Any:
    inner = jax.jit(lambda z: z + 5)
    f = jax.jit(lambda x: jax.pure_callback(lambda y: np.asarray(inner(np.asarray(y))), SHAPE, x) * 2)
    return f(X)


@program
def arguments_of_callbacks_are_arrays_of_jax() -> Any:
    kinds: list[str] = []

    def host(x: Any) -> Any:
        kinds.append(type(x).__name__)
        return np.asarray(x)

    return jax.jit(lambda x: jax.pure_callback(host, SHAPE, x))(X), kinds


@program
def checked_programs() -> Any:
    def f(x: Any, i: Any) -> Any:
        checkify.check(i < 4, "index {i} is too large", i=i)
        return jnp.log(x[i])

    kinds = checkify.user_checks | checkify.float_checks | checkify.index_checks
    checked = jax.jit(checkify.checkify(f, errors=kinds))
    messages = [
        (checked(x, i)[0].get() or "").split(" (")[0] for x, i in ((X, 1), (X, 5), (-X, 2), (X[:2], 3))
    ]
    return [m.splitlines()[0] if m else m for m in messages]


@program
def nan_is_reported() -> Any:
    with jax.debug_nans(True):
        message = message_of(lambda: jax.jit(lambda x: jnp.log(x) * 1)(-1.0), FloatingPointError)
        fine = jax.jit(lambda x: jnp.maximum(x, 2))(1.0)
    with jax.debug_infs(True):
        infinite = message_of(lambda: jax.jit(lambda x: 1 / x)(jnp.zeros(3)), FloatingPointError)
    return "nan" in message, fine, "inf" in infinite


@program
def errors_with_arguments_of_wrong_sizes() -> Any:
    compiled = jax.jit(lambda x: x + 1).lower(X).compile()
    return [
        message_of(lambda: compiled(np.zeros(5, np.float32)), TypeError).splitlines()[0],
        message_of(lambda: compiled(X.astype(np.int32)), TypeError).splitlines()[0],
    ]
