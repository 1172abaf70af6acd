"""Scatter, against the index formula of its page."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloom.fuzzing.generators.families import draw_case
from hloom.operations.gather_scatter import Scatter
from hloom.shape.element_type import ElementType
from tests import agreement, oracle
from tests.evaluation import evaluate, parse, refused
from tests.reducers import binary

ROWS = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
)
ELEMENTS = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
)
WINDOWS = (
    "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
)


def combiner(body: str, dtype: str = "f32") -> str:
    """A combiner of the current element c and the update u."""
    return f"combine {{\n c = {dtype}[] parameter(0)\n u = {dtype}[] parameter(1)\n ROOT new = {body}\n}}\n"


def scatter_text(arrays: list[np.ndarray], attributes: str, computation: str) -> str:
    """A program of one scatter; its result shape is inferred."""
    lines = [
        f"p{i} = {ElementType.from_dtype(a.dtype).name}[{','.join(map(str, a.shape))}] parameter({i})"
        for i, a in enumerate(arrays)
    ]
    names = ", ".join(f"p{i}" for i in range(len(arrays)))
    body = "\n".join([*lines, f"ROOT r = scatter({names}), {attributes}, to_apply=combine"])
    return f"HloModule scatter\n{computation}\nENTRY e {{\n{body}\n}}"


def scatter(*arrays: object, attributes: str = ROWS, combine: str = "f32[] add(c, u)", dtype: str = "f32"):
    """Scatter (operand, indices, updates)."""
    values = [np.asarray(a) for a in arrays]
    return evaluate(scatter_text(values, attributes, combiner(combine, dtype)), *values)


def scatter_one_by_one(
    operation: Scatter, operand: np.ndarray, indices: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    """The page's formula, I = Sin + Win for every update index U in row-major order; current * 3 - update."""
    o = operation
    if o.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    scatter_dims = [d for d in range(updates.ndim) if d not in o.update_window_dims]
    window = [d for d in range(operand.ndim) if d not in o.inserted_window_dims + o.input_batching_dims]
    result = operand.copy()
    for u in np.ndindex(*updates.shape):
        batch = [u[d] for d in scatter_dims]
        vector = indices[(*batch[: o.index_vector_dim], slice(None), *batch[o.index_vector_dim :])]
        place = [0] * operand.ndim
        for k, d in enumerate(o.scatter_dims_to_operand_dims):
            place[d] = int(vector[k])
        for d, b in zip(o.input_batching_dims, o.scatter_indices_batching_dims, strict=True):
            place[d] = batch[b - (b > o.index_vector_dim)]
        sizes = [1] * operand.ndim
        for k, d in enumerate(window):
            sizes[d] = updates.shape[o.update_window_dims[k]]
        if all(0 <= p <= n - w for p, n, w in zip(place, operand.shape, sizes, strict=True)):
            for k, d in enumerate(window):
                place[d] += u[o.update_window_dims[k]]
            result[tuple(place)] = result[tuple(place)] * 3 - updates[u]
    return result


# Rows, elements, windows.


def test_rows_are_added() -> None:
    result = scatter(
        np.zeros((3, 2), np.float32), np.array([[2], [0], [2]], np.int32),
        np.array([[1, 2], [3, 4], [10, 20]], np.float32),
    )  # fmt: skip
    assert result.tolist() == [[3, 4], [0, 0], [11, 22]]


def test_the_current_value_comes_first() -> None:
    operand, indices = np.array([10, 20], np.float32), np.array([[0], [1]], np.int32)
    updates = np.array([1, 2], np.float32)
    assert scatter(
        operand, indices, updates, attributes=ELEMENTS, combine="f32[] subtract(c, u)"
    ).tolist() == [9, 18]
    assert scatter(
        operand, indices, updates, attributes=ELEMENTS, combine="f32[] subtract(u, c)"
    ).tolist() == [-9, -18]


def test_the_last_of_several_updates_stays() -> None:
    result = scatter(
        np.zeros(2, np.float32), np.zeros((4, 1), np.int32), np.array([5, 7, 6, 8], np.float32),
        attributes=ELEMENTS, combine="f32[] copy(u)",
    )  # fmt: skip
    assert result.tolist() == [8, 0]
    text = scatter_text(
        [np.zeros(2, np.float32), np.zeros((4, 1), np.int32), np.zeros(4, np.float32)], ELEMENTS,
        "combine {\n c = f32[] parameter(0)\n ROOT u = f32[] parameter(1)\n}\n",
    )  # fmt: skip
    assert evaluate(
        text, np.zeros(2, np.float32), np.zeros((4, 1), np.int32), np.arange(4, dtype=np.float32)
    ).tolist() == [3, 0]


def test_updates_are_applied_in_row_major_order() -> None:
    """A combiner that is not commutative tells the order, and there are many duplicates."""
    random = np.random.default_rng(0)
    indices, updates = random.integers(0, 3, (200, 1)), random.normal(size=200).astype(np.float32)
    expected = np.ones(3, np.float32)
    for i, u in zip(indices[:, 0], updates, strict=True):
        expected[i] = u - expected[i]
    result = scatter(
        np.ones(3, np.float32), indices, updates, attributes=ELEMENTS, combine="f32[] subtract(u, c)"
    )
    agreement.equal(result, expected)


def test_many_sums_are_rounded_one_by_one() -> None:
    random = np.random.default_rng(0)
    indices, updates = random.integers(0, 2, (1000, 1)), random.normal(size=(1000, 3)).astype(np.float32)
    expected = np.zeros((2, 3), np.float32)
    for i, u in zip(indices[:, 0], updates, strict=True):
        expected[i] += u
    agreement.equal(scatter(np.zeros((2, 3), np.float32), indices, updates), expected)


def test_window_elements_that_overlap_are_all_applied() -> None:
    result = scatter(
        np.zeros(5, np.float32),
        np.array([[0], [1], [2]], np.int32),
        np.ones((3, 3), np.float32),
        attributes=WINDOWS,
    )
    assert result.tolist() == [1, 2, 3, 2, 1]


# Out of bounds.


def test_a_window_partly_out_of_bounds_is_dropped_in_whole() -> None:
    result = scatter(
        np.zeros(5, np.float32), np.array([[-1], [3], [2], [5], [-3]], np.int32),
        np.array([[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9], [10, 11, 12]], np.float32), attributes=WINDOWS,
    )  # fmt: skip
    assert result.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("indices", "hit"),
    [
        (np.array([200], np.uint8), 200),
        (np.array([2**64 - 1], np.uint64), None),
        (np.array([2**63 + 200], np.uint64), None),
        (np.array([-1], np.int8), None),
        (np.array([-(2**63)], np.int64), None),
        (np.array([2**63 - 1], np.int64), None),
        (np.array([300], np.int32), None),
        (np.array([299], np.uint16), 299),
        (np.array([15], ml_dtypes.uint4), 15),
        (np.array([-8], ml_dtypes.int4), None),
    ],
)
def test_indices_of_every_type(indices: np.ndarray, hit: int | None) -> None:
    result = scatter(np.zeros(300, np.float32), indices, np.ones(1, np.float32), attributes=ELEMENTS)
    assert np.flatnonzero(result).tolist() == ([] if hit is None else [hit])


# Nothing, and next to nothing.


def test_with_an_empty_index_vector_every_update_lands_on_the_same_window() -> None:
    result = scatter(
        np.zeros(2, np.float32), np.zeros((3, 0), np.int32), np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        attributes=WINDOWS.replace("operand_dims={0}", "operand_dims={}"),
    )  # fmt: skip
    assert result.tolist() == [9, 12]


def test_scalars() -> None:
    none = (
        "update_window_dims={}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, index_vector_dim=0"
    )
    result = scatter(np.float32(1), np.zeros(0, np.int32), np.float32(2), attributes=none)
    assert result.shape == ()
    assert result == 3


def test_no_updates_and_no_operand() -> None:
    operand = np.ones((3, 2), np.float32)
    result = scatter(operand, np.zeros((0, 1), np.int32), np.zeros((0, 2), np.float32))
    agreement.equal(result, operand)
    empty = scatter(np.zeros((0, 2), np.float32), np.zeros((3, 1), np.int32), np.zeros((3, 2), np.float32))
    assert empty.shape == (0, 2)
    narrow = scatter(np.zeros((3, 0), np.float32), np.zeros((2, 1), np.int32), np.zeros((2, 0), np.float32))
    assert narrow.shape == (3, 0)


# Several operands, other types.


def test_several_operands_are_combined_together() -> None:
    """The larger key wins and brings its value along."""
    computation = """combine {
      k0 = s32[] parameter(0)
      v0 = f32[] parameter(1)
      k1 = s32[] parameter(2)
      v1 = f32[] parameter(3)
      keep = pred[] compare(k0, k1), direction=GE
      k = s32[] select(keep, k0, k1)
      v = f32[] select(keep, v0, v1)
      ROOT new = (s32[], f32[]) tuple(k, v)
    }"""
    arrays = [
        np.zeros(3, np.int32), np.zeros(3, np.float32), np.array([[0], [2], [0], [0]], np.int32),
        np.array([4, 1, 9, 7], np.int32), np.array([0.4, 0.1, 0.9, 0.7], np.float32),
    ]  # fmt: skip
    keys, values = evaluate(scatter_text(arrays, ELEMENTS, computation), *arrays)
    assert keys.tolist() == [9, 0, 1]
    agreement.equal(values, np.array([0.9, 0, 0.1], np.float32))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(np.bool_, "pred"), (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.int4, "s4"), (np.complex64, "c64")],
)
def test_every_type_keeps_its_own(dtype: type, name: str) -> None:
    result = scatter(
        np.array([0, 1, 0], dtype), np.array([[0], [0]] * 40, np.int32), np.array([1, 0] * 40, dtype),
        attributes=ELEMENTS, combine=f"{name}[] add(c, u)", dtype=name,
    )  # fmt: skip
    assert result.dtype == np.dtype(dtype)
    total = {"pred": True, "bf16": 40, "s4": -8, "c64": 40}[name]
    assert result[0] == np.array(total, dtype)
    assert result[1] == np.array(1, dtype)


# Any scatter.


@pytest.mark.parametrize("block", range(10))
def test_any_scatter_follows_the_formula(block: int) -> None:
    """The combination depends on the order of the updates."""
    computation = """combine {
      c = s32[] parameter(0)
      u = s32[] parameter(1)
      three = s32[] constant(3)
      product = s32[] multiply(c, three)
      ROOT new = s32[] subtract(product, u)
    }"""
    random = np.random.default_rng(block)
    for number in range(30 * block, 30 * block + 30):
        case = draw_case("scatter", number, seed=1).unfolded
        (operation,) = (
            i.operation for i in case.module.entry.instructions if isinstance(i.operation, Scatter)
        )
        attributes = ", ".join(
            f"{a.name}={a.codec.text(getattr(operation, a.field))}" for a in operation.attributes
        )
        count = len(case.arguments) // 2  # of the operands
        operand, indices, updates = (case.arguments[n] for n in (0, count, count + 1))
        arrays = [
            random.integers(0, 100, operand.shape).astype(np.int32), indices,
            random.integers(0, 100, updates.shape).astype(np.int32),
        ]  # fmt: skip
        expected = scatter_one_by_one(operation, *arrays)
        agreement.equal(evaluate(scatter_text(arrays, attributes, computation), *arrays), expected)


def test_the_second_opinion() -> None:
    random = np.random.default_rng(2)
    arrays = [
        random.normal(size=(20, 3)).astype(np.float32),
        random.integers(-3, 25, (50, 1)).astype(np.int32),
        random.normal(size=(50, 3)).astype(np.float32),
    ]
    text = scatter_text(arrays, ROWS, combiner("f32[] add(c, u)"))
    agreement.equal(evaluate(text, *arrays), oracle.run(text, *arrays)[0])


# What is refused.

COMPUTATIONS = (
    binary("add", name="combine")
    + binary("add", "s32", name="integers")
    + """
one {
 ROOT x1 = f32[] parameter(0)
}
mixed {
 x3 = f32[] parameter(0)
 y3 = s32[] parameter(1)
 ROOT z3 = f32[] add(x3, x3)
}
vectors {
 x4 = f32[2] parameter(0)
 y4 = f32[2] parameter(1)
 ROOT z4 = f32[2] add(x4, y4)
}
pair {
 x5 = f32[] parameter(0)
 y5 = f32[] parameter(1)
 ROOT z5 = (f32[], f32[]) tuple(x5, y5)
}
ENTRY e {
 o = f32[50,49,48] parameter(0)
 i = s64[10,9,2] parameter(1)
 u = f32[10,9,30,48] parameter(2)
 f = f32[10,9,2] parameter(3)
 s = s32[10,9,30,48] parameter(4)
 flat = f32[50,49] parameter(5)
 thin = f32[10,9,30,47] parameter(6)
 t = (f32[1]) parameter(7)
 k = s64[50,9,1] parameter(8)
 w = f32[50,9,30,48] parameter(9)
 tall = f32[10,9,51,48] parameter(10)
"""
)
SCATTER = (
    " ROOT r = scatter(o, i, u), update_window_dims={2,3}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0,1}, index_vector_dim=2, to_apply=combine\n}"
)
BATCHED = (
    " ROOT r = scatter(o, k, w), update_window_dims={2,3}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
    "index_vector_dim=2, to_apply=combine\n}"
)
TWO = SCATTER.replace("(o, i, u)", "(o, o, i, u, u)")
THEIRS = "scatter_indices_batching_dims="


@pytest.mark.parametrize(
    ("rule", "text", "old", "new"),
    [
        ("argument-count", SCATTER, "(o, i, u)", "(o, i)"),
        ("argument-count", SCATTER, "(o, i, u)", "(o)"),
        ("operand-array", SCATTER, "(o, i, u)", "(o, i, t)"),
        ("operands-same-dimensions", TWO, "(o, o,", "(o, flat,"),
        ("updates-same-dimensions", TWO, "u, u)", "u, thin)"),
        ("element-type", SCATTER, "i, u)", "i, s)"),
        ("indices-integer", SCATTER, "o, i,", "o, f,"),
        ("index_vector_dim-range", SCATTER, "index_vector_dim=2", "index_vector_dim=4"),
        ("index_vector_dim-range", SCATTER, "index_vector_dim=2", "index_vector_dim=-1"),
        ("inserted_window_dims-sorted", SCATTER, "window_dims={0}", "window_dims={1,0}"),
        ("inserted_window_dims-unique", SCATTER, "window_dims={0}", "window_dims={0,0}"),
        ("inserted_window_dims-range", SCATTER, "window_dims={0}", "window_dims={3}"),
        ("scatter_dims_to_operand_dims-size", SCATTER, "{0,1}", "{0}"),
        ("scatter_dims_to_operand_dims-unique", SCATTER, "{0,1}", "{0,0}"),
        ("scatter_dims_to_operand_dims-range", SCATTER, "{0,1}", "{0,3}"),
        ("update_window_dims-count", SCATTER, "window_dims={0}", "window_dims={}"),
        ("update_window_dims-sorted", SCATTER, "{2,3}", "{3,2}"),
        ("update_window_dims-unique", SCATTER, "{2,3}", "{2,2}"),
        ("update_window_dims-range", SCATTER, "{2,3}", "{2,4}"),
        ("updates-rank", SCATTER, "i, u)", "i, o)"),
        ("updates-window-size", SCATTER, "i, u)", "i, tall)"),
        ("updates-batch-size", SCATTER, "update_window_dims={2,3}", "update_window_dims={1,3}"),
        ("input_batching_dims-sorted", BATCHED, "input_batching_dims={0}", "input_batching_dims={1,0}"),
        ("input_batching_dims-unique", BATCHED, "input_batching_dims={0}", "input_batching_dims={0,0}"),
        ("input_batching_dims-range", BATCHED, "input_batching_dims={0}", "input_batching_dims={3}"),
        ("scatter_indices_batching_dims-unique", BATCHED, THEIRS + "{0}", THEIRS + "{0,0}"),
        ("scatter_indices_batching_dims-range", BATCHED, THEIRS + "{0}", THEIRS + "{3}"),
        ("scatter_indices_batching_dims-count", BATCHED, THEIRS + "{0}", THEIRS + "{0,1}"),
        ("scatter_indices_batching_dims-size", BATCHED, THEIRS + "{0}", THEIRS + "{1}"),
        (
            "scatter_indices_batching_dims-index_vector_dim", BATCHED,
            THEIRS + "{0}", THEIRS + "{2}",
        ),
        (
            "inserted_window_dims-input_batching_dims-disjoint", BATCHED,
            "inserted_window_dims={}", "inserted_window_dims={0}",
        ),
        (
            "scatter_dims_to_operand_dims-input_batching_dims-disjoint", BATCHED,
            "operand_dims={1}", "operand_dims={0}",
        ),
        ("combiner-arity", SCATTER, "=combine", "=one"),
        ("combiner-result-count", SCATTER, "=combine", "=pair"),
        ("combiner-result-count", TWO, "=combine", "=combine"),
        ("combiner-result", SCATTER, "=combine", "=integers"),
        ("combiner-result", SCATTER, "=combine", "=vectors"),
        ("combiner-parameters", SCATTER, "=combine", "=mixed"),
    ],
)  # fmt: skip
def test_refused(rule: str, text: str, old: str, new: str) -> None:
    assert old in text
    assert refused(COMPUTATIONS + text.replace(old, new, 1)).rule == f"scatter.{rule}"


def test_what_the_refused_programs_differ_from_is_accepted() -> None:
    for text in (SCATTER, BATCHED):
        parse(COMPUTATIONS + text).verify()
