"""Row fusions: reductions along rows and operations on their results, for rows of any length."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hloom import HloModule, compile
from tests import agreement
from tests.native_runs import agree, arguments, compiled
from tests.reducers import with_reducers

PROGRAM = """
HloModule rows
ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  least = {kind}[] constant(-inf)
  zero = {kind}[] constant(0)
  top = {kind}[{rows}] reduce(x, least), dimensions={{{last}}}, to_apply=maximum_{kind}
  tops = {kind}[{sizes}] broadcast(top), dimensions={{{kept}}}
  shifted = {kind}[{sizes}] subtract(x, tops)
  e = {kind}[{sizes}] exponential(shifted)
  sum = {kind}[{rows}] reduce(e, zero), dimensions={{{last}}}, to_apply=add_{kind}
  sums = {kind}[{sizes}] broadcast(sum), dimensions={{{kept}}}
  soft = {kind}[{sizes}] divide(e, sums)
  {result}
}}
"""


def softmax(kind: str, *sizes: int, result: str = "ROOT r = {kind}[{sizes}] copy(soft)") -> str:
    """Return a softmax along the last dimension."""
    words = {
        "kind": kind,
        "sizes": ",".join(map(str, sizes)),
        "rows": ",".join(map(str, sizes[:-1])),
        "last": len(sizes) - 1,
        "kept": ",".join(map(str, range(len(sizes) - 1))),
    }
    return with_reducers(PROGRAM.format(**words, result=result.format(**words)))


@pytest.mark.parametrize("length", [*range(1, 20), 31, 32, 33, 100])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_rows_of_any_length(kind: str, length: int) -> None:
    text = softmax(kind, 53, length)
    agree(text, *arguments(np.random.default_rng(length), text), rounded=True)


@pytest.mark.parametrize("sizes", [(1, 3), (7, 5), (16, 16), (3, 5, 7, 4), (40, 1, 6), (1000, 11)])
def test_rows_in_arrays_of_any_rank(sizes: tuple[int, ...]) -> None:
    text = softmax("f32", *sizes)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize("rows", [(37,), (3, 11), (1,), (64,)])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 16, 40])
@pytest.mark.parametrize(
    "values", ["soft, top, sum", "top, sum, soft, soft", "sum, e, sum", "column, e, sum"]
)
def test_values_of_rows_beside_whole_rows(rows: tuple[int, ...], length: int, values: str) -> None:
    of = {"soft": "{sizes}", "e": "{sizes}", "column": "{rows},1"}
    shapes = ", ".join(f"{{kind}}[{of.get(name, '{rows}')}]" for name in values.split(", "))
    result = f"column = {{kind}}[{{rows}},1] reshape(sum)\n ROOT r = ({shapes}) tuple({values})"
    text = softmax("f32", *rows, length, result=result)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


def test_narrow_rows_with_values_of_rows_are_lanes() -> None:
    text = softmax("f32", 64, 8, result="ROOT r = ({kind}[{rows}], {kind}[{sizes}]) tuple(sum, soft)")
    (kernel,) = [call.kernel for call in compiled(text).program.calls if call.kernel]
    assert kernel.form == "16 rows at a time"


@pytest.mark.parametrize("length", [2, 7, 12, 24])
def test_a_nan_stays_in_its_row(length: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, length)).astype(np.float32)
    x[3, 1], x[20, 0], x[39, length - 1] = np.nan, -np.inf, np.nan
    found = compiled(softmax("f32", 40, length))(x)
    undefined = np.isnan(found).any(axis=1)
    assert np.flatnonzero(undefined).tolist() == [3, 39]
    sums = found[~undefined].astype(np.float64).sum(axis=1)
    agreement.within(sums, np.ones(len(sums)), (length + 4) * np.finfo(np.float32).eps)


@pytest.mark.parametrize("length", [3, 8, 13])
def test_a_vector_for_every_row(length: int) -> None:
    result = """v = f32[{last_size}] parameter(1)
  scale = f32[{sizes}] broadcast(v), dimensions={{{last}}}
  ROOT r = f32[{sizes}] multiply(soft, scale)""".replace("{last_size}", str(length))
    text = softmax("f32", 65, length, result=result)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


OTHER_ROWS = {
    "reverse": "ROOT o = f32[24,24] reverse(t), dimensions={0}",
    "within the row": "ROOT o = f32[24,24] reverse(t), dimensions={1}",
    "transpose": "ROOT o = f32[24,24] transpose(t), dimensions={1,0}",
    "pad": """cut = f32[23,24] slice(t), slice={[1:24],[0:24]}
      zero = f32[] constant(0)
      ROOT o = f32[24,24] pad(cut, zero), padding=0_1x0_0""",
    "concatenate": """a = f32[9,24] slice(t), slice={[15:24],[0:24]}
      b = f32[15,24] slice(t), slice={[0:15],[0:24]}
      ROOT o = f32[24,24] concatenate(a, b), dimensions={0}""",
    "reshape": """flat = f32[576] reshape(t)
      turned = f32[576] reverse(flat), dimensions={0}
      ROOT o = f32[24,24] reshape(turned)""",
    "dynamic-slice": """zero = s32[] constant(0)
      d = f32[1,24] dynamic-slice(t, n, zero), dynamic_slice_sizes={1,24}
      line = f32[24] reshape(d)
      ROOT o = f32[24,24] broadcast(line), dimensions={1}""",
}


@pytest.mark.parametrize("place", OTHER_ROWS)
def test_values_kept_for_one_row_are_not_read_in_others(place: str) -> None:
    """An operation that moves elements to other rows reads the value that the reduction has computed."""
    text = with_reducers(f"""
HloModule moved
move {{
  t = f32[24,24] parameter(0)
  n = s32[] parameter(1)
  {OTHER_ROWS[place]}
}}
ENTRY main {{
  x = f32[24,24] parameter(0)
  y = f32[24,24] parameter(1)
  n = s32[] parameter(2)
  t = f32[24,24] divide(x, y)
  low = f32[] constant(-inf)
  m = f32[24] reduce(t, low), dimensions={{1}}, to_apply=maximum
  b = f32[24,24] broadcast(m), dimensions={{0}}
  s = f32[24,24] subtract(t, b)
  o = f32[24,24] call(t, n), to_apply=move
  q = f32[24,24] sine(o)
  p = f32[24,24] subtract(s, q)
  ROOT r = f32[24,24] add(p, o)
}}
""")
    rng = np.random.default_rng(0)
    x = rng.integers(-50, 50, (24, 24)).astype(np.float32)
    y = 2.0 ** rng.integers(-2, 3, (24, 24)).astype(np.float32)
    agree(text, x, y, np.int32(3), rounded=True)


SHARED = """
HloModule shared
ENTRY main {
  x = f32[37,192] parameter(0)
  zero = f32[] constant(0)
  sum = f32[37] reduce(x, zero), dimensions={1}, to_apply=add_f32
  size = f32[] constant(192)
  sizes = f32[37] broadcast(size), dimensions={}
  mean = f32[37] divide(sum, sizes)
  means = f32[37,192] broadcast(mean), dimensions={0}
  centred = f32[37,192] subtract(x, means)
  t = f32[37,192] tanh(centred)
  scaled = f32[37,192] multiply(t, x)
  weight = f32[37] reduce(scaled, zero), dimensions={1}, to_apply=add_f32
  weights = f32[37,192] broadcast(weight), dimensions={0}
  moved = f32[37,192] multiply(t, weights)
  square = f32[37] reduce(moved, zero), dimensions={1}, to_apply=add_f32
  squares = f32[37,192] broadcast(square), dimensions={0}
  ROOT r = f32[37,192] divide(t, squares)
}
"""


def test_loops_along_a_row_share_costly_values() -> None:
    """One loop computes tanh, which divides, and others read a copy; the mean is divided once a row."""
    text = with_reducers(SHARED)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)
    code = compile(HloModule.from_text(text)).to_llvm()
    assert len(re.findall(r"= fdiv <\d+ x float>", code)) == 2
    assert len(re.findall(r"= fdiv float", code)) == 1


CHAIN = """
HloModule chain
ENTRY main {
  x = s32[37,192] parameter(0)
  y = s32[37,192] parameter(1)
  a = s32[37,192] xor(x, y)
  b = s32[37,192] add(a, y)
  c = s32[37,192] xor(b, x)
  d = s32[37,192] add(c, y)
  least = s32[] constant(-2147483648)
  top = s32[37] reduce(d, least), dimensions={1}, to_apply=maximum_s32
  tops = s32[37,192] broadcast(top), dimensions={0}
  distance = s32[37,192] subtract(d, tops)
  ROOT r = s32[37,192] multiply(distance, d)
}
"""


def test_a_long_chain_of_cheap_operations_is_a_costly_value() -> None:
    text = with_reducers(CHAIN)
    agree(text, *arguments(np.random.default_rng(0), text))
    code = compile(HloModule.from_text(text)).to_llvm()
    assert len(re.findall(r"= xor <\d+ x i32>", code)) == 2


SPLIT = """
HloModule split
ENTRY main {
  x = f32[3,5,2,96] parameter(0)
  g = f32[192] parameter(1)
  factor = f32[2,96] parameter(2)
  zero = f32[] constant(0)
  y = f32[3,5,2,96] exponential(x)
  row = f32[3,5,192] reshape(y)
  sum = f32[3,5] reduce(row, zero), dimensions={2}, to_apply=add_f32
  root = f32[3,5] sqrt(sum)
  sums = f32[3,5,2,96] broadcast(root), dimensions={0,1}
  factors = f32[3,5,2,96] broadcast(factor), dimensions={2,3}
  part = f32[3,5,2,96] divide(x, sums)
  scaled = f32[3,5,2,96] multiply(part, factors)
  joined = f32[3,5,192] reshape(scaled)
  gs = f32[3,5,192] broadcast(g), dimensions={2}
  ROOT r = f32[3,5,192] multiply(joined, gs)
}
"""


def test_a_row_of_several_dimensions_reads_the_value_of_its_row() -> None:
    """The sum is computed once a row, not for each element; indices of elements are not divided."""
    text = with_reducers(SPLIT)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)
    executable = compile(HloModule.from_text(text))
    assert "udiv" not in executable.to_llvm()
    assert executable.to_llvm().count("sqrt") <= 2


NARROW = """
HloModule narrow
ENTRY main {{
  x = {kind}[50,{length}] parameter(0)
  zero = {kind}[] constant(0)
  ROOT r = {kind}[50] reduce(x, zero), dimensions={{1}}, to_apply=add_{kind}
}}
"""


@pytest.mark.parametrize("kind", ["u8", "s16", "f32", "f64"])
@pytest.mark.parametrize("length", range(2, 12))
def test_sums_of_narrow_rows(kind: str, length: int) -> None:
    text = with_reducers(NARROW.format(kind=kind, length=length))
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize(("kind", "length"), [("u8", 8), ("f32", 6)])
def test_lanes_run_along_the_sums_of_narrow_rows(kind: str, length: int) -> None:
    code = compile(HloModule.from_text(with_reducers(NARROW.format(kind=kind, length=length)))).to_llvm()
    assert "extractelement" not in code


def test_values_of_rows_that_other_results_do_not_read_keep_the_loops_apart() -> None:
    """The last sums read transposed arrays, which the exponentials do not: their rows are no single loop."""
    text = with_reducers("""
HloModule apart
ENTRY main {
  x = f32[2,16,16] parameter(0)
  y = f32[16,2] parameter(1)
  z = f32[16,2] parameter(2)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,16] reduce(x, low), dimensions={2}, to_apply=maximum_f32
  tops = f32[2,16,16] broadcast(top), dimensions={0,1}
  shifted = f32[2,16,16] subtract(x, tops)
  e = f32[2,16,16] exponential(shifted)
  total = f32[2,16] reduce(e, zero), dimensions={2}, to_apply=add_f32
  t = f32[2,16] transpose(y), dimensions={1,0}
  u = f32[2,16] transpose(z), dimensions={1,0}
  rows = f32[2,16,16] broadcast(t), dimensions={0,1}
  columns = f32[2,16,16] broadcast(u), dimensions={0,2}
  products = f32[2,16,16] multiply(rows, columns)
  one = f32[] constant(1)
  ones = f32[2,16] broadcast(one), dimensions={}
  square = f32[2,16] multiply(total, total)
  inverse = f32[2,16] divide(ones, square)
  inverses = f32[2,16,16] broadcast(inverse), dimensions={0,1}
  scaled = f32[2,16,16] multiply(products, inverses)
  terms = f32[2,16,16] multiply(scaled, e)
  sum = f32[2,16] reduce(terms, zero), dimensions={2}, to_apply=add_f32
  ROOT r = (f32[2,16,16], f32[2,16], f32[2,16], f32[2,16], f32[2,16]) tuple(e, total, t, u, sum)
}
""")
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)
