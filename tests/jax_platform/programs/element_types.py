"""Every element type: arithmetic, conversions, comparisons, and 64 bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from hloom.error_bounds.floating import eps
from tests.jax_platform.programs.program import close, computed, integers, numbers, program, units

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 3.7, -3.7, 2.0**-20, 3e38, 1e10, -1e10, 128.5, 255.9, -0.4],
    np.float32,
)
NARROW_FLOATS = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e3m4", "float8_e4m3", "float16", "bfloat16",
)  # fmt: skip
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
NARROW_INTEGERS = ("int2", "int4", "uint2", "uint4")


@program
def conversions_to_narrow_floats() -> Any:
    kinds = [*NARROW_FLOATS, "float8_e8m0fnu", "float4_e2m1fn"]
    x = np.concatenate([SPECIAL, numbers(50) * 4])

    def convert(x: Any) -> Any:
        return [x.astype(kind) for kind in kinds], [x.astype(kind).astype(jnp.float32) for kind in kinds]

    return jax.jit(convert)(x)


@program
def conversions_between_narrow_floats() -> Any:
    # Results that the next type cannot hold differ in XLA, which drops conversions between others.
    kinds = ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float4_e2m1fn"]
    x = (integers(20, low=-4, high=5) / 2).astype(np.float32)
    return jax.jit(
        lambda x: [x.astype(a).astype(b) for a in kinds for b in ("float8_e5m2", "float16", "bfloat16")]
    )(x)


@program
def arithmetic_of_narrow_floats() -> Any:
    x, y = numbers(40) * 2, numbers(40, seed=1)

    def f(x: Any, y: Any) -> Any:
        found = []
        for kind in NARROW_FLOATS:
            a, b = x.astype(kind), y.astype(kind)
            found += [a + b, a * b, jnp.maximum(a, b), -a, a < b]
        return found

    return jax.jit(f)(x, y), jax.jit(lambda x: [jnp.sort(x.astype(k)) for k in NARROW_FLOATS[-3:]])(x)


@program
def products_of_narrow_floats() -> Any:
    x = numbers(6, 6) * 2

    def f(x: Any) -> Any:
        return [x.astype(kind) @ x.astype(kind) for kind in ("float16", "bfloat16")] + [
            lax.dot(x.astype(kind), x.astype(kind), preferred_element_type=jnp.float32)
            for kind in ("float8_e4m3fn", "float8_e5m2", "bfloat16")
        ]

    return computed(f, x)


@program
def arithmetic_of_integers() -> Any:
    a, b = integers(30), integers(30, seed=1)
    b = np.where(b == 0, 7, b).astype(np.int32)

    def f(x: Any, y: Any) -> Any:
        found = [x + y, x * y, x - y, x & y, x | y, x ^ y, ~x, jnp.minimum(x, y), x // y, x % y, x > y]
        return [*found, lax.div(x, y), lax.rem(x, y), lax.population_count(x), lax.clz(x), jnp.sign(x)]

    return [jax.jit(f)(a.astype(kind), b.astype(kind)) for kind in INTEGERS]


@program
def division_by_zero_and_overflow_of_integers() -> Any:
    a = np.array([-(2**31), 2**31 - 1, 0, -1, 5], np.int32)

    def f(a: Any) -> Any:
        zero, minus = jnp.zeros_like(a), jnp.full_like(a, -1)
        return lax.div(a, zero), lax.rem(a, zero), lax.div(a, minus), lax.rem(a, minus), -a, abs(a), a * a

    return jax.jit(f)(a)


@program
def shifts() -> Any:
    def f(a: Any, b: Any) -> Any:
        return [
            shift(a.astype(kind), b.astype(kind))
            for kind in INTEGERS
            for shift in (lax.shift_left, lax.shift_right_arithmetic, lax.shift_right_logical)
        ]

    return jax.jit(f)(integers(20), integers(20, low=0, high=40, seed=1))


@program
def integers_of_less_than_a_byte() -> Any:
    a = integers(6, 8)

    def f(a: Any) -> Any:
        found = []
        for kind in NARROW_INTEGERS:
            x = a.astype(kind)
            y = jnp.flip(x)
            found += [x, x + y, x * y, x - y, x.T[1:, ::2], x.at[1, 2].set(1), x == y, jnp.where(x > y, x, y)]
            found += [x.astype(jnp.int32), jnp.concatenate([x, y]), x[2, 3], x.reshape(4, 12)]
        return found

    return jax.jit(f)(a)


@program
def arrays_of_less_than_a_byte_cross_the_boundary() -> Any:
    found: dict[str, Any] = {}
    for kind in (*NARROW_INTEGERS, "float4_e2m1fn"):
        dtype = np.dtype(getattr(ml_dtypes, kind))
        x = np.arange(15).reshape(3, 5).astype(np.int8).astype(dtype)
        moved = jax.device_put(x.T)
        found[kind] = [moved, jax.jit(lambda x: x[::-1])(moved), jax.jit(lambda x: x.astype(jnp.float32))(x)]
    return found


@program
def bits_of_other_types() -> Any:
    def f(x: Any, i: Any) -> Any:
        cast = lax.bitcast_convert_type
        return (
            cast(x, jnp.uint8),
            cast(x, jnp.uint16),
            cast(x, jnp.int32),
            cast(cast(x, jnp.uint16), jnp.float32),
            cast(i, jnp.int4).astype(jnp.int8),
            cast(i.reshape(-1, 2), jnp.bfloat16),
            x.view(jnp.int16),
        )

    return jax.jit(f)(SPECIAL[3:], np.arange(8, dtype=np.int8) * 37)


@program
def conversions_of_floats_to_integers_saturate() -> Any:
    kinds = [*INTEGERS, "bool", *NARROW_INTEGERS]
    return jax.jit(lambda x: [x.astype(kind) for kind in kinds])(SPECIAL)


@program
def conversions_of_integers() -> Any:
    x = integers(20, low=-(2**31), high=2**31 - 1)
    kinds = [
        *INTEGERS,
        *NARROW_INTEGERS,
        "float32",
        "bfloat16",
        "float16",
        "float8_e5m2",
        "bool",
        "complex64",
    ]
    return jax.jit(lambda x: [x.astype(kind) for kind in kinds])(x)


@program
def predicates() -> Any:
    p, q = integers(10, low=0, high=2).astype(bool), integers(10, low=0, high=2, seed=1).astype(bool)
    f = jax.jit(
        lambda p, q: (p & q, p | q, p ^ q, ~p, p + q, p.sum(), p.any(), q.all(), jnp.where(p, 3, 4), p < q)
    )
    return f(p, q), jax.jit(jnp.packbits)(p), jax.jit(jnp.nonzero, static_argnames="size")(p, size=4)


@program
def special_values_of_floats() -> Any:
    def f(a: Any) -> Any:
        b = a[:, None]
        comparisons = (b < a, b == a, b != a, lax.max(b + 0 * a, a + 0 * b), jnp.fmin(b, a))
        rounding = (jnp.floor(a), jnp.ceil(a), jnp.round(a), lax.round(a), jnp.trunc(a), jnp.sign(a))
        return comparisons, rounding, (lax.is_finite(a), jnp.signbit(a), jnp.sqrt(a), jnp.copysign(b, a))

    quotients = computed(
        lambda a, b: a[:, None] / b, SPECIAL[3:10], np.array([0.0, -0.0, 4, np.inf, np.nan], np.float32)
    )
    return jax.jit(f)(SPECIAL), quotients


@program
def elementary_functions_of_special_values() -> Any:
    names = ("exp", "log", "sin", "tanh", "log1p", "expm1", "arctan", "cosh", "arcsinh", "cbrt", "exp2")
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.3, -2.5, 40.0, -40.0], np.float32)
    found = jax.jit(lambda a: [getattr(jnp, name)(a) for name in names])(x)
    return {name: units(value, 4) for name, value in zip(names, found, strict=True)}


@program
def special_functions() -> Any:
    a = np.linspace(0.1, 4.0, 12, dtype=np.float32)
    names = ("erf", "erfc", "gammaln", "digamma", "i0e", "i1e", "expit", "log_ndtr")
    found = jax.jit(lambda a: [getattr(jax.scipy.special, name)(a) for name in names])(a)
    # Near a zero of a function its terms cancel: they have the size of 1.
    return {
        name: close(value, 16 * eps(np.float32) * np.maximum(np.abs(value), 1))
        for name, value in zip(names, map(np.asarray, found), strict=True)
    }


@program
def complex_numbers() -> Any:
    a, b = integers(8, low=-9, high=9) + 1j * integers(8, low=1, high=9, seed=1), integers(8, seed=2) + 2j
    x, y = a.astype(np.complex64), b.astype(np.complex64)
    f = jax.jit(lambda x, y: (x + y, x - y, x * y, x.real, x.imag, x.conj(), x == y, -x, x.T @ y))
    g = jax.jit(lambda x, y: (x / y, jnp.abs(x), jnp.exp(x / 8), jnp.sqrt(x), jnp.log(x)))
    sizes = [np.abs(part) for part in g(x, y)]
    return f(x, y), [
        close(part, 32 * eps(np.float32) * size) for part, size in zip(g(x, y), sizes, strict=True)
    ]


@program
def gradient_of_complex_numbers() -> Any:
    f = jax.grad(lambda z: (z * z.conj()).real.sum() * 2)
    return jax.jit(f)((np.arange(4) + 1j * np.arange(4)[::-1]).astype(np.complex64))


@program
def rounding_to_fewer_bits() -> Any:
    x = np.concatenate([SPECIAL, numbers(20)])
    return jax.jit(lambda x: [lax.reduce_precision(x, e, m) for e, m in ((5, 3), (8, 7), (4, 2))])(x)


@program
def next_numbers() -> Any:
    x = np.array([1, -1, 2.0, 65504, -3.5, np.inf], np.float32)
    return jax.jit(lambda x: [jnp.nextafter(x, x + 1), jnp.spacing(x), jnp.frexp(x), jnp.ldexp(x, 3)])(x)


@program
def numbers_of_64_bits() -> Any:
    with jax.enable_x64(True):
        x, i = numbers(3, 4, dtype=np.float64), integers(9, low=-(2**40), high=2**40, dtype=np.int64)
        exact = jax.jit(
            lambda i: (i * i, i // 7, i % 5, i.astype(jnp.uint64) >> 3, i.astype(jnp.float64), i.sum())
        )(i)
        return exact, computed(lambda x: (jnp.sin(x) @ x.T, jnp.exp(x).sum(0), jnp.cumsum(x, 1)), x)


@program
def complex_numbers_of_128_bits() -> Any:
    with jax.enable_x64(True):
        z = numbers(5, dtype=np.float64) + 1j * numbers(5, seed=1, dtype=np.float64)
        return jax.jit(lambda z: (z + z, z.conj(), z.real * 2, jnp.stack([z, -z])))(z), str(jnp.exp(z).dtype)


@program
def promotion_of_types() -> Any:
    kinds = ("bool", "int8", "uint8", "int32", "uint32", "bfloat16", "float16", "float32", "complex64")
    values = [np.ones(2, kind) if kind != "bfloat16" else np.ones(2, jnp.bfloat16) for kind in kinds]
    found = jax.eval_shape(lambda: [a + b for a in values for b in map(jnp.asarray, values)])
    return [str(shape.dtype) for shape in found], jnp.int8(100) + 100, str((jnp.int8(1) + 1.5).dtype)


@program
def sums_of_narrow_floats() -> Any:
    x = integers(300, 7, low=0, high=2)

    def f(x: Any) -> Any:
        kinds = ("bfloat16", "float16", "float32")
        return [
            (x[:100].astype(kind).sum(0), x.astype(kind).max(0), x[:9].astype(kind).prod(1)) for kind in kinds
        ]

    return jax.jit(f)(x)
