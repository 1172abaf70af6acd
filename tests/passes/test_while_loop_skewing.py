"""Nests of loops over rows and columns of a table, whose cells are computed by antidiagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hloom
from hloom.cpu.pipeline import EXPANSION, SIMPLIFICATION
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.passes.loops.while_loop_components import WhileLoopComponents
from hloom.passes.loops.while_loop_skewing import WhileLoopSkewing
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree
from tests.pass_checks import run_truly


def skewed(module: HloModule, *arguments: Any) -> bool:
    """Simplify a program and skew its loops; check that all bits stay, and return whether it changed."""
    for item in (EXPANSION, SIMPLIFICATION, WhileLoopComponents()):
        item.run(module)
    wanted = Evaluator().run(module.entry, list(arguments))
    before = str(module)
    run_truly(WhileLoopSkewing(), module)
    module.verify()
    agreement.same(Evaluator().run(module.entry, list(arguments)), wanted)
    return str(module) != before


def floats(*dimensions: int) -> Any:
    """Return numbers, one of which is infinite and one -0."""
    x = np.random.default_rng(dimensions).normal(size=dimensions).astype(np.float32)
    x.flat[3], x.flat[5] = np.inf, -0.0
    return x


def letters(count: int) -> Any:
    """Return a sequence of four letters."""
    return np.random.default_rng(count).integers(0, 4, count, dtype=np.int32)


# -- programs by rows


def time_warping(x: Any, y: Any) -> Any:
    """Return the cost of the best alignment of two series."""

    def row(above: Any, costs: Any) -> Any:
        def cell(left: Any, x: Any) -> Any:
            cost, up, diagonal = x
            total = cost + jnp.minimum(jnp.minimum(up, diagonal), left)
            return total, total

        diagonals = jnp.concatenate([jnp.full(1, jnp.inf), above[:-1]])
        return lax.scan(cell, jnp.inf, (costs, above, diagonals))[1], None

    costs = (x[:, None] - y[None]) ** 2
    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0][-1]


def time_warping_with_first_column(x: Any, y: Any) -> Any:
    """Compute the first column by itself: each element needs the one before."""

    def row(above: Any, costs: Any) -> Any:
        def cell(left: Any, x: Any) -> Any:
            up, diagonal, cost = x
            total = cost + jnp.minimum(jnp.minimum(up, left), diagonal)
            return total, total

        first = above[0] + costs[0]
        rest = lax.scan(cell, first, (above[1:], above[:-1], costs[1:]))[1]
        return jnp.concatenate([first[None], rest]), None

    costs = abs(x[:, None] - y[None])
    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0]


def smooth_time_warping(x: Any, y: Any) -> Any:
    """Return a differentiable cost, by logarithms of sums of exponentials."""

    def row(above: Any, costs: Any) -> Any:
        def cell(left: Any, x: Any) -> Any:
            cost, up, diagonal = x
            total = cost - jnp.logaddexp(jnp.logaddexp(-up, -diagonal), -left)
            return total, total

        diagonals = jnp.concatenate([jnp.full(1, 1e3), above[:-1]])
        return lax.scan(cell, 1e3, (costs, above, diagonals))[1], None

    costs = jnp.tanh(x[:, None] - y[None]) ** 2
    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0][-1]


def gradient_of_time_warping(x: Any, y: Any) -> Any:
    """Return the gradient, whose loops run from the last row and column to the first."""
    return jax.grad(smooth_time_warping)(jnp.where(jnp.isfinite(x), x, 1.0), y)


def edit_distance(a: Any, b: Any) -> Any:
    """Return the number of insertions, deletions and substitutions between two words."""

    def row(above: Any, x: Any) -> Any:
        number, letter = x

        def cell(left: Any, x: Any) -> Any:
            up, diagonal, other = x
            same = diagonal + jnp.where(letter == other, 0, 1)
            new = jnp.minimum(jnp.minimum(up + 1, left + 1), same)
            return new, new

        rest = lax.scan(cell, number + 1, (above[1:], above[:-1], b))[1]
        return jnp.concatenate([(number + 1)[None], rest]), None

    return lax.scan(row, jnp.arange(b.shape[0] + 1), (jnp.arange(a.shape[0]), a))[0][-1]


def every_row(x: Any, y: Any) -> Any:
    """Return the whole table, and a function of each row."""

    def row(above: Any, x: Any) -> Any:
        def cell(left: Any, z: Any) -> Any:
            new = 0.5 * left + z[0] * z[1]
            return new, new

        new = lax.scan(cell, x, (y, above))[1]
        return new, (new, jnp.max(new))

    return lax.scan(row, y, x)


def table_from_the_end(x: Any, y: Any) -> Any:
    """Return a table whose cells need those to the right and below."""

    def row(below: Any, x: Any) -> Any:
        def cell(right: Any, z: Any) -> Any:
            new = jnp.maximum(right - z[0], z[1] * x)
            return new, new

        new = lax.scan(cell, x, (y, below), reverse=True)[1]
        return new, new

    return lax.scan(row, y, x, reverse=True)[1]


def local_alignment(a: Any, b: Any) -> Any:
    """Return the best score of Smith and Waterman with affine gaps: the maximum of all cells."""
    scores = jnp.where(jnp.arange(4)[:, None] == jnp.arange(4), 2.0, -1.5)

    def row(carry: Any, letter: Any) -> Any:
        above, gaps, best = carry

        def cell(carry: Any, x: Any) -> Any:
            left, gap, best = carry
            up, diagonal, gap_above, other = x
            gap_above = jnp.maximum(gap_above - 1, up - 3)
            gap = jnp.maximum(gap - 1, left - 3)
            new = jnp.maximum(jnp.maximum(0, diagonal + scores[letter, other]), jnp.maximum(gap_above, gap))
            return (new, gap, jnp.maximum(best, new)), (new, gap_above)

        first = (0.0, -1e9, best)
        (_, _, best), (new, gaps) = lax.scan(cell, first, (above[1:], above[:-1], gaps, b))
        return (jnp.concatenate([jnp.zeros(1), new]), gaps, best), None

    m = b.shape[0]
    return lax.scan(row, (jnp.zeros(m + 1), jnp.full(m, -1e9), 0.0), a)[0][2]


# -- programs by updates of a carried array


def edit_distance_by_updates(a: Any, b: Any) -> Any:
    """Fill the array of all distances of prefixes, element by element."""
    n, m = a.shape[0], b.shape[0]

    def cell(i: Any, j: Any, d: Any) -> Any:
        same = d[i - 1, j - 1] + jnp.where(a[i - 1] == b[j - 1], 0, 1)
        return d.at[i, j].set(jnp.minimum(jnp.minimum(d[i - 1, j] + 1, d[i, j - 1] + 1), same))

    d = jnp.zeros((n + 1, m + 1), jnp.int32).at[0].set(jnp.arange(m + 1)).at[:, 0].set(jnp.arange(n + 1))
    return lax.fori_loop(1, n + 1, lambda i, d: lax.fori_loop(1, m + 1, lambda j, d: cell(i, j, d), d), d)


def common_subsequence_in_one_row(a: Any, b: Any) -> Any:
    """Keep one row of lengths, which each row updates from its left to its right end."""
    m = b.shape[0]

    def row(i: Any, lengths: Any) -> Any:
        def cell(j: Any, carry: Any) -> Any:
            lengths, diagonal = carry
            up = lengths[j]
            new = jnp.where(a[i] == b[j - 1], diagonal + 1, jnp.maximum(up, lengths[j - 1]))
            return lengths.at[j].set(new), up

        return lax.fori_loop(1, m + 1, cell, (lengths, 0))[0]

    return lax.fori_loop(0, a.shape[0], row, jnp.zeros(m + 1, jnp.int32))


def relaxation(x: Any, y: Any) -> Any:
    """Sweep over the interior of an array: cells above and to the left are new, others still old."""
    u = x[:, None] * y[None]

    def cell(i: Any, j: Any, u: Any) -> Any:
        return u.at[i, j].set(0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1]))

    n, m = u.shape
    return lax.fori_loop(1, n - 1, lambda i, u: lax.fori_loop(1, m - 1, lambda j, u: cell(i, j, u), u), u)


SERIES = floats(26), floats(29)
WORDS = letters(26), letters(29)


EXACT = [
    (time_warping, SERIES),
    (time_warping_with_first_column, SERIES),
    (every_row, SERIES),
    (table_from_the_end, SERIES),
    (relaxation, SERIES),
    (edit_distance, WORDS),
    (local_alignment, WORDS),
    (edit_distance_by_updates, WORDS),
    (common_subsequence_in_one_row, WORDS),
]
"""Programs without functions that native code rounds differently."""
PROGRAMS = [*EXACT, (smooth_time_warping, SERIES), (gradient_of_time_warping, SERIES)]


@pytest.mark.parametrize(("program", "arguments"), PROGRAMS)
def test_tables_are_computed_by_antidiagonals(program: Callable[..., Any], arguments: Any) -> None:
    assert skewed(hloom.from_jax(jax.jit(program), *arguments), *arguments)


@pytest.mark.parametrize(("program", "arguments"), EXACT)
def test_native_antidiagonals_have_the_evaluators_bits(program: Callable[..., Any], arguments: Any) -> None:
    agree(str(hloom.from_jax(jax.jit(program), *arguments)), *arguments)


# -- boards with cells at any distance

INTERIOR = 24
"""Number of rows, and of columns less one, that a sweep updates."""
MARGIN = 3


def sweep(neighbors: list[tuple[int, int]], *, rows_down: bool = True, columns_right: bool = True) -> str:
    """Return a sweep that replaces each element of an interior by half the sum of its neighbors and 1."""
    size = f"f32[{INTERIOR + 2 * MARGIN},{INTERIOR + 1 + 2 * MARGIN}]"
    i, n = (MARGIN, "add") if rows_down else (MARGIN + INTERIOR - 1, "subtract")
    j, m = (MARGIN, "add") if columns_right else (MARGIN + INTERIOR, "subtract")
    reads = "".join(
        f"""
  di{k} = s32[] constant({di})
  dj{k} = s32[] constant({dj})
  i{k} = s32[] add(i, di{k})
  j{k} = s32[] add(j, dj{k})
  x{k} = f32[1,1] dynamic-slice(u, i{k}, j{k}), dynamic_slice_sizes={{1,1}}
  sum{k + 1} = f32[1,1] add(sum{k}, x{k})"""
        for k, (di, dj) in enumerate(neighbors)
    )
    return f"""HloModule sweep
column {{
  s = (s32[], {size}, s32[], s32[]) parameter(0)
  c = s32[] get-tuple-element(s), index=0
  u = {size} get-tuple-element(s), index=1
  i = s32[] get-tuple-element(s), index=2
  j = s32[] get-tuple-element(s), index=3
  sum0 = f32[1,1] constant({{{{1}}}}){reads}
  half = f32[1,1] constant({{{{0.5}}}})
  new = f32[1,1] multiply(sum{len(neighbors)}, half)
  v = {size} dynamic-update-slice(u, new, i, j)
  one = s32[] constant(1)
  c1 = s32[] add(c, one)
  next_j = s32[] {m}(j, one)
  ROOT t = (s32[], {size}, s32[], s32[]) tuple(c1, v, i, next_j)
}}
more_columns {{
  s = (s32[], {size}, s32[], s32[]) parameter(0)
  c = s32[] get-tuple-element(s), index=0
  n = s32[] constant({INTERIOR + 1})
  ROOT l = pred[] compare(c, n), direction=LT
}}
row {{
  s = (s32[], {size}, s32[]) parameter(0)
  c = s32[] get-tuple-element(s), index=0
  u = {size} get-tuple-element(s), index=1
  i = s32[] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  j = s32[] constant({j})
  first = (s32[], {size}, s32[], s32[]) tuple(zero, u, i, j)
  w = (s32[], {size}, s32[], s32[]) while(first), condition=more_columns, body=column
  v = {size} get-tuple-element(w), index=1
  one = s32[] constant(1)
  c1 = s32[] add(c, one)
  next_i = s32[] {n}(i, one)
  ROOT t = (s32[], {size}, s32[]) tuple(c1, v, next_i)
}}
more_rows {{
  s = (s32[], {size}, s32[]) parameter(0)
  c = s32[] get-tuple-element(s), index=0
  n = s32[] constant({INTERIOR})
  ROOT l = pred[] compare(c, n), direction=LT
}}
ENTRY main {{
  u = {size} parameter(0)
  zero = s32[] constant(0)
  i = s32[] constant({i})
  first = (s32[], {size}, s32[]) tuple(zero, u, i)
  w = (s32[], {size}, s32[]) while(first), condition=more_rows, body=row
  ROOT r = {size} get-tuple-element(w), index=1
}}
"""


BOARD = floats(INTERIOR + 2 * MARGIN, INTERIOR + 1 + 2 * MARGIN)


@pytest.mark.parametrize("rows_down", [True, False])
@pytest.mark.parametrize("columns_right", [True, False])
@pytest.mark.parametrize(
    "neighbors",
    [
        [(-1, 0), (0, -1), (-1, -1)],
        [(-2, 0), (0, -2), (-1, -3)],
        [(0, 0), (1, 0), (0, 1), (1, -3), (2, 3)],
        [(-2, 1), (-3, 1), (-3, 2), (0, -1)],
        [(0, -1), (0, 2), (-1, 0), (3, -3)],
    ],
)
def test_cells_may_need_cells_at_any_distance(
    neighbors: list[tuple[int, int]], *, rows_down: bool, columns_right: bool
) -> None:
    vertical, horizontal = 1 if rows_down else -1, 1 if columns_right else -1
    mirrored = [(di * vertical, dj * horizontal) for di, dj in neighbors]
    assert skewed(parse(sweep(mirrored, rows_down=rows_down, columns_right=columns_right)), BOARD)


@pytest.mark.parametrize(
    "neighbors", [[(-1, 1)], [(-1, 2)], [(-2, 3)], [(-3, -2)]], ids=["right", "far", "steep", "old"]
)
def test_cells_of_the_same_or_a_later_antidiagonal_keep_the_loops(neighbors: list[tuple[int, int]]) -> None:
    assert not skewed(parse(sweep([(0, -1), *neighbors])), BOARD)


def test_few_rows_and_tall_tables_keep_their_loops() -> None:
    for n, m in ((16, 60), (60, 16), (121, 30)):
        arguments = floats(n), floats(m)
        assert not skewed(hloom.from_jax(jax.jit(every_row), *arguments), *arguments)


def test_rows_that_need_the_end_of_the_row_above_keep_their_loops() -> None:
    def program(x: Any, y: Any) -> Any:
        def row(above: Any, x: Any) -> Any:
            def cell(left: Any, y: Any) -> Any:
                return left * y + x, left

            return lax.scan(cell, above[-1], y)[1], None

        return lax.scan(row, y, x)[0]

    assert not skewed(hloom.from_jax(jax.jit(program), *SERIES), *SERIES)
