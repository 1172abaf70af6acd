"""Two-dimensional turbulence by Fourier transforms (vorticity equation, Heun's steps)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIZE, DT = 128, 1e-2


def build() -> Any:
    """Return the jitted step and the vorticity."""
    k = np.fft.fftfreq(SIZE, 1 / SIZE).astype(np.float32)[:, None]
    m = np.fft.rfftfreq(SIZE, 1 / SIZE).astype(np.float32)[None]
    square = k * k + m * m
    inverse = np.where(square > 0, 1 / np.maximum(square, 1), 0).astype(np.float32)
    kept = (np.abs(k) < SIZE / 3) & (m < SIZE / 3)

    def change(w: Any) -> Any:
        psi = w * inverse
        u, v, wx, wy = (
            jnp.fft.irfft2(part) for part in (1j * m * psi, -1j * k * psi, 1j * k * w, 1j * m * w)
        )
        return -1.0 * kept * jnp.fft.rfft2(u * wx + v * wy) - 1e-3 * square * w

    @jax.jit
    def advance(w: Any) -> Any:
        first = change(w)
        return w + DT / 2 * (first + change(w + DT * first))

    w = np.random.RandomState(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    return advance, jnp.fft.rfft2(jnp.asarray(w)) * (square < 100)


def step(state: Any) -> Any:
    """Advance; return the next state and the vorticity."""
    advance, w = state
    w = advance(w)
    return (advance, w), jnp.fft.irfft2(w)
