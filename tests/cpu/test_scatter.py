"""scatter with many updates, shared by threads or not, and fused with the producers of its operands.

Threads share updates of few elements in copies of the operand, and otherwise the operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, agree, draw
from tests.processors import PROCESSORS, runs_here
from tests.reducers import binary

DTYPES = {"s32": "i4", "u32": "u4", "s64": "i8", "u64": "u8", "u8": "u1", "s8": "i1", "s16": "i2"}
LATEST = "f { x = f32[] parameter(0)\n ROOT r = f32[] parameter(1) }\n"
TWO = """f {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  x = f32[] parameter(2)
  y = s32[] parameter(3)
  m = f32[] maximum(a, x)
  s = s32[] add(b, y)
  ROOT r = (f32[], s32[]) tuple(m, s)
}
"""


def check(text: str, *arguments: Any, rounded: bool = False) -> None:
    """Assert that native code agrees with the evaluator, and has the same bits if threads share the work."""
    alone = agree(text, *arguments, rounded=rounded)
    agreement.same(hloom.compile(parse(text), backend="cpu")(*arguments), alone)


def rows(kind: str, index: str, cells: int, updates: int, width: int, f: str) -> str:
    """Return rows, or single elements if the width is 0."""
    tail, window = (f",{width}", "1") if width else ("", "")
    return f"""{f}
    ENTRY e {{
      x = {kind}[{cells}{tail}] parameter(0)
      i = {index}[{updates},1] parameter(1)
      u = {kind}[{updates}{tail}] parameter(2)
      ROOT r = {kind}[{cells}{tail}] scatter(x, i, u), update_window_dims={{{window}}},
        inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
    }}"""


def arrays(kind: str, index: str, cells: int, updates: int, width: int) -> list[Any]:
    rng = np.random.default_rng(0)
    tail = f",{width}" if width else ""
    low = 0 if index[0] == "u" else -5
    high = min(cells + 5, 127 if index == "s8" else 1 << 20)
    places = rng.integers(low, high, (updates, 1)).astype(DTYPES[index])
    return [draw(rng, f"{kind}[{cells}{tail}]"), places, draw(rng, f"{kind}[{updates}{tail}]")]


@pytest.mark.parametrize("index", ["s32", "u32", "s64", "u64", "u8", "s8", "s16"])
@pytest.mark.parametrize(("cells", "updates"), [(100, 5003), (100, 33003), (5000, 33003)])
def test_indices_of_every_type(index: str, cells: int, updates: int) -> None:
    text = rows("s32", index, cells, updates, 0, binary("add", "s32"))
    check(text, *arrays("s32", index, cells, updates, 0))


@pytest.mark.parametrize("kind", ["f32", "bf16", "c64", "u8", "pred", "f64"])
@pytest.mark.parametrize("width", [0, 3, 16, 40])
@pytest.mark.parametrize("cells", [70, 5000])
def test_rows_of_every_type(kind: str, width: int, cells: int) -> None:
    updates = 4200 if width > 8 else 33000
    text = rows(kind, "s32", cells, updates, width, binary("or" if kind == "pred" else "add", kind))
    rounded = "copies" in kernels_of(text) and kind in ("f32", "f64")
    check(text, *arrays(kind, "s32", cells, updates, width), rounded=rounded)


@pytest.mark.parametrize(("opcode", "kind"), [
    ("maximum", "f32"), ("minimum", "f64"), ("multiply", "s32"), ("and", "u32"), ("xor", "u8"),
])  # fmt: skip
@pytest.mark.parametrize("width", [0, 3])
def test_copies_begin_with_the_neutral_element(opcode: str, kind: str, width: int) -> None:
    text = rows(kind, "s32", 33, 40000, width, binary(opcode, kind))
    assert "8 copies" in kernels_of(text)
    check(text, *arrays(kind, "s32", 33, 40000, width))


def test_copies_keep_zeros_and_nan() -> None:
    text = rows("f32", "s32", 4, 40000, 0, binary("add"))
    operand = np.array([-0.0, 0.0, -0.0, np.nan], np.float32)
    updates = np.full(40000, -0.0, np.float32)
    updates[39999] = np.inf
    places = (np.arange(40000, dtype=np.int32) % 2)[:, None]
    places[39999] = 2
    result = hloom.compile(parse(text), backend="cpu")(operand, places, updates)
    assert np.signbit(result).tolist()[:3] == [True, False, False]
    assert np.isinf(result[2]) and np.isnan(result[3])


def test_updates_of_one_element() -> None:
    places = np.full((40000, 1), 3, np.int32)
    text = rows("s32", "s32", 9, 40000, 0, binary("add", "s32"))
    check(text, np.zeros(9, np.int32), places, np.ones(40000, np.int32))


def test_every_update_of_one_scalar() -> None:
    text = f"""{binary("add", "s32")}
    ENTRY e {{
      x = s32[] parameter(0)
      i = s32[40000,0] parameter(1)
      u = s32[40000] parameter(2)
      ROOT r = s32[] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{}},
        scatter_dims_to_operand_dims={{}}, index_vector_dim=1, to_apply=f
    }}"""
    assert "8 copies" in kernels_of(text)
    check(text, np.int32(3), np.zeros((40000, 0), np.int32), np.arange(40000, dtype=np.int32))


def test_narrow_windows_that_may_overlap() -> None:
    text = f"""{binary("add", "s32")}
    ENTRY e {{
      x = s32[9,5] parameter(0)
      i = s32[40,1000,2] parameter(1)
      u = s32[2,40,1000,2] parameter(2)
      ROOT r = s32[9,5] scatter(x, i, u), update_window_dims={{0,3}}, inserted_window_dims={{}},
        scatter_dims_to_operand_dims={{1,0}}, index_vector_dim=2, to_apply=f
    }}"""
    assert "8 copies" in kernels_of(text)
    rng = np.random.default_rng(0)
    places = rng.integers(-2, 10, (40, 1000, 2)).astype(np.int32)
    check(text, draw(rng, "s32[9,5]"), places, draw(rng, "s32[2,40,1000,2]"))


def kernels_of(text: str) -> str:
    """Return the descriptions of a program's kernels."""
    return "; ".join(call.kernel.form for call in Native(parse(text)).program.calls if call.kernel)


def test_the_latest_of_many_stays() -> None:
    check(rows("f32", "s32", 1000, 40000, 0, LATEST), *arrays("f32", "s32", 1000, 40000, 0))


def test_two_dimensions_of_indices_and_of_batches() -> None:
    text = f"""{binary("maximum")}
    ENTRY e {{
      x = f32[30,8,50] parameter(0)
      i = s32[3,2,6000] parameter(1)
      u = f32[3,6000,8] parameter(2)
      ROOT r = f32[30,8,50] scatter(x, i, u), update_window_dims={{2}}, inserted_window_dims={{0,2}},
        scatter_dims_to_operand_dims={{2,0}}, index_vector_dim=1, to_apply=f
    }}"""
    rng = np.random.default_rng(0)
    places = rng.integers(-1, 52, (3, 2, 6000)).astype(np.int32)
    check(text, draw(rng, "f32[30,8,50]"), places, draw(rng, "f32[3,6000,8]"))


def test_two_operands() -> None:
    text = f"""{TWO}
    ENTRY e {{
      x = f32[300] parameter(0)
      y = s32[300] parameter(1)
      i = s32[33000,1] parameter(2)
      u = f32[33000] parameter(3)
      v = s32[33000] parameter(4)
      ROOT r = (f32[300], s32[300]) scatter(x, y, i, u, v), update_window_dims={{}},
        inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
    }}"""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 300, (33000, 1)).astype(np.int32)
    check(text, *(draw(rng, s) for s in ("f32[300]", "s32[300]")), places, *(
        draw(rng, s) for s in ("f32[33000]", "s32[33000]")
    ))  # fmt: skip


ASCENDING = {
    "with and without duplicates": lambda rng, n: rng.integers(-5, 605, n),
    "many of one element": lambda rng, n: rng.choice([3, 300, 599], n, p=[0.05, 0.9, 0.05]),
    "of one element": lambda rng, n: np.full(n, 17),
    "all before the first element": lambda rng, n: rng.integers(-9, 0, n),
    "all behind the last element": lambda rng, n: rng.integers(600, 609, n),
    "of the second half": lambda rng, n: rng.integers(300, 600, n),
}


@pytest.mark.parametrize("index", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("which", ASCENDING)
def test_ascending_indices(which: str, index: str) -> None:
    rng = np.random.default_rng(0)
    places = np.sort(ASCENDING[which](rng, 5003).astype(DTYPES[index]))[:, None]
    text = rows("f32", index, 600, 5003, 0, binary("add"))
    check(text, draw(rng, "f32[600]"), places, draw(rng, "f32[5003]"))


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("width", [0, 40])
@pytest.mark.parametrize("ascend", [True, False])
def test_every_processor_tests_whether_indices_ascend(processor: str, width: int, ascend: bool) -> None:
    if not runs_here(processor):
        pytest.skip(f"this machine is no {processor}")
    text = rows("f32", "s32", 600, 5003, width, binary("add"))
    x, places, u = arrays("f32", "s32", 600, 5003, width)
    places = np.sort(places, 0) if ascend else places
    module = parse(text)
    agreement.same(
        Native(module, PROCESSORS[processor])(x, places, u), Evaluator().run(module.entry, [x, places, u])
    )


@pytest.mark.parametrize("kind", ["f32", "bf16", "c64", "u8", "f64"])
@pytest.mark.parametrize("width", [3, 16, 40])
def test_ascending_indices_of_rows(kind: str, width: int) -> None:
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(-5, 605, (4200, 1)).astype(np.int32), 0)
    text = rows(kind, "s32", 600, 4200, width, binary("add", kind))
    check(text, draw(rng, f"{kind}[600,{width}]"), places, draw(rng, f"{kind}[4200,{width}]"))


@pytest.mark.parametrize("descent", [0, 511, 4100, 5001])
def test_indices_that_ascend_but_in_one_place(descent: int) -> None:
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, 600, (5003, 1)).astype(np.int32), 0)
    places[descent], places[descent + 1] = 599, 0
    text = rows("f32", "s32", 600, 5003, 0, binary("add"))
    text = text.replace("index_vector_dim=1", "index_vector_dim=1, indices_are_sorted=true")
    check(text, draw(rng, "f32[600]"), places, draw(rng, "f32[5003]"))


@pytest.mark.parametrize("f", [LATEST, *map(binary, ("maximum", "minimum", "multiply"))])
@pytest.mark.parametrize("cells", [100, 600])
def test_ascending_indices_and_combinations_of_special_values(f: str, cells: int) -> None:
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, cells, (33003, 1)).astype(np.int32), 0)
    updates = rng.choice(np.array([0, -0.0, 1, -1], np.float32), 33003)
    updates[rng.integers(0, 33003, 20)] = np.nan
    check(rows("f32", "s32", cells, 33003, 0, f), np.zeros(cells, np.float32), places, updates)


@pytest.mark.parametrize("ascend", [True, False])
def test_lookups_in_tables_of_several_dimensions(ascend: bool) -> None:
    text = f"""{binary("add")}
    ENTRY e {{
      t = f32[30,40] parameter(0)
      k = s32[5003,2] parameter(1)
      h = s32[5003] parameter(2)
      i = s32[5003,1] parameter(3)
      g = f32[5003] gather(t, k), offset_dims={{}}, collapsed_slice_dims={{0,1}}, start_index_map={{1,0}},
        index_vector_dim=1, slice_sizes={{1,1}}
      hs = s32[5003,1] reshape(h)
      n = s32[5003] gather(h, hs), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
        index_vector_dim=1, slice_sizes={{1}}
      c = f32[5003] convert(n)
      u = f32[5003] multiply(g, c)
      o = f32[] constant(0)
      x = f32[600] broadcast(o), dimensions={{}}
      ROOT r = f32[600] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
        scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
    }}"""
    rng = np.random.default_rng(0)
    positions = rng.integers(-3, 50, (5003, 2)).astype(np.int32)
    others = rng.integers(-9, 5009, 5003).astype(np.int32)
    places = rng.integers(-5, 605, (5003, 1)).astype(np.int32)
    places = np.sort(places, 0) if ascend else places
    check(text, draw(rng, "f32[30,40]"), positions, others, places)


@pytest.mark.parametrize("updates", [50, 5000])
def test_indices_and_updates_that_are_computed(updates: int) -> None:
    text = f"""{binary("add")}
    ENTRY e {{
      x = f32[64] parameter(0)
      i = s32[{updates}] parameter(1)
      u = f32[{updates}] parameter(2)
      t = f32[32] parameter(3)
      z = s32[] constant(0)
      n = s32[] constant(64)
      zs = s32[{updates}] broadcast(z), dimensions={{}}
      ns = s32[{updates}] broadcast(n), dimensions={{}}
      c = pred[{updates}] compare(i, zs), direction=LT
      w = s32[{updates}] add(i, ns)
      j = s32[{updates}] select(c, w, i)
      k = s32[{updates},1] reshape(j)
      g = f32[{updates}] gather(t, k), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
        index_vector_dim=1, slice_sizes={{1}}
      v = f32[{updates}] multiply(u, g)
      o = f32[] constant(0)
      s = f32[64] broadcast(o), dimensions={{}}
      ROOT r = f32[64] scatter(s, k, v), update_window_dims={{}}, inserted_window_dims={{0}},
        scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
    }}"""
    rng = np.random.default_rng(0)
    places = rng.integers(-70, 70, updates).astype(np.int32)
    check(text, draw(rng, "f32[64]"), places, draw(rng, f"f32[{updates}]"), draw(rng, "f32[32]"))


def test_batches_of_scatters() -> None:
    text = f"""{binary("add", "s32")}
    ENTRY e {{
      x = s32[40,64] parameter(0)
      i = s32[40,500,1] parameter(1)
      u = s32[40,500] parameter(2)
      ROOT r = s32[40,64] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{1}},
        scatter_dims_to_operand_dims={{1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
        index_vector_dim=2, to_apply=f
    }}"""
    rng = np.random.default_rng(0)
    places = rng.integers(-2, 66, (40, 500, 1)).astype(np.int32)
    check(text, draw(rng, "s32[40,64]"), places, draw(rng, "s32[40,500]"))
