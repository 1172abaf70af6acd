"""Fourier transforms, convolutions and windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import normal, program


@program(normal(64, 257))
def spectrum_of_odd_length(x: Any) -> Any:
    return jnp.abs(jnp.fft.rfft(x))


@program(normal(64, 1024))
def fft_of_a_power_of_two(x: Any) -> Any:
    return jnp.fft.fft(x).real


@program(normal(64, 251))
def fft_of_prime_length(x: Any) -> Any:
    return jnp.fft.fft(x).real


@program(normal(8, 4000), normal(8, 4000))
def convolution_by_fft(x: Any, y: Any) -> Any:
    return jnp.fft.irfft(jnp.fft.rfft(x, 8000) * jnp.fft.rfft(y, 8000))


@program(normal(100_000), normal(15))
def convolution(x: Any, kernel: Any) -> Any:
    return jnp.convolve(x, kernel, mode="same")


@program(normal(1, 1, 256, 256), normal(1, 1, 7, 7))
def correlation_of_an_image(x: Any, kernel: Any) -> Any:
    return lax.conv(x, kernel, (1, 1), "SAME")


@program(normal(4, 56, 56, 64), normal(3, 3, 1, 64))
def depthwise_convolution(x: Any, kernel: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=64
    )


@program(normal(8, 112, 112, 32))
def max_pooling(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@program(normal(8, 56, 56, 32))
def max_pooling_gradient(x: Any) -> Any:
    def loss(x: Any) -> Any:
        return (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") ** 2).sum()

    return jax.grad(loss)(x)


@program(normal(8, 112, 112, 32))
def average_pooling(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4


@program(normal(4, 64, 56, 56))
def max_pooling_gradient_of_overlapping_windows(x: Any) -> Any:
    def loss(x: Any) -> Any:
        return (lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") ** 2).sum()

    return jax.grad(loss)(x)


@program(normal(201, 303, 3))
def box_filter_of_colors(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (11, 11, 1), (1, 1, 1), "SAME") / 121


@program(normal(256, 256))
def erosion(x: Any) -> Any:
    return lax.reduce_window(x, jnp.inf, lax.min, (9, 9), (1, 1), "SAME")


@program(normal(50_000))
def moving_average(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (100,), (1,), "VALID") / 100


@program(normal(201, 303, 3))
def padding_by_edges(x: Any) -> Any:
    return jnp.pad(x, ((4, 4), (4, 4), (0, 0)), mode="edge")


@program(normal(2, 56, 56, 50), normal(3, 3, 50, 1))
def convolution_to_one_feature(x: Any, kernel: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


@program(normal(4, 64, 64, 16))
def resize(x: Any) -> Any:
    return jax.image.resize(x, (4, 128, 128, 16), "bilinear")
