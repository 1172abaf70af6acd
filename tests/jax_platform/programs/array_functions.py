"""Functions of arrays: sorting, indexing, windows, convolutions, transforms."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hloom.error_bounds.floating import eps
from tests.jax_platform.programs.program import close, computed, integers, numbers, program

NAN, INF = np.float32("nan"), np.float32("inf")
ROWS = integers(6, 8)


@program
def sorting() -> Any:
    x = np.array([3, NAN, -0.0, 0.0, INF, -INF, 1, 1, -2], np.float32)

    def f(x: Any, rows: Any) -> Any:
        ordered = jnp.sort(x), jnp.argsort(x), jnp.sort(x, descending=True), jnp.argsort(rows, axis=0)
        ties = lax.sort((rows[0] % 3, rows[1], rows[2]), num_keys=2, is_stable=True)
        return ordered, ties, lax.top_k(x, 4), jnp.lexsort((rows[0], rows[1] % 2)), lax.top_k(rows, 3)

    return jax.jit(f)(x, ROWS)


@program
def selection_of_extremes() -> Any:
    x = np.array([[3, NAN, 1], [-0.0, 0.0, -INF], [INF, 2, 2]], np.float32)

    def f(x: Any) -> Any:
        return jnp.argmax(x, 1), jnp.argmin(x, 0), x.max(1), x.min(0), jnp.nanmax(x), jnp.nanargmin(x[1:], 1)

    return jax.jit(f)(x)


@program
def sets_and_bins() -> Any:
    def f(x: Any) -> Any:
        return (
            jnp.unique(x % 5, size=6, return_counts=True), jnp.searchsorted(jnp.sort(x[0]), x[1]),
            jnp.bincount(jnp.abs(x[0]) % 7, length=9), jnp.digitize(x[1], jnp.arange(-90, 90, 30)),
            jnp.isin(x, x[2]), jnp.median(x, 1), jnp.histogram(x, 5, (-100, 100))[0],
        )  # fmt: skip

    return jax.jit(f)(ROWS)


@program
def gathering() -> Any:
    i = np.array([0, 5, -1, -6, 100, 3])

    def f(x: Any, i: Any) -> Any:
        modes = [
            x.at[i].get(mode=mode)
            for mode in ("fill", "clip", "promise_in_bounds")
            if mode != "promise_in_bounds"
        ]
        return (
            modes,
            x[i % 6, i[::-1] % 6],
            x[:, 2],
            x[1:5:2, ::-1],
            x[..., None, 0],
            jnp.take_along_axis(x, x % 8, 1),
        )

    return jax.jit(f)(ROWS, i)


@program
def scattering() -> Any:
    i = np.array([0, 5, -1, 3, 100, 3])

    def f(x: Any, i: Any) -> Any:
        at = x.at[i]
        one = [
            at.set(1, mode="drop"),
            at.add(2),
            at.min(0),
            at.max(x[:6]),
            at.multiply(3),
            x.at[:, i % 8].add(x[:, :6]),
        ]
        return one, x.at[2:5, ::3].set(7), x.at[i % 6, i % 8].apply(jnp.negative), x.at[-1].subtract(x[0])

    return jax.jit(f)(ROWS, i)


@program
def slices_beyond_the_bounds() -> Any:
    def f(x: Any, i: Any) -> Any:
        taken = lax.dynamic_slice(x, (i, i - 9), (3, 3)), lax.dynamic_index_in_dim(x, i, 1)
        return taken, lax.dynamic_update_slice(x, jnp.zeros((3, 3), x.dtype), (i, i - 9))

    return [jax.jit(f)(ROWS, i) for i in (-7, 0, 7)]


@program
def movement() -> Any:
    def f(x: Any) -> Any:
        return (
            jnp.roll(x, (1, -2), (0, 1)),
            jnp.rot90(x),
            jnp.tile(x, (2, 3))[::3],
            lax.pad(x, 7, ((1, -2, 1), (-1, 2, 2))),
            jnp.repeat(x, np.arange(8), axis=1, total_repeat_length=28),
            jnp.kron(x[:2, :2], x[:2, :3]),
            jnp.tril(x, 1),
            jnp.stack(jnp.meshgrid(x[0], x[1])),
            jnp.block([[x, x], [x * 2, x]])[::4],
            jnp.moveaxis(x[None], 0, 2),
        )

    return jax.jit(f)(ROWS)


@program
def arrays_without_elements() -> Any:
    def f(x: Any) -> Any:
        return (
            x.sum(0),
            x @ x.T,
            jnp.concatenate([x, x]),
            jnp.sort(x, 1),
            x[1:1],
            jnp.zeros((0, 4)) @ jnp.ones((4, 2)),
        )

    return jax.jit(f)(np.zeros((3, 0), np.float32))


@program
def cumulative_functions() -> Any:
    def f(x: Any) -> Any:
        return (
            jnp.cumsum(x, 1),
            lax.cummax(x, 0),
            lax.cummin(x, 1, reverse=True),
            jnp.cumprod(x % 3, 1),
            jnp.diff(x),
        )

    return jax.jit(f)(ROWS), computed(lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x, 1)), numbers(5, 6))


@program
def reductions_of_pairs() -> Any:
    def larger(a: Any, b: Any) -> Any:
        return jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])

    def f(x: Any) -> Any:
        places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        whole = lax.reduce((x, places), (np.int32(-1000), np.int32(0)), larger, (1,))
        return whole, lax.reduce_window(
            (x, places), (np.int32(-1000), np.int32(0)), larger, (2, 3), (1, 2), "SAME"
        )

    return jax.jit(f)(ROWS)


@program
def windows() -> Any:
    def f(x: Any) -> Any:
        summed = lax.reduce_window(x, 0, lax.add, (2, 3), (1, 2), ((1, 1), (0, 2)), (2, 1), (1, 2))
        return summed, lax.reduce_window(x, -1000, lax.max, (3, 3), (2, 2), "VALID")

    gradient = jax.grad(lambda x: lax.reduce_window(x, -INF, lax.max, (2, 2), (2, 2), "VALID").sum())
    return jax.jit(f)(ROWS), jax.jit(gradient)(numbers(6, 8))


@program
def convolutions() -> Any:
    def f(x: Any, k: Any) -> Any:
        plain = lax.conv_general_dilated(x, k, (1, 1), "SAME")
        grouped = lax.conv_general_dilated(
            x, k[:, :1], (2, 1), [(1, 2), (0, -1)], (2, 1), (1, 2), feature_group_count=2
        )
        return plain, grouped, jnp.convolve(x[0, 0, 0], x[0, 0, 1])

    return computed(f, numbers(2, 2, 7, 8), numbers(4, 2, 3, 2, seed=1))


@program
def gradient_of_a_convolution() -> Any:
    def loss(k: Any, x: Any) -> Any:
        y = lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (y * y).sum()

    return computed(jax.grad(loss, (0, 1)), numbers(3, 3, 2, 4), numbers(2, 8, 8, 2, seed=1))


@program
def convolutions_of_integers() -> Any:
    x, k = integers(1, 2, 5, 5, dtype=np.int8), integers(3, 2, 3, 3, seed=1, dtype=np.int8)
    return jax.jit(
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", preferred_element_type=jnp.int32)
    )(x, k)


@program
def contractions() -> Any:
    def f(x: Any, y: Any) -> Any:
        general = lax.dot_general(x, y, (((1, 3), (2, 0)), ((0,), (1,))))
        return (
            general,
            jnp.einsum("abcd,dafe->be", x, y),
            jnp.tensordot(x, y, ((3,), (0,)))[0, 0, 0],
        )

    return computed(f, numbers(2, 3, 4, 5), numbers(5, 2, 3, 6, seed=1))


@program
def contractions_of_integers() -> Any:
    x = integers(5, 9, low=0, high=255, dtype=np.uint8)
    return jax.jit(
        lambda x: (x @ x.T, lax.dot(x, x.T, preferred_element_type=jnp.int32), jnp.inner(ROWS, ROWS))
    )(x)


@program
def ragged_contractions() -> Any:
    return computed(
        lambda a, b: lax.ragged_dot(a, b, jnp.array([3, 0, 5], np.int32)), numbers(8, 6), numbers(3, 6, 4)
    )


@program
def fourier_transforms() -> Any:
    x = numbers(3, 5, 8)
    z = (x + 1j * numbers(3, 5, 8, seed=1)).astype(np.complex64)

    def f(x: Any, z: Any) -> Any:
        fft = jnp.fft
        return (
            fft.fft(z),
            fft.ifft2(z),
            fft.rfftn(x),
            fft.irfft(z, n=9),
            fft.fft(z[0, :, :7], axis=0),
            fft.hfft(z[0]),
        )

    # N log2 N roundings that do not conspire, each of the size of the norm (Higham, chapter 24).
    size = float(np.linalg.norm(z)) * np.sqrt(2)
    return [close(part, 8 * (1 + np.log2(x.size)) * eps(np.float32) * size) for part in jax.jit(f)(x, z)]


@program
def interpolation_and_polynomials() -> Any:
    def f(x: Any, at: Any) -> Any:
        interpolated = jnp.interp(at, np.arange(6, dtype=np.float32), x[2])
        return (
            jnp.polyval(x[0], x[1] / 4),
            jnp.trapezoid(x),
            jnp.gradient(x),
            jnp.cross(x[:, :3], x[:, 1:4]),
            interpolated,
        )

    return computed(f, numbers(4, 6), np.array([0.5, 1.25, 3.0], np.float32))


@program
def images() -> Any:
    x = numbers(2, 4, 6, 3)
    nearest = jax.jit(lambda x: jax.image.resize(x, (2, 8, 9, 3), "nearest"))(x)
    return nearest, computed(lambda x: jax.image.resize(x, (2, 6, 9, 3), "linear"), x)


@program
def segments() -> Any:
    ids = np.array([0, 2, 2, 1, 0, 5])
    f = jax.jit(
        lambda x: (
            jax.ops.segment_sum(x, ids, 4),
            jax.ops.segment_max(x, ids, 3),
            jax.ops.segment_prod(x % 3, ids, 3),
        )
    )
    return f(ROWS)


@program
def sparse_matrices() -> Any:
    from jax.experimental import sparse

    dense = np.where(ROWS % 3 == 0, ROWS, 0)

    def f(dense: Any, x: Any) -> Any:
        matrix = sparse.BCOO.fromdense(dense, nse=30)
        return matrix.indices, matrix.data, matrix @ x, cast("Any", matrix.T).todense()

    return jax.jit(f)(dense, np.arange(8, dtype=np.int32))


@program
def large_arrays_on_many_threads() -> Any:
    x = integers(700, 900)

    def f(x: Any) -> Any:
        return (
            (x * 3 + 1).sum(0),
            jnp.sort(x, 1)[:, ::300].sum(),
            (x @ x.T).trace(),
            x.T.reshape(-1)[::50000],
            x.max(1),
        )

    return jax.jit(f)(x)
