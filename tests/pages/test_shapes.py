"""The page "Operation semantics" on operations that arrange elements: what it says beyond its examples."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hloom import ops
from tests.arrays import f32
from tests.pages.both import rule_of, shape_of, value

X = np.arange(24, dtype=f32).reshape(2, 3, 4)


# -- Broadcast, BroadcastInDim


@pytest.mark.parametrize("sizes", [[], [1], [5], [2, 3], [0], [2, 0]])
def test_broadcast_puts_the_new_dimensions_on_the_left(sizes: list[int]) -> None:
    found = value(lambda x: ops.Broadcast(x, sizes), X)
    assert found.shape == (*sizes, 2, 3, 4)
    assert (found == np.broadcast_to(X, found.shape)).all()


@pytest.mark.parametrize(
    ("operand", "sizes", "dimensions"),
    [
        ((2,), (2, 3), (0,)), ((3,), (2, 3), (1,)), ((1, 3), (2, 3), (0, 1)), ((1, 1), (4, 2, 3), (0, 2)),
        ((2, 3), (2, 5, 3), (0, 2)), ((), (2, 2), ()), ((1,), (0, 3), (0,)), ((2, 3), (2, 3), (0, 1)),
    ],
)  # fmt: skip
def test_dimension_i_goes_to_broadcast_dimension_i(operand: Any, sizes: Any, dimensions: Any) -> None:
    x = np.arange(math.prod(operand), dtype=f32).reshape(operand) + 1
    found = value(lambda x: ops.BroadcastInDim(x, sizes, dimensions), x)
    assert found.shape == sizes
    for index in np.ndindex(*sizes):
        source = tuple(0 if x.shape[i] == 1 else index[d] for i, d in enumerate(dimensions))
        assert found[index] == x[source]


def test_sizes_are_one_or_those_of_the_result() -> None:
    assert rule_of(lambda x: ops.BroadcastInDim(x, [4], [0]), "f32[2]") == "broadcasting.sizes"
    assert rule_of(lambda x: ops.BroadcastInDim(x, [4], [1]), "f32[4]") == "broadcasting.dimensions-in-range"
    assert rule_of(lambda x: ops.BroadcastInDim(x, [4, 4], []), "f32[4]") == "broadcasting.dimensions-count"


# -- Collapse, Reshape


def test_collapse_keeps_the_lowest_dimension_the_slowest() -> None:
    for first, last in itertools.combinations(range(4), 2):
        x = np.arange(2 * 3 * 4 * 5, dtype=f32).reshape(2, 3, 4, 5)
        dimensions = list(range(first, last + 1))
        found = value(lambda x, d=dimensions: ops.Collapse(x, d), x)
        merged = math.prod(x.shape[first : last + 1])
        assert found.shape == (*x.shape[:first], merged, *x.shape[last + 1 :])
        assert (found.ravel() == x.ravel()).all()


@pytest.mark.parametrize("dimensions", [[1, 0], [0, 2], [0, 0], [2, 1, 0]])
def test_collapsed_dimensions_are_consecutive_and_in_order(dimensions: list[int]) -> None:
    assert rule_of(lambda x: ops.Collapse(x, dimensions), "f32[4,2,3]") == "collapse.consecutive"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("sizes", [[24], [4, 6], [2, 2, 2, 3], [1, 24, 1]])
def test_reshape_flattens_in_an_order_and_refines(order: Any, sizes: list[int]) -> None:
    found = value(lambda x: ops.Reshape(x, list(order), sizes), X)
    flat = [
        X[tuple(np.array(index)[np.argsort(order)])] for index in np.ndindex(*(X.shape[d] for d in order))
    ]
    assert (found == np.reshape(flat, sizes)).all()


def test_new_sizes_have_as_many_elements_and_dimensions_are_a_permutation() -> None:
    assert rule_of(lambda x: ops.Reshape(x, [5]), "f32[2,3]").startswith("reshape.")
    assert rule_of(lambda x: ops.Reshape(x, [0, 0], [6]), "f32[2,3]").startswith("transpose.")
    assert rule_of(lambda x: ops.Reshape(x, [0], [6]), "f32[2,3]").startswith("transpose.")
    assert value(lambda x: ops.Reshape(x, [0, 3]), np.zeros((3, 0), f32)).shape == (0, 3)


# -- Rev, Transpose


@pytest.mark.parametrize("count", range(4))
def test_rev_turns_index_i_into_n_minus_1_minus_i(count: int) -> None:
    for dimensions in itertools.combinations(range(3), count):
        found = value(lambda x, d=dimensions: ops.Rev(x, d), X)
        assert (found == np.flip(X, dimensions)).all()


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_result_dimension_i_is_input_dimension_permutation_i(permutation: tuple[int, ...]) -> None:
    found = value(lambda x: ops.Transpose(x, permutation), X)
    assert [X.shape[p] for p in permutation] == list(found.shape)
    same = value(lambda x: ops.Reshape(x, permutation, [X.shape[p] for p in permutation]), X)
    assert (found == X.transpose(permutation)).all()
    assert (found == same).all()


# -- Concatenate


def test_concatenate_of_many_in_their_order() -> None:
    for dimension in range(3):
        parts = [np.full([5 if d == dimension else 2 for d in range(3)], n, f32) for n in range(4)]
        found = value(lambda *p, d=dimension: ops.ConcatInDim(p, d), *parts)
        assert (found == np.concatenate(parts, dimension)).all()
    assert (value(lambda x: ops.Concatenate([x], 0), X) == X).all()


def test_concatenated_arrays_differ_in_the_dimension_only() -> None:
    assert rule_of(lambda a, b: ops.Concatenate([a, b], 0), "f32[2,3]", "f32[2,4]").startswith("concatenate.")
    assert rule_of(lambda a, b: ops.Concatenate([a, b], 0), "f32[2,3]", "f32[2]").startswith("concatenate.")
    assert rule_of(lambda a, b: ops.Concatenate([a, b], 0), "f32[]", "f32[]").startswith("concatenate.")
    assert rule_of(lambda a, b: ops.Concatenate([a, b], 0), "f32[2]", "s32[2]").startswith("concatenate.")
    assert rule_of(lambda a: ops.Concatenate([a], 1), "f32[2]").startswith("concatenate.")
    assert rule_of(lambda a: ops.Concatenate([], 0), "f32[2]") == "concatenate.operands"


# -- Slice, Pad


def test_slices_take_every_stride_th_element() -> None:
    x = np.arange(70, dtype=f32).reshape(7, 10)
    for start, limit, stride in ((0, 7, 1), (1, 6, 2), (2, 7, 3), (3, 3, 1), (6, 7, 5), (0, 7, 7)):
        found = value(lambda x, a=(start, limit, stride): ops.Slice(x, [a[0], 2], [a[1], 9], [a[2], 3]), x)
        assert (found == x[start:limit:stride, 2:9:3]).all()
    assert (value(lambda x: ops.Slice(x, [2], [4]), np.arange(5)) == [2, 3]).all()


@pytest.mark.parametrize(
    ("starts", "limits", "strides"),
    [([-1, 0], [2, 2], [1, 1]), ([1, 0], [0, 2], [1, 1]), ([0, 0], [8, 2], [1, 1]), ([0, 0], [2, 2], [1, 0]),
     ([0], [2], [1]), ([0, 0], [2, 2], [1, -1])],
)  # fmt: skip
def test_bounds_of_slices(starts: Any, limits: Any, strides: Any) -> None:
    assert rule_of(lambda x: ops.Slice(x, starts, limits, strides), "f32[7,10]").startswith("slice.")


def padded(x: np.ndarray, fill: Any, config: Any) -> np.ndarray:
    """The page's definition: interior padding first, then the edges, of which negative ones crop."""
    for axis, (low, high, interior) in enumerate(config):
        spread = np.full(
            [s if a != axis else s + max(s - 1, 0) * interior for a, s in enumerate(x.shape)], fill
        )
        spread[(slice(None),) * axis + (slice(None, None, interior + 1),)] = x
        wide = np.full(
            [s if a != axis else s + max(low, 0) + max(high, 0) for a, s in enumerate(spread.shape)], fill
        )
        size = spread.shape[axis]
        wide[(slice(None),) * axis + (slice(max(low, 0), max(low, 0) + size),)] = spread
        x = wide[(slice(None),) * axis + (slice(max(-low, 0), wide.shape[axis] - max(-high, 0)),)]
    return x


@pytest.mark.parametrize("low", [-2, 0, 3])
@pytest.mark.parametrize("high", [-1, 0, 2])
@pytest.mark.parametrize("interior", [0, 1, 3])
def test_pad(low: int, high: int, interior: int) -> None:
    x = np.arange(1, 13, dtype=f32).reshape(3, 4)
    config = [(low, high, interior), (high, low, 1)]
    found = value(lambda x: ops.Pad(x, f32(-7), config), x)
    wanted = padded(x, f32(-7), config)
    assert found.shape == wanted.shape
    assert (found == wanted).all()


def test_padding_takes_a_scalar_and_no_negative_interior() -> None:
    assert rule_of(lambda x: ops.Pad(x, 0, [(0, 0, -1)]), "f32[4]").startswith("pad.")
    assert rule_of(lambda x: ops.Pad(x, x, [(0, 0, 0)]), "f32[4]").startswith("pad.")
    assert rule_of(lambda x: ops.Pad(x, 0, [(0, 0), (0, 0)]), "f32[4]").startswith("pad.")
    assert rule_of(lambda x, v: ops.Pad(x, v, [(0, 0)]), "f32[4]", "s32[]").startswith("pad.")
    assert rule_of(lambda x: ops.Pad(x, 0, [(-3, -3)]), "f32[4]").startswith("pad.")


# -- Iota


@pytest.mark.parametrize("element_type", ["s8", "u16", "s32", "u64", "f32", "bf16", "f64", "c64"])
def test_iota_of_floats_is_the_converted_iota_of_integers(element_type: str) -> None:
    count = 100 if element_type == "s8" else 300
    for dimension, sizes in ((0, f"[{count},3]"), (1, f"[3,{count}]")):
        found = value(lambda b, d=dimension, s=sizes: ops.Iota(b, element_type + s, d))
        integers = value(
            lambda b, d=dimension, s=sizes: ops.ConvertElementType(ops.Iota(b, "s32" + s, d), element_type)
        )
        assert found.tobytes() == integers.tobytes()


def test_iota_needs_a_dimension_of_the_shape() -> None:
    assert rule_of(lambda x: ops.Iota(x.builder, "s32[4]", 1), "f32[]").startswith("iota.")
    assert shape_of(lambda x: ops.Iota(x.builder, "s32[0]", 0), "f32[]") == "s32[0]"
