"""The page "Operation semantics" on Dot, DotGeneral and convolutions: what it says beyond its examples."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hloom import ops
from tests.arrays import f32
from tests.pages.both import rule_of, shape_of, value


def small(*shape: int, seed: int = 0) -> Any:
    """Small integers as floats, so that sums of products are exact in any order."""
    return f32(np.random.default_rng(seed).integers(-4, 5, shape))


# -- Dot, DotGeneral


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [((5,), (5,)), ((3, 5), (5,)), ((3, 5), (5, 4)), ((5,), (5, 4)), ((0, 5), (5, 2)), ((3, 0), (0, 2))],
)
def test_dot_contracts_the_last_dimension_with_the_first(lhs: Any, rhs: Any) -> None:
    x, y = small(*lhs), small(*rhs, seed=1)
    assert (value(ops.Dot, x, y) == np.tensordot(x, y, 1)).all()


def test_contracted_sizes_are_equal() -> None:
    assert rule_of(ops.Dot, "f32[3,5]", "f32[4]").startswith("dot.")
    assert rule_of(ops.Dot, "f32[]", "f32[4]") == "dot.rank"


CASES = [
    ((2, 3, 4), (2, 4, 5), [2], [1], [0], [0]), ((2, 6, 3, 4), (2, 6, 4, 5), [3], [2], [0, 1], [0, 1]),
    ((3, 4, 2), (5, 2, 4), [1, 2], [2, 1], [], []), ((4, 2, 3), (5, 4, 2), [0], [1], [1], [2]),
    ((3,), (4,), [], [], [], []), ((2, 3), (2, 3), [], [], [0, 1], [0, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("lhs", "rhs", "lc", "rc", "lb", "rb"), CASES)
def test_result_dimensions_are_batch_then_lhs_then_rhs(
    lhs: Any, rhs: Any, lc: Any, rc: Any, lb: Any, rb: Any
) -> None:
    x, y = small(*lhs), small(*rhs, seed=1)
    numbers = {"lhs_contracting_dimensions": lc, "rhs_contracting_dimensions": rc, "lhs_batch_dimensions": lb,
               "rhs_batch_dimensions": rb}  # fmt: skip
    names = iter("abcdefghijklmnop")
    left, right = [next(names) for _ in lhs], [next(names) for _ in rhs]
    for a, b in zip([*lc, *lb], [*rc, *rb], strict=True):
        right[b] = left[a]
    out = [left[d] for d in lb]
    out += [name for d, name in enumerate(left) if d not in (*lc, *lb)]
    out += [name for d, name in enumerate(right) if d not in (*rc, *rb)]
    wanted = np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y)
    found = value(lambda x, y: ops.DotGeneral(x, y, numbers), x, y)
    assert found.shape == wanted.shape
    assert (found == wanted).all()


@pytest.mark.parametrize(
    "numbers",
    [
        {"lhs_contracting_dims": [1], "rhs_contracting_dims": [1]},  # sizes 3 and 4
        {
            "lhs_contracting_dims": [1],
            "rhs_contracting_dims": [0],
            "lhs_batch_dims": [0],
            "rhs_batch_dims": [1],
        },
        {"lhs_contracting_dims": [2], "rhs_contracting_dims": [0]},
        {"lhs_contracting_dims": [1, 1], "rhs_contracting_dims": [0, 0]},
        {
            "lhs_contracting_dims": [1],
            "rhs_contracting_dims": [0],
            "lhs_batch_dims": [1],
            "rhs_batch_dims": [0],
        },
        {"lhs_contracting_dims": [1], "rhs_contracting_dims": []},
    ],
)
def test_rules_of_dimension_numbers(numbers: Any) -> None:
    assert rule_of(lambda x, y: ops.DotGeneral(x, y, numbers), "f32[2,3]", "f32[3,4]").startswith("dot.")


# -- convolutions


def convolved(
    x: Any, k: Any, strides: Any, pads: Any, lhs_dilation: Any, rhs_dilation: Any, groups: int, batches: int
) -> Any:
    """The page's definition: holes of zeros, zero padding (negative crops), then windows in groups."""
    n = len(strides)
    wide = np.zeros(
        [*x.shape[:2], *(max((s - 1) * d + 1, 0) for s, d in zip(x.shape[2:], lhs_dilation, strict=True))],
        x.dtype,
    )
    wide[(slice(None),) * 2 + tuple(slice(None, None, d) for d in lhs_dilation)] = x
    for axis, (low, high) in enumerate(pads, 2):
        wide = np.pad(wide, [(max(low, 0), max(high, 0)) if a == axis else (0, 0) for a in range(wide.ndim)])
        wide = np.take(wide, range(max(-low, 0), wide.shape[axis] - max(-high, 0)), axis)
    extent = [(s - 1) * d + 1 for s, d in zip(k.shape[2:], rhs_dilation, strict=True)]
    counts = [max((s - e) // t + 1, 0) for s, e, t in zip(wide.shape[2:], extent, strides, strict=True)]
    outputs, inputs = k.shape[:2]
    result = np.zeros([x.shape[0] // batches, outputs, *counts], x.dtype)
    for b, oz in np.ndindex(*result.shape[:2]):
        first = oz // (outputs // groups) * inputs  # the features of this output's group
        batch = oz // (outputs // batches) * result.shape[0] + b  # the batches of this output's group
        for place in np.ndindex(*counts):
            window = tuple(
                slice(i * t, i * t + e, d)
                for i, t, e, d in zip(place, strides, extent, rhs_dilation, strict=True)
            )
            result[(b, oz, *place)] = (wide[(batch, slice(first, first + inputs), *window)] * k[oz]).sum()
    assert n == len(counts)
    return result


CONVOLUTIONS = {
    "plain": ((2, 3, 5, 6), (4, 3, 2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1),
    "strided and padded": ((2, 3, 5, 6), (5, 3, 2, 3), (2, 3), ((1, 2), (2, 3)), (1, 1), (1, 1), 1, 1),
    "negative padding": ((1, 2, 7, 6), (3, 2, 2, 2), (1, 1), ((-1, 0), (2, -2)), (1, 1), (1, 1), 1, 1),
    "lhs dilation": ((1, 2, 4, 3), (3, 2, 3, 2), (1, 2), ((1, 1), (0, 0)), (2, 3), (1, 1), 1, 1),
    "rhs dilation": ((1, 2, 7, 8), (3, 2, 2, 3), (1, 1), ((0, 0), (1, 0)), (1, 1), (3, 2), 1, 1),
    "feature groups": ((2, 6, 5, 5), (4, 3, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 2, 1),
    "depthwise": ((1, 4, 5, 5), (8, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 4, 1),
    "batch groups": ((6, 2, 5, 5), (6, 2, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 3),
    "one dimension": ((2, 3, 9), (4, 3, 3), (2,), ((1, 1),), (1,), (1,), 1, 1),
    "three dimensions": (
        (1, 2, 4, 3, 5), (3, 2, 2, 2, 2), (1, 1, 2), ((0, 0), (1, 0), (0, 1)), (1,) * 3, (1,) * 3, 1, 1
    ),
    "no position": ((1, 1, 2, 2), (1, 1, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    lhs, rhs, *rest = CONVOLUTIONS[name]
    x, k = small(*lhs), small(*rhs, seed=1)
    found = value(lambda x, k: ops.ConvWithGeneralPadding(x, k, *rest), x, k)
    wanted = convolved(x, k, *rest)
    assert found.shape == wanted.shape
    assert (found == wanted).all()


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_same_keeps_the_shape_but_for_strides_and_valid_pads_nothing(stride: int, size: int) -> None:
    x, k = small(1, 1, 7), small(1, 1, size, seed=1)
    same = value(lambda x, k: ops.Conv(x, k, [stride], "SAME"), x, k)
    assert same.shape == (1, 1, -(-7 // stride))
    total = max((same.shape[2] - 1) * stride + size - 7, 0)
    pads = ((total // 2, total - total // 2),)
    assert (same == convolved(x, k, (stride,), pads, (1,), (1,), 1, 1)).all()
    valid = value(lambda x, k: ops.Conv(x, k, [stride], "VALID"), x, k)
    assert (valid == convolved(x, k, (stride,), ((0, 0),), (1,), (1,), 1, 1)).all()


def test_each_output_feature_is_a_convolution_of_its_own() -> None:
    x, k = small(2, 3, 6, 6), small(5, 3, 3, 3, seed=1)
    whole = value(lambda x, k: ops.Conv(x, k, [1, 1], "VALID"), x, k)
    for z in range(5):
        assert (
            value(lambda x, k: ops.Conv(x, k, [1, 1], "VALID"), x, k[z : z + 1]) == whole[:, z : z + 1]
        ).all()


@pytest.mark.parametrize(
    ("lhs", "rhs", "groups", "batches"),
    [
        ("f32[2,3,5,5]", "f32[4,2,2,2]", 1, 1),  # input-z times the groups is the number of features
        ("f32[2,4,5,5]", "f32[4,2,2,2]", 1, 1), ("f32[2,5,5,5]", "f32[4,2,2,2]", 2, 1),
        ("f32[2,4,5,5]", "f32[3,2,2,2]", 2, 1),  # groups divide the output's features
        ("f32[5,2,5,5]", "f32[4,2,2,2]", 1, 2),  # batch groups divide the batch
        ("f32[4,2,5,5]", "f32[3,2,2,2]", 1, 2),  # and the output's features
        ("f32[2,3,5]", "f32[4,3,2,2]", 1, 1), ("f32[4,4,5,5]", "f32[4,2,2,2]", 2, 2),
        ("f32[4,4,5,5]", "f32[4,4,2,2]", 0, 1), ("f32[4,4,5,5]", "f32[4,4,2,2]", 1, 0),
    ],
)  # fmt: skip
def test_rules_of_convolutions(lhs: str, rhs: str, groups: int, batches: int) -> None:
    rule = rule_of(lambda x, k: ops.Conv(x, k, [1, 1], "VALID", groups, batches), lhs, rhs)
    assert rule.startswith(("convolution.", "window."))


def test_sizes_of_the_output() -> None:
    for count, size, stride, low, high in itertools.product((5, 8), (1, 3), (1, 2), (0, 2), (0, 1)):
        shape = shape_of(
            lambda x, k, s=stride, p=(low, high): ops.ConvWithGeneralPadding(x, k, [s], [p]),
            f"f32[3,2,{count}]", f"f32[4,2,{size}]",
        )  # fmt: skip
        assert shape == f"f32[3,4,{(count + low + high - size) // stride + 1}]"
