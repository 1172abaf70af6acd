"""Elements of small tables, looked up in registers: bits as the evaluator returns them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.shape.element_type import ElementType
from tests.evaluation import parse
from tests.native_runs import Native
from tests.processors import PROCESSORS, runs_here

SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257)
KINDS = ["pred", "s4", "u8", "f8e4m3fn", "s16", "bf16", "f16", "s32", "f32", "s64", "f64", "c64", "c128"]
"""Types of every number of bytes."""
COUNT = 101
"""Number of lookups: whole vectors and a remainder."""

each_processor = pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])


def lookups(tables: list[str], indices: str) -> str:
    """Return a program that reads each of several tables at indices."""
    numbers = range(len(tables))
    results = [f"{table.partition('[')[0]}[{COUNT}]" for table in tables]
    lines = [f"t{n} = {table} parameter({n})" for n, table in enumerate(tables)]
    lines.append(f"i = {indices}[{COUNT},1] parameter({len(tables)})")
    lines += [
        f"r{n} = {results[n]} gather(t{n}, i), offset_dims={{}}, collapsed_slice_dims={{0}}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
        for n in numbers
    ]
    lines.append(f"ROOT r = ({', '.join(results)}) tuple({', '.join(f'r{n}' for n in numbers)})")
    return "HloModule lookups\nENTRY main {\n" + "\n".join(lines) + "\n}"


def any_bits(rng: np.random.Generator, kind: str, *sizes: int) -> Any:
    """Draw patterns: NaNs with payloads too."""
    dtype = ElementType.parse(kind).numpy_dtype
    if kind == "pred":
        return rng.integers(0, 2, sizes).astype(bool)
    octets = rng.integers(0, 256, (*sizes, np.dtype(dtype).itemsize), np.uint8)
    return octets.view(dtype)[..., 0] if kind != "s4" else (octets[..., 0] & 7).astype(dtype)


def some_indices(rng: np.random.Generator, kind: str, *sizes: int) -> Any:
    """Draw indices inside of tables, and beyond both of their ends."""
    low, high = ElementType.parse(kind).limits
    values = rng.integers(max(low, -20), min(high, 300), sizes, endpoint=True)
    indices = values.astype(ElementType.parse(kind).numpy_dtype)
    indices.flat[:2] = low, high
    return indices


def same_bits(text: str, processor: str, *arguments: Any) -> None:
    """Assert that code for a processor computes the evaluator's bits."""
    if not runs_here(processor):
        pytest.skip("this machine has no such instructions")
    module = parse(text)
    got, wanted = Native(module, PROCESSORS[processor])(*arguments), Evaluator().run(module.entry, arguments)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, wanted)), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))


@each_processor
@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_type(kind: str, processor: str) -> None:
    rng = np.random.default_rng(1)
    text = lookups([f"{kind}[{size}]" for size in SIZES], "s32")
    tables = [any_bits(rng, kind, size) for size in SIZES]
    same_bits(text, processor, *tables, some_indices(rng, "s32", COUNT, 1))


@each_processor
@pytest.mark.parametrize("indices", ["u8", "s8", "u16", "u32", "s64", "u64"])
def test_indices_of_every_type(indices: str, processor: str) -> None:
    rng = np.random.default_rng(2)
    kinds = "f32", "u8", "f64"
    text = lookups([f"{kind}[{size}]" for kind in kinds for size in SIZES], indices)
    tables = [any_bits(rng, kind, size) for kind in kinds for size in SIZES]
    same_bits(text, processor, *tables, some_indices(rng, indices, COUNT, 1))


@each_processor
@pytest.mark.parametrize("lanes", [1, 2, 4, 5, 8, 16, 40])
@pytest.mark.parametrize("kind", ["u8", "f32", "f64", "c64"])
def test_a_table_in_each_row(kind: str, lanes: int, processor: str) -> None:
    """Rows of `take_along_axis`; the table of a row is loaded when its loop begins."""
    rng = np.random.default_rng(3)
    text = f"""HloModule rows
    ENTRY main {{
      t = {kind}[6,13] parameter(0)
      i = s32[6,{lanes},1] parameter(1)
      ROOT r = {kind}[6,{lanes}] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{1}},
        start_index_map={{1}}, operand_batching_dims={{0}}, start_indices_batching_dims={{0}},
        index_vector_dim=2, slice_sizes={{1,1}}
    }}"""
    same_bits(text, processor, any_bits(rng, kind, 6, 13), some_indices(rng, "s32", 6, lanes, 1))


@each_processor
@pytest.mark.parametrize("first", ["row", "rows"])
def test_a_matrix_as_a_table(first: str, processor: str) -> None:
    """Both indices of an element are read, or one of them is that of the loop: `x[i, j]` or `x[k, j]`."""
    rng = np.random.default_rng(4)
    row = "row = s32[50] broadcast(k), dimensions={}" if first == "row" else "row = s32[50] parameter(2)"
    text = f"""HloModule matrix
    ENTRY main {{
      t = f32[7,9] parameter(0)
      column = s32[50] parameter(1)
      k = s32[] constant(6)
      {row}
      rows = s32[50,1] reshape(row)
      columns = s32[50,1] reshape(column)
      i = s32[50,2] concatenate(rows, columns), dimensions={{1}}
      ROOT r = f32[50] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{0,1}}, start_index_map={{0,1}},
        index_vector_dim=1, slice_sizes={{1,1}}
    }}"""
    columns = [some_indices(rng, "s32", 50) for _ in range(1 if first == "row" else 2)]
    same_bits(text, processor, any_bits(rng, "f32", 7, 9), *columns)


@each_processor
def test_a_table_that_part_of_a_result_reads(processor: str) -> None:
    """Lanes outside of the padded array have an index of a row that does not exist."""
    rng = np.random.default_rng(5)
    text = """HloModule padded
    ENTRY main {
      t = f32[3,20] parameter(0)
      i = s32[3,40,1] parameter(1)
      g = f32[3,40] gather(t, i), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
        operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}
      z = f32[] constant(7)
      ROOT r = f32[8,47] pad(g, z), padding=2_3x1_6
    }"""
    same_bits(text, processor, any_bits(rng, "f32", 3, 20), some_indices(rng, "s32", 3, 40, 1))


@each_processor
def test_lookups_of_packed_numbers(processor: str) -> None:
    """A codebook of 16 numbers, looked up by the halves of bytes and summed."""
    rng = np.random.default_rng(6)
    text = """HloModule codebook
    add { a = s32[] parameter(0)
      b = s32[] parameter(1)
      ROOT s = s32[] add(a, b) }
    ENTRY main {
      t = s32[16] parameter(0)
      q = u8[30,40] parameter(1)
      four = u8[] constant(4)
      fours = u8[30,40] broadcast(four), dimensions={}
      high = u8[30,40] shift-right-logical(q, fours)
      i = u8[30,40,1] reshape(high)
      g = s32[30,40] gather(t, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=2, slice_sizes={1}
      z = s32[] constant(0)
      ROOT r = s32[30] reduce(g, z), dimensions={1}, to_apply=add
    }"""
    same_bits(text, processor, any_bits(rng, "s32", 16), any_bits(rng, "u8", 30, 40))
