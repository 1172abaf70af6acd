"""XLA:CPU as a second opinion leaves jax's settings alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests import oracle


def test_numbers_of_64_bits_without_a_change_of_jax_settings() -> None:
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    numbers = np.array([1 / 3, 2.0**-1000]), np.array([1 << 60, -1])
    text = (
        "HloModule m\nENTRY e {\n x = f64[2] parameter(0)\n y = s64[2] parameter(1)\n ROOT r = tuple(x, y)\n}"
    )
    found = oracle.run(text, *numbers)
    assert [f.dtype for f in found] == [np.float64, np.int64]
    assert [f.tolist() for f in found] == [n.tolist() for n in numbers]
    assert jax.config.jax_enable_x64 == before
