"""Augmentation of a batch of images: crops, flips, rotations, colours, resizing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

BATCH, SIZE, CROP = 16, 64, 48


def build() -> Any:
    """Return the jitted augmentation, images and a key."""

    def augment(image: Any, key: Any) -> Any:
        keys = jax.random.split(key, 4)
        corner = jax.random.randint(keys[0], (2,), 0, SIZE - CROP)
        x = jax.lax.dynamic_slice(image, (*corner, 0), (CROP, CROP, 3))
        x = jnp.where(jax.random.bernoulli(keys[1]), x[:, ::-1], x)
        angle = jax.random.uniform(keys[2], (), minval=-0.5, maxval=0.5)
        rows, columns = jnp.mgrid[:CROP, :CROP] - CROP / 2
        at = [
            jnp.cos(angle) * rows - jnp.sin(angle) * columns + CROP / 2,
            jnp.sin(angle) * rows + jnp.cos(angle) * columns + CROP / 2,
        ]
        x = jax.vmap(lambda c: map_coordinates(c, at, order=1, mode="nearest"), 2, 2)(x)
        gain, shift = jax.random.uniform(keys[3], (2, 3), minval=0.8, maxval=1.2)
        x = (x - x.mean()) * gain + shift * x.mean()
        return jnp.clip(jax.image.resize(x, (32, 32, 3), "linear"), 0, 1)

    @jax.jit
    def batch(images: Any, key: Any) -> Any:
        return jax.vmap(augment)(images, jax.random.split(key, BATCH))

    images = np.random.RandomState(0).uniform(0, 1, (BATCH, SIZE, SIZE, 3)).astype(np.float32)
    return batch, jnp.asarray(images), jax.random.key(0)


def step(state: Any) -> Any:
    """Augment the batch; return the next state and the images."""
    batch, images, key = state
    key, used = jax.random.split(key)
    return (batch, images, key), batch(images, used)
