"""Gather, against the index formula of its page."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloom.fuzzing.generators.case import program
from hloom.fuzzing.generators.families import draw_case
from hloom.operations.gather_scatter import Gather
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape
from tests import agreement, oracle
from tests.arrays import s32
from tests.evaluation import evaluate, parse, refused

OPERAND = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)


def gather_text(operand: np.ndarray, indices: np.ndarray, attributes: str) -> str:
    """A program of one gather; its result shape is inferred."""
    types = [ElementType.from_dtype(a.dtype).name for a in (operand, indices)]
    shapes = [f"{t}[{','.join(map(str, a.shape))}]" for t, a in zip(types, (operand, indices), strict=True)]
    return (
        "HloModule gather\nENTRY e {\n"
        f"  operand = {shapes[0]} parameter(0)\n  indices = {shapes[1]} parameter(1)\n"
        f"  ROOT r = gather(operand, indices), {attributes}\n}}"
    )


def gather_one_by_one(operation: Gather, operand: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The page's formula: In = Sin (clamped) + Oin for every index Out of the result."""
    o = operation
    shape = o.infer(Shape.of(operand), Shape.of(indices))
    if o.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    batch_dims = [d for d in range(shape.rank) if d not in o.offset_dims]
    window = [d for d in range(operand.ndim) if d not in o.collapsed_slice_dims + o.operand_batching_dims]
    result = np.zeros(shape.dimensions, operand.dtype)
    for out in np.ndindex(*shape.dimensions):
        batch = [out[d] for d in batch_dims]
        vector = indices[(*batch[: o.index_vector_dim], slice(None), *batch[o.index_vector_dim :])]
        place = [0] * operand.ndim
        for k, d in enumerate(o.start_index_map):
            place[d] = min(max(int(vector[k]), 0), operand.shape[d] - o.slice_sizes[d])
        for d, b in zip(o.operand_batching_dims, o.start_indices_batching_dims, strict=True):
            place[d] = batch[b - (b > o.index_vector_dim)]
        for k, d in enumerate(window):
            place[d] += out[o.offset_dims[k]]
        result[out] = operand[tuple(place)]
    return result


# The page's examples.


def test_five_slices_at_five_places() -> None:
    starts = np.array([[0, 0], [8, 5], [3, 2], [7, 1], [100, -100]], np.int64)
    text = gather_text(
        OPERAND, starts,
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, "
        "slice_sizes={8,6}",
    )  # fmt: skip
    result = evaluate(text, OPERAND, starts)
    assert result.shape == (5, 8, 6)
    for part, (x, y) in zip(result, [(0, 0), (8, 5), (3, 2), (7, 1), (8, 0)], strict=True):
        agreement.equal(part, OPERAND[x : x + 8, y : y + 6])


def test_two_batch_dimensions() -> None:
    starts = np.random.default_rng(0).integers(0, 6, (4, 5, 2))
    text = gather_text(
        OPERAND, starts,
        "offset_dims={2,3}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=2, "
        "slice_sizes={8,6}",
    )  # fmt: skip
    result = evaluate(text, OPERAND, starts)
    for g0, g1, o0, o1 in [(0, 0, 0, 0), (3, 4, 7, 5), (2, 1, 5, 3)]:
        x, y = starts[g0, g1]
        assert result[g0, g1, o0, o1] == OPERAND[x + o0, y + o1]


def test_gather_nd_picks_whole_rows() -> None:
    rows = np.array([[[3], [0]], [[15], [3]]], np.int32)
    text = gather_text(
        OPERAND, rows,
        "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, "
        "slice_sizes={1,11}",
    )  # fmt: skip
    agreement.equal(evaluate(text, OPERAND, rows), OPERAND[rows[..., 0]])


# Indices of every type.

PICK = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}"


@pytest.mark.parametrize(
    ("indices", "picked"),
    [
        (np.array([200, 255], np.uint8), [200, 255]),
        (np.array([-128, 127], np.int8), [0, 127]),
        (np.array([2**64 - 1, 2**63, 299], np.uint64), [299, 299, 299]),
        (np.array([-(2**63), 2**63 - 1], np.int64), [0, 299]),
        (np.array([2**32 - 1, 5], np.uint32), [299, 5]),
        (np.array([15, 1], ml_dtypes.uint4), [15, 1]),
        (np.array([-8, 7], ml_dtypes.int4), [0, 7]),
    ],
)
def test_indices_are_clamped_whatever_their_type(indices: np.ndarray, picked: list[int]) -> None:
    operand = np.arange(300, dtype=np.float32)
    assert evaluate(gather_text(operand, indices, PICK), operand, indices).tolist() == picked


def test_the_start_is_clamped_before_the_offset_is_added() -> None:
    operand, starts = np.arange(10, dtype=np.int32), np.array([8, -3], np.int32)
    text = gather_text(operand, starts, PICK.replace("offset_dims={}", "offset_dims={1}")
                       .replace("collapsed_slice_dims={0}", "collapsed_slice_dims={}")
                       .replace("slice_sizes={1}", "slice_sizes={4}"))  # fmt: skip
    assert evaluate(text, operand, starts).tolist() == [[6, 7, 8, 9], [0, 1, 2, 3]]


# Nothing, and next to nothing.


def test_an_empty_index_vector_starts_at_0() -> None:
    indices = np.zeros((2, 0), np.int32)
    text = gather_text(
        OPERAND, indices,
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={}, index_vector_dim=1, "
        "slice_sizes={2,11}",
    )  # fmt: skip
    agreement.equal(evaluate(text, OPERAND, indices), np.stack([OPERAND[:2]] * 2))


def test_a_scalar_index() -> None:
    operand = np.arange(5, dtype=np.int32)
    text = gather_text(operand, s32(3), PICK.replace("index_vector_dim=1", "index_vector_dim=0"))
    assert evaluate(text, operand, np.int32(3)) == 3


@pytest.mark.parametrize("count", [0, 2])
def test_slices_of_size_0(count: int) -> None:
    operand, indices = np.zeros((0, 3), np.int32), np.zeros((count, 1), np.int32)
    text = gather_text(
        operand, indices,
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={0,3}",
    )  # fmt: skip
    assert evaluate(text, operand, indices).shape == (count, 0, 3)


# Any gather.


@pytest.mark.parametrize("block", range(10))
def test_any_gather_follows_the_formula(block: int) -> None:
    for number in range(30 * block, 30 * block + 30):
        case = draw_case("gather", number, seed=1).unfolded
        (root,) = case.module.entry.root.operands
        assert isinstance(root.operation, Gather)
        agreement.equal(
            evaluate(program([case]), *case.arguments)[0], gather_one_by_one(root.operation, *case.arguments)
        )


def test_the_second_opinion() -> None:
    starts = np.random.default_rng(1).integers(-5, 30, (3, 2)).astype(np.int32)
    text = gather_text(
        OPERAND, starts,
        "offset_dims={0,2}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=1, "
        "slice_sizes={3,4}",
    )  # fmt: skip
    agreement.equal(evaluate(text, OPERAND, starts), oracle.run(text, OPERAND, starts)[0])


def test_dynamic_dimensions_propagate() -> None:
    text = """o = f32[<=10,4] parameter(0)
    i = s32[<=6,1] parameter(1)
    ROOT r = gather(o, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0},
        index_vector_dim=1, slice_sizes={10,2}"""
    assert parse(text).entry.root.shape.to_string(layout=False) == "f32[<=6,<=10,2]"


# What is refused.

PARAMETERS = """o = f32[10,9,8,7,6] parameter(0)
i = s64[10,9,8,7,5] parameter(1)
f = f32[10,9,8,7,5] parameter(2)
b = f32[10,9,8,7,6] parameter(3)
k = s64[10,9,8,7,3] parameter(4)
t = (f32[10]) parameter(5)
"""
GATHER = (
    "r = gather(o, i), offset_dims={4,5,6,7,8}, collapsed_slice_dims={}, start_index_map={0,1,2,3,4}, "
    "index_vector_dim=4, slice_sizes={10,9,8,7,6}"
)
BATCHED = (
    "r = gather(o, k), offset_dims={4,5,6}, collapsed_slice_dims={}, start_index_map={2,3,4}, "
    "operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, index_vector_dim=4, "
    "slice_sizes={1,1,8,7,6}"
)
MINE, THEIRS = "operand_batching_dims=", "start_indices_batching_dims="


@pytest.mark.parametrize(
    ("rule", "text", "old", "new"),
    [
        ("operand-array", GATHER, "(o, i)", "(t, i)"),
        ("operand-array", GATHER, "(o, i)", "(o, t)"),
        ("indices-integer", GATHER, "(o, i)", "(o, f)"),
        ("index_vector_dim-range", GATHER, "index_vector_dim=4", "index_vector_dim=6"),
        ("index_vector_dim-range", GATHER, "index_vector_dim=4", "index_vector_dim=-1"),
        ("offset_dims-sorted", GATHER, "{4,5,6,7,8}", "{4,5,6,8,7}"),
        ("offset_dims-unique", GATHER, "{4,5,6,7,8}", "{4,5,6,7,7}"),
        ("offset_dims-range", GATHER, "{4,5,6,7,8}", "{4,5,6,7,9}"),
        ("offset_dims-range", GATHER, "{4,5,6,7,8}", "{-1,5,6,7,8}"),
        ("offset_dims-count", GATHER, "{4,5,6,7,8}", "{4,5,6,7}"),
        ("collapsed_slice_dims-sorted", GATHER, "collapsed_slice_dims={}", "collapsed_slice_dims={3,2}"),
        ("collapsed_slice_dims-unique", GATHER, "collapsed_slice_dims={}", "collapsed_slice_dims={2,2}"),
        ("collapsed_slice_dims-range", GATHER, "collapsed_slice_dims={}", "collapsed_slice_dims={5}"),
        ("start_index_map-size", GATHER, "{0,1,2,3,4}", "{0,1,2,3}"),
        ("start_index_map-unique", GATHER, "{0,1,2,3,4}", "{0,1,2,3,3}"),
        ("start_index_map-range", GATHER, "{0,1,2,3,4}", "{0,1,2,3,5}"),
        ("slice_sizes-count", GATHER, "{10,9,8,7,6}", "{10,9,8,7}"),
        ("slice_sizes-range", GATHER, "{10,9,8,7,6}", "{11,9,8,7,6}"),
        ("slice_sizes-range", GATHER, "{10,9,8,7,6}", "{-1,9,8,7,6}"),
        (
            "collapsed_slice_dims-slice-size", GATHER,
            "{4,5,6,7,8}, collapsed_slice_dims={}", "{4,5,6,7}, collapsed_slice_dims={1}",
        ),
        ("operand_batching_dims-sorted", BATCHED, MINE + "{0,1}", MINE + "{1,0}"),
        ("operand_batching_dims-unique", BATCHED, MINE + "{0,1}", MINE + "{0,0}"),
        ("operand_batching_dims-range", BATCHED, MINE + "{0,1}", MINE + "{0,5}"),
        ("operand_batching_dims-slice-size", BATCHED, "{1,1,8,7,6}", "{2,1,8,7,6}"),
        ("start_indices_batching_dims-unique", BATCHED, THEIRS + "{0,1}", THEIRS + "{0,0}"),
        ("start_indices_batching_dims-range", BATCHED, THEIRS + "{0,1}", THEIRS + "{0,5}"),
        ("start_indices_batching_dims-count", BATCHED, THEIRS + "{0,1}", THEIRS + "{0}"),
        ("start_indices_batching_dims-size", BATCHED, THEIRS + "{0,1}", THEIRS + "{1,0}"),
        (
            "start_indices_batching_dims-index_vector_dim", BATCHED,
            THEIRS + "{0,1}", THEIRS + "{0,4}",
        ),
        (
            "collapsed_slice_dims-operand_batching_dims-disjoint", BATCHED,
            "collapsed_slice_dims={}", "collapsed_slice_dims={1}",
        ),
        ("start_index_map-operand_batching_dims-disjoint", BATCHED, "{2,3,4}", "{2,3,1}"),
    ],
)  # fmt: skip
def test_refused(rule: str, text: str, old: str, new: str) -> None:
    assert parse(PARAMETERS + text).entry.root.opcode == "gather"
    assert old in text
    assert refused(PARAMETERS + text.replace(old, new, 1)).rule == f"gather.{rule}"
