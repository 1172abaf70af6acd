"""Arithmetic modulo the prime against Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.proofs import field
from hloom.proofs.field import PRIME

numbers = st.one_of(
    st.integers(0, PRIME - 1), st.sampled_from([0, 1, PRIME - 1, 1 << 31, (1 << 31) - 1, 1 << 60])
)
vectors = st.lists(numbers, min_size=1, max_size=9)


def residues(values: list[int]) -> field.Residues:
    return np.asarray(values, np.uint64)


@given(vectors, numbers)
def test_ring(values: list[int], other: int) -> None:
    a, b = residues(values), residues([other] * len(values))
    assert field.add(a, b).tolist() == [(x + other) % PRIME for x in values]
    assert field.subtract(a, b).tolist() == [(x - other) % PRIME for x in values]
    assert field.multiply(a, b).tolist() == [x * other % PRIME for x in values]
    assert field.negate(a).tolist() == [-x % PRIME for x in values]


@given(vectors)
def test_inverse_of_every_element(values: list[int]) -> None:
    assert field.inverse(residues(values)).tolist() == [pow(x, PRIME - 2, PRIME) for x in values]


@given(vectors)
def test_sums_and_products(values: list[int]) -> None:
    product = 1
    for x in values:
        product = product * x % PRIME
    assert int(field.total(residues(values))) == sum(values) % PRIME
    assert int(field.product(residues(values))) == product


@given(st.integers(0, 2**32))
def test_products_of_matrices(seed: int) -> None:
    generator = np.random.default_rng(seed)
    a = generator.integers(0, PRIME, (2, 3, 5), dtype=np.uint64)
    b = generator.integers(0, PRIME, (2, 5, 4), dtype=np.uint64)
    a[0, 0, 0] = b[1, 4, 3] = PRIME - 1
    exact = a.astype(object) @ b.astype(object) % PRIME
    assert field.matmul(a, b).tolist() == exact.tolist()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_dyadic_fractions(x: float) -> None:
    fraction = Fraction(x)
    wanted = fraction.numerator * pow(fraction.denominator, PRIME - 2, PRIME) % PRIME
    assert int(field.of_floats(np.float64(x))) == wanted


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_integers_of_all_widths(dtype: type[np.integer]) -> None:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 1]
    assert field.of_integers(np.asarray(values, dtype)).tolist() == [x % PRIME for x in values]


def test_random_functions_differ_by_salt_order_and_position() -> None:
    a, b = residues([1, 2, 3]), residues([4, 5, 6])
    assert field.mix(0, a, b).tolist() == field.mix(0, a, b).tolist()
    assert field.mix(0, a, b).tolist() != field.mix(1, a, b).tolist()
    assert field.mix(0, a, b).tolist() != field.mix(0, b, a).tolist()
    assert int(field.sequence(0, a)) != int(field.sequence(0, a[::-1]))
