"""Sums of the rows of triangles: the loop over a row leaves out the vectors that the mask makes neutral."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, draw, special_values
from tests.reducers import with_reducers

RNG = np.random.default_rng(0)


def program(
    direction: str,
    *,
    rows: int = 90,
    columns: int = 200,
    offset: int = 0,
    kind: str = "s32",
    combiner: str = "add",
    neutral: str = "0",
    keeps: bool = True,
    reduced: str = "1",
) -> str:
    """Return a reduction of the elements of which row + offset and column compare so, or do not."""
    sizes = f"[{rows},{columns}]"
    values = "x, n" if keeps else "n, x"
    result = f"{kind}[{rows}]" if reduced == "1" else f"{kind}[]"
    text = f"""ENTRY main {{
        x = {kind}{sizes} parameter(0)
        row = s32{sizes} iota(), iota_dimension=0
        column = s32{sizes} iota(), iota_dimension=1
        k = s32[] constant({offset})
        ks = s32{sizes} broadcast(k), dimensions={{}}
        moved = s32{sizes} add(row, ks)
        mask = pred{sizes} compare(moved, column), direction={direction}
        zero = {kind}[] constant({neutral})
        n = {kind}{sizes} broadcast(zero), dimensions={{}}
        kept = {kind}{sizes} select(mask, {values})
        ROOT r = {result} reduce(kept, zero), dimensions={{{reduced}}}, to_apply={combiner}_{kind} }}"""
    return with_reducers(text)


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "left out"])
@pytest.mark.parametrize("offset", [0, 1, -1, 63, 64, -64, 130, -89, 199, -300, 300])
@pytest.mark.parametrize("direction", ["GE", "GT", "LE", "LT"])
def test_sums_of_triangles(direction: str, offset: int, keeps: bool) -> None:
    agree(program(direction, offset=offset, keeps=keeps), draw(RNG, "s32[90,200]"))


@pytest.mark.parametrize("sizes", [(1, 200), (200, 1), (7, 9), (90, 64), (300, 128), (20, 4000)])
@pytest.mark.parametrize("direction", ["GE", "LE"])
def test_rows_of_any_length(direction: str, sizes: tuple[int, int]) -> None:
    rows, columns = sizes
    agree(program(direction, rows=rows, columns=columns), draw(RNG, f"s32[{rows},{columns}]"))


@pytest.mark.parametrize("direction", ["GE", "LE"])
def test_sums_of_all_rows(direction: str) -> None:
    agree(program(direction, reduced="0,1", rows=30, columns=50), draw(RNG, "s32[30,50]"))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("direction", ["GE", "LE"])
def test_sums_of_floats(direction: str, kind: str) -> None:
    agree(program(direction, kind=kind), draw(RNG, f"{kind}[90,200]"), rounded=True)


@pytest.mark.parametrize(
    "combiner, neutral",
    [("maximum", "-inf"), ("minimum", "inf"), ("multiply", "1"), ("add", "-0"), ("add", "0")],
)
@pytest.mark.parametrize("keeps", [True, False])
def test_other_combiners_and_special_values(combiner: str, neutral: str, keeps: bool) -> None:
    x = special_values(RNG, "f32", (90, 200))
    x = np.where(RNG.random(x.shape) < 0.3, x, 1).astype(np.float32)
    agree(program("GE", kind="f32", combiner=combiner, neutral=neutral, keeps=keeps), x, rounded=True)


def test_sums_of_negative_zeros() -> None:
    """A row of -0 and 0 begins with 0; one that begins with -0 has 0 from the mask."""
    x = np.full((90, 200), -0.0, np.float32)
    assert not np.signbit(agree(program("GE", kind="f32"), x)).any()
    text = program("GE", kind="f32").replace("reduce(kept, zero)", "reduce(kept, start)")
    text = text.replace("n = f32", "start = f32[] constant(-0)\n n = f32")
    assert not np.signbit(agree(text, x)).any()


def test_values_that_are_not_neutral_are_added() -> None:
    agree(program("GE", neutral="3"), draw(RNG, "s32[90,200]"))


def test_numbers_of_rows_that_wrap() -> None:
    text = program("GE", rows=100, columns=100, offset=100).replace("s32[100,100] iota", "s8[100,100] iota")
    for name in ("k = s32[]", "ks = s32[", "moved = s32["):
        text = text.replace(name, name.replace("s32", "s8"))
    agree(text, draw(RNG, "s32[100,100]"))


def test_masks_of_columns_by_rows_of_several_matrices() -> None:
    text = with_reducers("""ENTRY main {
        x = s32[5,60,200] parameter(0)
        row = s32[5,60,200] iota(), iota_dimension=1
        column = s32[5,60,200] iota(), iota_dimension=2
        mask = pred[5,60,200] compare(row, column), direction=GE
        zero = s32[] constant(0)
        n = s32[5,60,200] broadcast(zero), dimensions={}
        kept = s32[5,60,200] select(mask, x, n)
        ROOT r = s32[5,60] reduce(kept, zero), dimensions={2}, to_apply=add_s32 }""")
    agree(text, draw(RNG, "s32[5,60,200]"))


def test_a_mask_for_several_matrices() -> None:
    text = with_reducers("""ENTRY main {
        x = s32[5,60,200] parameter(0)
        row = s32[60,200] iota(), iota_dimension=0
        column = s32[60,200] iota(), iota_dimension=1
        mask = pred[60,200] compare(row, column), direction=LE
        masks = pred[5,60,200] broadcast(mask), dimensions={1,2}
        zero = s32[] constant(0)
        n = s32[5,60,200] broadcast(zero), dimensions={}
        kept = s32[5,60,200] select(masks, x, n)
        ROOT r = s32[5,60] reduce(kept, zero), dimensions={2}, to_apply=add_s32 }""")
    agree(text, draw(RNG, "s32[5,60,200]"))
