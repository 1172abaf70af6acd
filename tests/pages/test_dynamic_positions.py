"""The page "Operation semantics" on computed positions: slices, updates, gather, scatter; dynamic sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hloom import ops
from tests.arrays import f32, s32
from tests.builder.building import ADD, scalar
from tests.pages.both import dtype, rule_of, shape_of, value

X = np.arange(48, dtype=f32).reshape(6, 8)


# -- DynamicSlice, DynamicUpdateSlice


@pytest.mark.parametrize("kind", ["s32", "s64", "u8", "u32", "s8"])
def test_starts_are_clamped_so_that_the_slice_fits(kind: str) -> None:
    lowest = -100 if kind[0] == "s" else 0
    for y, x in itertools.product((lowest, 0, 2, 4, 5, 100), (lowest, 1, 5, 6, 120)):
        starts = (np.array(y, dtype(kind)), np.array(x, dtype(kind)))
        i, j = min(max(y, 0), 6 - 2), min(max(x, 0), 8 - 3)
        found = value(lambda a, y, x: ops.DynamicSlice(a, [y, x], [2, 3]), X, *starts)
        assert (found == X[i : i + 2, j : j + 3]).all()
        wanted = X.copy()
        wanted[i : i + 2, j : j + 3] = -1
        update = np.full((2, 3), -1, f32)
        found = value(lambda a, u, y, x: ops.DynamicUpdateSlice(a, u, [y, x]), X, update, *starts)
        assert (found == wanted).all()


def test_start_indices_as_a_vector() -> None:
    found = value(lambda a, s: ops.DynamicSlice(a, s, [2, 3]), X, s32([1, 4]))
    assert (found == X[1:3, 4:7]).all()
    found = value(lambda a, u, s: ops.DynamicUpdateSlice(a, u, s), X, f32([[-5]]), s32([1, 4]))
    assert found[1, 4] == -5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.DynamicSlice(x, [0], [2, 2]),
        lambda x: ops.DynamicSlice(x, [0, 0], [2]),
        lambda x: ops.DynamicSlice(x, [0, 0], [7, 1]),
        lambda x: ops.DynamicSlice(x, [0, 0], [2, -2]),
        lambda x: ops.DynamicUpdateSlice(x, x[0], [0, 0]),
        lambda x: ops.DynamicUpdateSlice(x, ops.Broadcast(x, [1]), [0, 0]),
        lambda x: ops.DynamicUpdateSlice(x, x, [0]),
        lambda x: ops.DynamicUpdateSlice(x[:2], x, [0, 0]),
    ],
)
def test_sizes_and_starts_fit_the_operand(function: Any) -> None:
    assert rule_of(function, "f32[6,8]").startswith("dynamic-")


# -- Gather


def test_an_index_vector_dimension_behind_the_last_is_an_implicit_one() -> None:
    indices = np.random.default_rng(0).integers(0, 6, (6, 7)).astype(s32)
    found = value(lambda o, i: ops.Gather(o, i, [2], [0], [1, 8], [0], index_vector_dim=2), X, indices)
    assert found.shape == (6, 7, 8)
    assert (found == X[indices]).all()
    explicit = value(lambda o, i: ops.Gather(o, i, [2], [0], [1, 8], [0], 2), X, indices[..., None])
    assert (found == explicit).all()


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_index_vector_may_lie_along_any_dimension(where: int) -> None:
    vectors = np.random.default_rng(0).integers(0, 4, (3, 5, 2)).astype(s32)
    indices = np.moveaxis(vectors, 2, where)
    found = value(lambda o, i: ops.Gather(o, i, [2, 3], [], [2, 3], [0, 1], where), X, indices)
    for a, b in np.ndindex(3, 5):
        y, x = vectors[a, b]
        assert (found[a, b] == X[y : y + 2, x : x + 3]).all()


def test_starts_of_a_gather_are_clamped() -> None:
    indices = s32([[-3, 7], [5, 100], [2, 2]])
    found = value(lambda o, i: ops.Gather(o, i, [1, 2], [], [2, 3], [0, 1], 1), X, indices)
    for slice_, (y, x) in zip(found, ((0, 5), (4, 5), (2, 2)), strict=True):
        assert (slice_ == X[y : y + 2, x : x + 3]).all()


def test_remapped_offset_dimensions_skip_the_collapsed_ones() -> None:
    operand = np.arange(2 * 3 * 2 * 3 * 2 * 2, dtype=f32).reshape(2, 3, 2, 3, 2, 2)
    found = value(
        lambda o, i: ops.Gather(o, i, [0, 1, 2, 3], [0, 2], [1, 3, 1, 3, 2, 2], [0, 2], 0),
        operand,
        s32([1, 0]),
    )
    assert (found == operand[1, :, 0]).all()  # 0→1, 1→3, 2→4, 3→5


def test_output_bounds() -> None:
    shape = shape_of(lambda o, i: ops.Gather(o, i, [0, 3], [], [8, 6], [0, 1], 2), "f32[16,11]", "s32[4,5,2]")
    assert shape == "f32[8,4,5,6]"
    shape = shape_of(lambda o, i: ops.Gather(o, i, [1, 2], [], [8, 6], [0, 1], 0), "f32[16,11]", "s32[2,5]")
    assert shape == "f32[5,8,6]"


def test_sorted_indices_may_be_promised() -> None:
    indices = s32([[0], [2], [2], [5]])
    promised = value(lambda o, i: ops.Gather(o, i, [1], [0], [1, 8], [0], 1, True), X, indices)
    assert (promised == X[indices[:, 0]]).all()
    updates = np.ones((4, 8), f32)
    found = value(
        lambda o, i, u: ops.Scatter(o, i, u, ADD, 1, [1], [0], [0], True, False), X, indices, updates
    )
    wanted = X.copy()
    np.add.at(wanted, indices[:, 0], 1)
    assert (found == wanted).all()


@pytest.mark.parametrize(
    "numbers",
    [
        {"offset_dims": []},  # operand.rank = offset_dims.size + collapsed_slice_dims.size
        {"collapsed_slice_dims": []},
        {"slice_sizes": [1]},  # one for each dimension
        {"slice_sizes": [2, 8]},  # collapsed ones are 1
        {"slice_sizes": [1, 9]},
        {"start_index_map": [2]},
        {"start_index_map": [0, 1]},  # as many as the index vector has components
        {"index_vector_dim": 4},
        {"offset_dims": [5]},
    ],
)
def test_rules_of_gather(numbers: dict[str, Any]) -> None:
    given = {"offset_dims": [2], "collapsed_slice_dims": [0], "slice_sizes": [1, 8], "start_index_map": [0],
             "index_vector_dim": 2, **numbers}  # fmt: skip
    rule = rule_of(lambda o, i: ops.Gather(o, i, **given), "f32[6,8]", "s32[4,5,1]")
    assert rule.startswith(("gather.", "shape."))


# -- Scatter


def scattered(operand: Any, indices: Any, updates: Any, combine: Any, numbers: dict[str, Any]) -> Any:
    """The page's definition, update by update in row-major order; windows that do not fit are left out."""
    window, inserted = numbers["update_window_dims"], numbers["inserted_window_dims"]
    where, to_operand = numbers["index_vector_dim"], numbers["scatter_dims_to_operand_dims"]
    result = operand.copy()
    scatter_dims = [d for d in range(updates.ndim) if d not in window]
    into = [d for d in range(operand.ndim) if d not in inserted]
    sizes = [1] * operand.ndim
    for k, d in enumerate(window):
        sizes[into[k]] = updates.shape[d]
    vectors = indices[..., None] if where == indices.ndim else np.moveaxis(indices, where, -1)
    for u in np.ndindex(*updates.shape):
        start = [0] * operand.ndim
        for k, component in enumerate(vectors[tuple(u[d] for d in scatter_dims)]):
            start[to_operand[k]] = int(component)
        if any(not 0 <= s <= full - size for s, full, size in zip(start, operand.shape, sizes, strict=True)):
            continue
        for k, d in enumerate(window):
            start[into[k]] += u[d]
        result[tuple(start)] = combine(result[tuple(start)], updates[u])
    return result


SCATTERS = {
    "rows": ((6, 8), (4, 1), (4, 8), {"update_window_dims": [1], "inserted_window_dims": [0],
             "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}),
    "implicit vector": ((6, 8), (4,), (4, 8), {"update_window_dims": [1], "inserted_window_dims": [0],
                        "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}),
    "windows": ((6, 8), (3, 2), (3, 2, 3), {"update_window_dims": [1, 2], "inserted_window_dims": [],
                "scatter_dims_to_operand_dims": [0, 1], "index_vector_dim": 1}),
    "window first, vector first": ((6, 8), (2, 3), (2, 3, 3), {"update_window_dims": [0, 2],
                                   "inserted_window_dims": [], "scatter_dims_to_operand_dims": [1, 0],
                                   "index_vector_dim": 0}),
    "single elements": ((6, 8), (3, 4, 2), (3, 4), {"update_window_dims": [], "inserted_window_dims": [0, 1],
                        "scatter_dims_to_operand_dims": [0, 1], "index_vector_dim": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("combiner", ["add", "subtract", "second"])
def test_scatter_is_the_pages_definition(name: str, combiner: str) -> None:
    bounds, index_bounds, update_bounds, numbers = SCATTERS[name]
    rng = np.random.default_rng(1)
    indices = rng.integers(-1, 7, index_bounds).astype(s32)
    updates = rng.integers(1, 9, update_bounds).astype(s32)
    operand = np.arange(np.prod(bounds), dtype=s32).reshape(bounds)
    functions = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "second": lambda a, b: b}
    combine = functions[combiner]
    computation = scalar((lambda a, b: ops.Copy(b)) if combiner == "second" else combine, "s32", "s32")
    found = value(
        lambda o, i, u: ops.Scatter(o, i, u, computation, dimension_numbers=numbers),
        operand,
        indices,
        updates,
    )
    assert (found == scattered(operand, indices, updates, combine, numbers)).all()


def test_scatter_of_several_operands() -> None:
    both = scalar(lambda a, b, c, d: ops.Tuple([a + c, ops.Max(b, d)]), "f32", "s32", "f32", "s32")
    indices = s32([[0], [2], [2]])
    x, n = f32([1, 2, 3]), s32([4, 5, 6])
    u, m = f32([10, 20, 30]), s32([9, 1, 8])
    first, second = value(
        lambda x, n, i, u, m: ops.Scatter([x, n], i, [u, m], both, 1, [], [0], [0]), x, n, indices, u, m
    )
    assert (first.tolist(), second.tolist()) == ([11, 2, 53], [9, 5, 8])


def test_unique_indices_may_be_promised() -> None:
    indices = s32([[5], [0], [3]])
    updates = np.arange(24, dtype=f32).reshape(3, 8)
    found = value(
        lambda o, i, u: ops.Scatter(o, i, u, ADD, 1, [1], [0], [0], False, True), X, indices, updates
    )
    wanted = X.copy()
    wanted[[5, 0, 3]] += updates
    assert (found == wanted).all()


@pytest.mark.parametrize(
    ("numbers", "updates"),
    [
        ({}, "f32[4]"), ({}, "f32[4,9]"), ({}, "f32[5,8]"),  # ranks and bounds of the updates
        ({"update_window_dims": [2]}, "f32[4,8]"), ({"update_window_dims": [1, 0]}, "f32[4,8]"),
        ({"update_window_dims": [1, 1]}, "f32[4,8]"), ({"inserted_window_dims": [2]}, "f32[4,8]"),
        ({"inserted_window_dims": [1, 0]}, "f32[4,8]"), ({"inserted_window_dims": []}, "f32[4,8]"),
        ({"scatter_dims_to_operand_dims": [0, 1]}, "f32[4,8]"),
        ({"scatter_dims_to_operand_dims": [2]}, "f32[4,8]"), ({"index_vector_dim": 3}, "f32[4,8]"),
    ],
)  # fmt: skip
def test_rules_of_scatter(numbers: dict[str, Any], updates: str) -> None:
    given = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0],
             "index_vector_dim": 1, **numbers}  # fmt: skip
    rule = rule_of(
        lambda o, i, u: ops.Scatter(o, i, u, ADD, dimension_numbers=given), "f32[6,8]", "s32[4,1]", updates
    )
    assert rule.startswith(("scatter.", "shape."))


# -- GetDimensionSize, SetDimensionSize


def test_the_size_of_a_dimension() -> None:
    for dimension, size in enumerate((6, 8)):
        found = value(lambda x, d=dimension: ops.GetDimensionSize(x, d), X)
        assert (found, found.dtype) == (size, s32)
    assert rule_of(lambda x: ops.GetDimensionSize(x, 2), "f32[6,8]").startswith("get-dimension-size.")
    assert rule_of(lambda x: ops.GetDimensionSize(ops.Tuple([x]), 0), "f32[6]").startswith(
        "get-dimension-size."
    )
    assert rule_of(lambda x: ops.SetDimensionSize(ops.Tuple([x]), 1, 0), "f32[6]")


@pytest.mark.parametrize("size", [0, 1, 5, 6])
def test_reductions_ignore_what_lies_beyond_a_dynamic_size(size: int) -> None:
    for dimension in (0, 1):
        kept = X[:size] if dimension == 0 else X[:, :size]
        for kept_dims in ([0], [1], [0, 1]):
            if dimension not in kept_dims:
                continue
            found = value(
                lambda x, n, d=dimension, r=kept_dims: ops.Reduce(ops.SetDimensionSize(x, n, d), 0, ADD, r),
                X, s32(size),
            )  # fmt: skip
            assert (found == kept.sum(tuple(kept_dims))).all()


def test_the_bound_stays() -> None:
    assert shape_of(lambda x, n: ops.SetDimensionSize(x, n, 0), "f32[10]", "s32[]") == "f32[<=10]"
    assert rule_of(lambda x, n: ops.SetDimensionSize(x, n, 0), "f32[10]", "f32[]").startswith("set-dimension")
    assert rule_of(lambda x, n: ops.SetDimensionSize(x, n, 0), "f32[10]", "s32[1]").startswith(
        "set-dimension"
    )
