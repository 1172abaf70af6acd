"""Dots that read slices of arrays in place, and write their results in other orders."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, arguments, compiled


def opcodes(text: str) -> list[str]:
    """Return the opcodes of the entry of the optimized program, without parameters."""
    found = [i.opcode for i in compiled(text).optimized.entry.instructions]
    return sorted(o for o in found if o not in ("parameter", "constant", "get-tuple-element", "tuple"))


def program(body: str) -> str:
    return f"HloModule views\n\nENTRY main {{{body}}}\n"


def runs(body: str, kernels: int) -> None:
    """Compare a program with the evaluator; it must have ``kernels`` kernels."""
    text = program(body)
    assert len(opcodes(text)) == kernels, opcodes(text)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


ATTENTION = """
  x = {t}[2,24,96] parameter(0)
  q = {t}[2,24,32] slice(x), slice={{[0:2], [0:24], [0:32]}}
  k = {t}[2,24,32] slice(x), slice={{[0:2], [0:24], [32:64]}}
  v = {t}[2,24,32] slice(x), slice={{[0:2], [0:24], [64:96]}}
  qh = {t}[2,24,4,8] reshape(q)
  kh = {t}[2,24,4,8] reshape(k)
  vh = {t}[2,24,4,8] reshape(v)
  s = {t}[2,4,24,24] dot(qh, kh), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  o = {t}[2,4,24,8] dot(s, vh), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
  y = {t}[2,24,4,8] transpose(o), dimensions={{0,2,1,3}}
  ROOT z = {t}[2,24,32] reshape(y)
"""


@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "s32"])
def test_heads_of_attention_are_not_copied(kind: str) -> None:
    runs(ATTENTION.format(t=kind), 2)


GROUPED_SCORES = """
  q = {t}[{rows},2,3,8] parameter(0)
  k = {t}[{keys},2,8] parameter(1)
  d = {t}[2,{keys},{rows},3] dot(k, q), lhs_batch_dims={{1}}, rhs_batch_dims={{1}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{3}}
  ROOT s = {t}[2,3,{rows},{keys}] transpose(d), dimensions={{0,3,2,1}}
"""
GROUPED_SUMS = """
  p = {t}[2,3,{rows},{keys}] parameter(0)
  v = {t}[{keys},2,8] parameter(1)
  d = {t}[2,8,3,{rows}] dot(v, p), lhs_batch_dims={{1}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{3}}
  ROOT y = {t}[{rows},2,3,8] transpose(d), dimensions={{3,0,2,1}}
"""


@pytest.mark.parametrize("kind", ["f32", "bf16", "c64", "s8"])
@pytest.mark.parametrize("rows", [16, 21, 129])
@pytest.mark.parametrize("keys", [5, 33])
def test_heads_in_groups_are_not_copied(kind: str, rows: int, keys: int) -> None:
    for body in (GROUPED_SCORES, GROUPED_SUMS):
        runs(body.format(t=kind, rows=rows, keys=keys), 1)


@pytest.mark.parametrize(("rows", "keys"), [(1, 33), (5, 33), (16, 1)])
def test_few_rows_or_keys_in_groups(rows: int, keys: int) -> None:
    text = program(GROUPED_SCORES.format(t="f32", rows=rows, keys=keys))
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


def test_columns_that_are_apart_in_the_result() -> None:
    text = program("""
      x = f32[2,20,8] parameter(0)
      y = f32[16,2,3,8] parameter(1)
      ROOT d = f32[2,20,16,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1},
        lhs_contracting_dims={2}, rhs_contracting_dims={3}""")
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize("ranges", ["[3:40], [5:60]", "[0:74:2], [9:64]", "[7:44], [0:55]"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "c64"])
def test_slices_of_either_operand(ranges: str, kind: str) -> None:
    result = "s32" if kind == "s8" else "f32" if kind == "bf16" else kind
    for text in (
        f"""
        x = {kind}[80,70] parameter(0)
        p = {kind}[37,55] slice(x), slice={{{ranges}}}
        q = {kind}[55,40] parameter(1)
        ROOT d = {result}[37,40] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""",
        f"""
        x = {kind}[80,70] parameter(0)
        p = {kind}[37,55] slice(x), slice={{{ranges}}}
        q = {kind}[37,40] parameter(1)
        ROOT d = {result}[40,55] dot(q, p), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}""",
    ):
        runs(text, 1)


def test_a_slice_and_what_follows() -> None:
    runs("""
      x = f32[80,70] parameter(0)
      p = f32[80,55] slice(x), slice={[0:80], [15:70]}
      q = f32[55,40] parameter(1)
      c = f32[80,40] parameter(2)
      d = f32[80,40] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT e = f32[80,40] add(d, c)""", 1)  # fmt: skip


def test_vectors_and_single_rows() -> None:
    runs("""
      x = f32[80,70] parameter(0)
      p = f32[80,55] slice(x), slice={[0:80], [15:70]}
      q = f32[55] parameter(1)
      ROOT d = f32[80] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""", 1)  # fmt: skip
    runs("""
      x = f32[80,70] parameter(0)
      p = f32[1,70] slice(x), slice={[79:80], [0:70]}
      q = f32[70,40] parameter(1)
      ROOT d = f32[1,40] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""", 1)  # fmt: skip


def test_batches_of_vectors() -> None:
    runs("""
      x = f32[30,70] parameter(0)
      p = f32[30,55] slice(x), slice={[0:30], [15:70]}
      q = f32[30,55] parameter(1)
      ROOT d = f32[30] dot(p, q), lhs_batch_dims={0}, rhs_batch_dims={0},
        lhs_contracting_dims={1}, rhs_contracting_dims={1}""", 1)  # fmt: skip


def test_what_others_need_too_is_copied_once() -> None:
    runs("""
      x = f32[80,70] parameter(0)
      p = f32[80,55] slice(x), slice={[0:80], [15:70]}
      q = f32[55,40] parameter(1)
      d = f32[80,40] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = (f32[80,40], f32[80,55]) tuple(d, p)""", 2)  # fmt: skip


def test_small_numbers_beside_a_bf16_slice_do_not_matter_for_the_result() -> None:
    text = program("""
      x = bf16[80,140] parameter(0)
      p = bf16[80,70] slice(x), slice={[0:80], [70:140]}
      q = bf16[70,90] parameter(1)
      ROOT d = f32[80,90] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    x, q = arguments(np.random.default_rng(0), text)
    x[:, :70] = np.asarray(2.0**-130, x.dtype)
    agree(text, x, q, rounded=True)
    x[:, 70:] = np.asarray(2.0**-70, x.dtype)
    q[:] = np.asarray(2.0**-72, q.dtype)
    agree(text, x, q)
