"""Reductions of few elements to short rows of results, of which a vector computes many rows at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, arguments
from tests.reducers import with_reducers

COMBINERS = {"f32": "add", "f64": "add", "bf16": "maximum", "s8": "add", "u16": "minimum", "c64": "add"}


def reduction(kind: str, sizes: tuple[int, ...], dimensions: tuple[int, ...], combiner: str) -> str:
    """Return a program that reduces products with a broadcast over some dimensions of an array."""
    kept = [size for d, size in enumerate(sizes) if d not in dimensions]
    shape, result = (f"{kind}[{','.join(map(str, part))}]" for part in (sizes, kept))
    start = "(1, 2)" if kind.startswith("c") else "1"
    return f"""
ENTRY main {{
  x = {shape} parameter(0)
  y = {kind}[{sizes[0]},{sizes[-1]}] parameter(1)
  start = {kind}[] constant({start})
  wide = {shape} broadcast(y), dimensions={{0,{len(sizes) - 1}}}
  products = {shape} multiply(x, wide)
  ROOT r = {result} reduce(products, start), dimensions={{{",".join(map(str, dimensions))}}},
      to_apply={combiner}_{kind}
}}
"""


@pytest.mark.parametrize("rows", [1, 15, 16, 77, 1000])
@pytest.mark.parametrize("kind", COMBINERS)
@pytest.mark.parametrize(
    ("sizes", "dimensions"),
    [((3, 3), (1,)), ((2, 5), (0,)), ((5, 5), (1,)), ((7, 7), (0,)), ((2, 2, 3), (0, 1)), ((16, 4), (0,))],
)
def test_rows_are_lanes(rows: int, kind: str, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    text = with_reducers(reduction(kind, (rows, *sizes), tuple(d + 1 for d in dimensions), COMBINERS[kind]))
    agree(text, *arguments(np.random.default_rng(rows), text), rounded=kind[0] in "fc")


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "s32", "pred", "c64"])
@pytest.mark.parametrize(
    ("sizes", "dimensions"),
    [
        ((50, 2), (0, 1)),
        ((1000, 3), (0, 1)),
        ((7, 129, 3), (1, 2)),
        ((20, 33, 2), (0, 1, 2)),
        ((4, 31, 2, 3), (1, 2, 3)),
        ((200, 7), (0, 1)),
    ],
)
@pytest.mark.parametrize("is_scaled", [True, False])
def test_sums_over_short_rows(
    kind: str, sizes: tuple[int, ...], dimensions: tuple[int, ...], is_scaled: bool
) -> None:
    """Of neighbors in memory, and of products with one factor for each row, between which lanes are rows."""
    combiner = "or" if kind == "pred" else "add"
    kept = [size for d, size in enumerate(sizes) if d not in dimensions]
    array, rows, result = (f"{kind}[{','.join(map(str, some))}]" for some in (sizes, sizes[:-1], kept))
    factor = "and" if kind == "pred" else "multiply"
    wide = f"broadcast(m), dimensions={{{','.join(map(str, range(len(sizes) - 1)))}}}"
    start = {"pred": "false", "c64": "(0, 0)"}.get(kind, "0")
    text = f"""
ENTRY main {{
  x = {array} parameter(0)
  m = {rows} parameter(1)
  start = {kind}[] constant({start})
  wide = {array} {wide if is_scaled else "copy(x)"}
  products = {array} {factor}(x, wide)
  ROOT r = {result} reduce(products, start), dimensions={{{",".join(map(str, dimensions))}}},
      to_apply={combiner}_{kind}
}}
"""
    program = with_reducers(text)
    agree(program, *arguments(np.random.default_rng(2), program), rounded=kind[0] in "fbc")


def choice(kind: str, sizes: tuple[int, ...], dimension: int) -> str:
    """Return a program with the greatest elements along a dimension, and where they are."""
    shape = ",".join(map(str, sizes))
    result = ",".join(str(size) for d, size in enumerate(sizes) if d != dimension)
    return f"""
greater {{
  a = {kind}[] parameter(0)
  i = s64[] parameter(1)
  b = {kind}[] parameter(2)
  j = s64[] parameter(3)
  first = pred[] compare(a, b), direction=GE
  value = {kind}[] select(first, a, b)
  position = s64[] select(first, i, j)
  ROOT t = ({kind}[], s64[]) tuple(value, position)
}}

ENTRY main {{
  x = {kind}[{shape}] parameter(0)
  n = s64[{shape}] iota(), iota_dimension={dimension}
  least = {kind}[] constant(-100)
  none = s64[] constant(-1)
  ROOT r = ({kind}[{result}], s64[{result}]) reduce(x, n, least, none),
      dimensions={{{dimension}}}, to_apply=greater
}}
"""


@pytest.mark.parametrize("kind", ["f32", "f64", "s8"])
@pytest.mark.parametrize("sizes", [(50, 3, 3), (33, 5, 2), (7, 2, 7), (3, 40, 4, 5)])
def test_choices_of_each_column(kind: str, sizes: tuple[int, ...]) -> None:
    text = choice(kind, sizes, len(sizes) - 2)
    agree(text, *arguments(np.random.default_rng(1), text))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("batches", [31, 32, 77, 1000])
@pytest.mark.parametrize(("m", "k", "n"), [(2, 2, 2), (3, 3, 3), (4, 4, 4), (1, 3, 5), (4, 2, 1), (2, 7, 3)])
def test_products_of_tiny_matrices(kind: str, batches: int, m: int, k: int, n: int) -> None:
    """With an epilogue, and with a transposed factor."""
    text = f"""
ENTRY main {{
  a = {kind}[{batches},{m},{k}] parameter(0)
  b = {kind}[{batches},{k},{n}] parameter(1)
  c = {kind}[{batches},{m},{n}] parameter(2)
  d = {kind}[{batches},{n},{k}] parameter(3)
  ab = {kind}[{batches},{m},{n}] dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
      lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  ad = {kind}[{batches},{m},{n}] dot(a, d), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
      lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  sum = {kind}[{batches},{m},{n}] add(ad, c)
  most = {kind}[{batches},{m},{n}] maximum(sum, ad)
  ROOT t = ({kind}[{batches},{m},{n}], {kind}[{batches},{m},{n}]) tuple(ab, most)
}}
"""
    agree(text, *arguments(np.random.default_rng(batches), text), rounded=True)


def windows(kind: str, sizes: tuple[int, ...], window: str, combiner: str) -> str:
    """Return a program that combines the elements of windows."""
    return f"""
ENTRY main {{
  x = {kind}[{",".join(map(str, sizes))}] parameter(0)
  start = {kind}[] constant(1)
  ROOT r = reduce-window(x, start), window={{{window}}}, to_apply={combiner}_{kind}
}}
"""


@pytest.mark.parametrize(("kind", "combiner"), [("f32", "add"), ("f64", "maximum"), ("s8", "multiply")])
@pytest.mark.parametrize(
    ("sizes", "window"),
    [
        ((300, 2), "size=1x2 pad=0_0x1_0"),
        ((77, 5), "size=1x5 pad=0_0x0_4"),
        ((50, 3, 4), "size=1x3x1 pad=0_0x2_0x0_0"),
        ((3, 16, 17, 3), "size=1x2x2x1 stride=1x2x2x1"),
        ((2, 9, 40, 3), "size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x0_1x0_0"),
        ((40, 7), "size=1x3 pad=0_0x1_1 lhs_dilate=1x1 rhs_dilate=1x2"),
    ],
)
def test_windows_of_short_rows(kind: str, combiner: str, sizes: tuple[int, ...], window: str) -> None:
    text = with_reducers(windows(kind, sizes, window, combiner))
    agree(text, *arguments(np.random.default_rng(3), text), rounded=kind == "f32")


@pytest.mark.parametrize("outer", [1, 3, 40])
def test_indices_of_gathered_terms(outer: int) -> None:
    """Elements of a finite element: the values of its nodes, gathered once, times its matrix."""
    text = f"""
ENTRY main {{
  matrices = f32[{outer},50,3,3] parameter(0)
  values = f32[90] parameter(1)
  nodes = u8[{outer},50,3] parameter(2)
  zero = f32[] constant(0)
  gathered = f32[{outer},50,3] gather(values, nodes), offset_dims={{}}, collapsed_slice_dims={{0}},
      start_index_map={{0}}, index_vector_dim=3, slice_sizes={{1}}
  wide = f32[{outer},50,3,3] broadcast(gathered), dimensions={{0,1,3}}
  products = f32[{outer},50,3,3] multiply(matrices, wide)
  ROOT r = f32[{outer},50,3] reduce(products, zero), dimensions={{3}}, to_apply=add
}}
"""
    program = with_reducers(text)
    agree(program, *arguments(np.random.default_rng(outer), program), rounded=True)
