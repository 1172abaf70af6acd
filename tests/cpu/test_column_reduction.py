"""Sums of rows with a few columns, such as forces between all pairs of points."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.analysis.instructions import operation_of
from hloom.operations.reduction import Reduce
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from tests.evaluation import parse
from tests.native_runs import agree, arguments
from tests.reducers import with_reducers

FORCES = """HloModule forces

ENTRY main {{
  x = f32[{n},3] parameter(0)
  m = f32[{n}] parameter(1)
  zero = f32[] constant(0)
  small = f32[] constant(0.01)
  first = f32[{n},{n},3] broadcast(x), dimensions={{0,2}}
  second = f32[{n},{n},3] broadcast(x), dimensions={{1,2}}
  d = f32[{n},{n},3] subtract(first, second)
  squares = f32[{n},{n},3] multiply(d, d)
  distance = f32[{n},{n}] reduce(squares, zero), dimensions={{2}}, to_apply=add
  softening = f32[{n},{n}] broadcast(small), dimensions={{}}
  softened = f32[{n},{n}] add(distance, softening)
  inverse = f32[{n},{n}] rsqrt(softened)
  one = f32[{n},{n}] broadcast(m), dimensions={{0}}
  other = f32[{n},{n}] broadcast(m), dimensions={{1}}
  masses = f32[{n},{n}] {masses}
  strength = f32[{n},{n}] multiply(inverse, masses)
  along = f32[{n},{n},3] broadcast(strength), dimensions={{0,1}}
  f = f32[{n},{n},3] multiply(along, d)
"""


def forces(n: int, dimension: int, masses: str) -> str:
    total = f"ROOT total = f32[{n},3] reduce(f, zero), dimensions={{{dimension}}}, to_apply=add\n}}\n"
    return with_reducers(FORCES.format(n=n, masses=masses) + total)


@pytest.mark.parametrize("n", [5, 64, 100])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("masses", ["multiply(one, other)", "subtract(one, other)", "copy(other)"])
def test_forces_between_all_pairs(n: int, dimension: int, masses: str) -> None:
    text = forces(n, dimension, masses)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize(
    ("masses", "along"),
    [("multiply(one, other)", 1), ("subtract(one, other)", 1), ("copy(other)", 0)],
)
def test_sums_over_the_first_points_are_those_over_the_second_if_forces_are_opposite(
    masses: str, along: int
) -> None:
    module = parse(forces(70, 0, masses))
    AlgebraicSimplifier().run(module)
    totals = [i for i in module.entry.instructions if i.opcode == "reduce" and i.shape.dimensions == (70, 3)]
    assert [operation_of(i, Reduce).dimensions for i in totals] == [(along,)]


@pytest.mark.parametrize("kind", ["f32", "f64", "s32"])
@pytest.mark.parametrize("reducer", ["add", "maximum"])
@pytest.mark.parametrize("sizes", [(4, 64, 2), (3, 100, 7), (2, 3, 67, 3), (1, 128, 8), (64, 5)])
def test_columns_of_an_array(kind: str, reducer: str, sizes: tuple[int, ...]) -> None:
    rank = len(sizes)
    kept = ",".join(map(str, (*sizes[:-2], sizes[-1])))
    program = f"""HloModule columns

    ENTRY main {{
    x = {kind}[{",".join(map(str, sizes))}] parameter(0)
    v = {kind}[] parameter(1)
    ROOT r = {kind}[{kept}] reduce(x, v), dimensions={{{rank - 2}}}, to_apply={reducer}_{kind}
    }}"""
    text = with_reducers(program)
    agree(text, *arguments(np.random.default_rng(1), text), rounded=True)


@pytest.mark.parametrize("sizes", [(8, 600, 31, 1), (31, 600, 17, 1, 1), (1, 700, 1, 100, 1)])
def test_arrays_read_in_order_end_in_sizes_of_one(sizes: tuple[int, ...]) -> None:
    """The linear index of an operand read in order is that of a dimension which no reshape leaves out."""
    kept = [size for d, size in enumerate(sizes) if d > 1]
    array, narrow, result = (
        f"f32[{','.join(map(str, some))}]" for some in (sizes, [s for s in sizes if s != 1], kept)
    )
    long = [d for d, size in enumerate(sizes) if size != 1]
    text = f"""
ENTRY main {{
  x = {array} parameter(0)
  w = {narrow} parameter(1)
  wide = {array} broadcast(w), dimensions={{{",".join(map(str, long))}}}
  products = {array} multiply(x, wide)
  zero = f32[] constant(0)
  ROOT r = {result} reduce(products, zero), dimensions={{0,1}}, to_apply=add
}}
"""
    program = with_reducers(text)
    agree(program, *arguments(np.random.default_rng(0), program), rounded=True)
