"""XLA's page "Broadcasting semantics", example by example."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom import HloError, ops
from hloom.shape.shape import Shape
from tests.arrays import f32
from tests.builder.building import built, value

MATRIX = f32([[1, 2, 3], [4, 5, 6]])


def test_a_scalar_meets_a_matrix() -> None:
    assert value(lambda x, y: ops.Add(x, y), MATRIX, f32(7)).tolist() == [[8, 9, 10], [11, 12, 13]]
    assert value(lambda x, y: ops.Add(y, x), MATRIX, f32(7)).tolist() == [[8, 9, 10], [11, 12, 13]]


def test_a_vector_is_repeated_over_rows() -> None:
    result = value(lambda x, v: ops.Add(x, v, [1]), MATRIX, f32([7, 8, 9]))
    assert result.tolist() == [[8, 10, 12], [11, 13, 15]]


@pytest.mark.parametrize(
    ("dimension", "expected"), [(1, [[7, 8, 9]] * 3), (0, [[7, 7, 7], [8, 8, 8], [9, 9, 9]])]
)
def test_a_vector_meets_a_square_matrix_in_two_ways(dimension: int, expected) -> None:
    zeros = np.zeros((3, 3), f32)
    assert value(lambda x, v: ops.Add(x, v, [dimension]), zeros, f32([7, 8, 9])).tolist() == expected
    assert value(lambda x, v: ops.Add(v, x, [dimension]), zeros, f32([7, 8, 9])).tolist() == expected


def test_a_matrix_meets_two_dimensions_of_a_cuboid() -> None:
    cuboid, matrix = np.arange(24, dtype=f32).reshape(2, 3, 4), np.arange(12, dtype=f32).reshape(3, 4)
    assert (value(lambda x, y: ops.Mul(x, y, (1, 2)), cuboid, matrix) == cuboid * matrix).all()
    assert (value(lambda x, y: ops.Mul(x, y, (0, 2)), cuboid, matrix[:2]) == cuboid * matrix[:2, None]).all()


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ((2, 1), (2, 3), (2, 3)),
        ((1, 2, 5), (7, 2, 5), (7, 2, 5)),
        ((7, 2, 5), (7, 1, 5), (7, 2, 5)),
        ((2, 1), (1, 3), (2, 3)),
        ((0, 1), (1, 3), (0, 3)),
    ],
)
def test_dimensions_of_size_one_are_repeated(left, right, result) -> None:
    a, b = np.random.default_rng(0).random(left, f32), np.random.default_rng(1).random(right, f32)
    found = value(ops.Sub, a, b)
    assert found.shape == result
    assert (found == a - b).all()


def test_both_kinds_together() -> None:
    vector, row = f32([1, 2, 3, 4]), f32([[5, 6]])
    assert value(lambda x, y: ops.Add(x, y, [0]), vector, row).tolist() == [[6, 7], [7, 8], [8, 9], [9, 10]]
    assert built(
        lambda x, y: ops.Add(x, y, [1, 2]), "f32[1,2]", "f32[4,3,1]"
    ).entry.root.shape.dimensions == (4, 3, 2)


@pytest.mark.parametrize(
    ("shapes", "dimensions", "rule"),
    [
        (("f32[2,3]", "f32[3]"), None, "broadcasting.ranks"),
        (("f32[2,3]", "f32[3]"), [0], "broadcasting.sizes"),
        (("f32[7,2,5]", "f32[7,2,6]"), None, "broadcasting.sizes"),
        (("f32[2,3]", "f32[3]"), [0, 1], "broadcasting.dimensions-count"),
        (("f32[2,3]", "f32[3]"), [2], "broadcasting.dimensions-in-range"),
        (("f32[2,3,4]", "f32[4,3]"), [2, 1], "broadcasting.dimensions-increasing"),
        (("f32[2,3,3]", "f32[3,3]"), [1, 1], "broadcasting.dimensions-increasing"),
        (("(f32[])", "f32[3]"), None, "broadcasting.arrays"),
    ],
)
def test_what_cannot_be_broadcast(shapes, dimensions, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        built(lambda x, y: ops.Add(x, y, dimensions), *shapes)
    assert caught.value.rule == rule


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["both", "left", "right"])), max_size=4))
def test_degenerate_broadcasting_is_that_of_numpy(dimensions) -> None:
    left = [1 if kind == "left" else size for size, kind in dimensions]
    right = [1 if kind == "right" else size for size, kind in dimensions]
    a, b = np.random.default_rng(0).random(left, f32), np.random.default_rng(1).random(right, f32)
    assert (value(ops.Add, a, b) == a + b).all()


def test_a_scalar_takes_the_run_time_size_of_a_dynamic_dimension() -> None:
    c = built(lambda x, y: ops.Add(x, y), "f32[<=5]", "f32[]")
    assert str(c.entry.root.shape) == str(Shape.parse("f32[<=5]"))


def test_select_and_clamp_repeat_scalars() -> None:
    x = f32([-1, 5, 9])
    assert value(lambda v: ops.Clamp(0, v, 6), x).tolist() == [0, 5, 6]
    assert value(lambda v: ops.Select(v > 0, v, 0), x).tolist() == [0, 5, 9]
    assert value(lambda v: ops.Select(True, 1, v), x).tolist() == [1, 1, 1]
