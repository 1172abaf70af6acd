"""tree-reduction-rewriter: pieces that threads can share, for any reduction to few values."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom
from hloom.evaluate.evaluator import Evaluator
from hloom.passes.fusion.tree_reduction_rewriter import TreeReductionRewriter
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import arguments, compiled
from tests.pass_checks import opcodes


def reductions(text: str) -> int:
    """Count the reductions after the pass; values must not change, also in compiled code."""
    module = parse(text)
    given = arguments(np.random.default_rng(0), text)
    TreeReductionRewriter(least=256).run(module)
    module.verify()
    agreement.computed(Evaluator().run(module.entry, given), parse(text), given)
    agreement.computed(compiled(str(module))(*given), parse(text), given)
    return opcodes(module)["reduce"]


def reduction(
    kind: str, sizes: str, dimensions: str, opcode: str = "add", initial: str = "3", before: str = ""
) -> str:
    """Return a reduction of an array, or of the result of ``before``."""
    extents = [int(s) for s in sizes.split(",")]
    reduced = {int(d) for d in dimensions.split(",")}
    kept = ",".join(str(s) for d, s in enumerate(extents) if d not in reduced)
    x = "y" if before else "x"
    return f"""HloModule reduction
combine {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)  ROOT r = {kind}[] {opcode}(a, b) }}
ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  {before}
  v = {kind}[] constant({initial})
  ROOT r = {kind}[{kept}] reduce({x}, v), dimensions={{{dimensions}}}, to_apply=combine
}}
"""


@pytest.mark.parametrize("sizes, dimensions", [
    ("1024", "0"), ("63,65", "0,1"), ("64,64,3", "0,1"), ("90,7,5", "0,1"), ("4096,2", "0"), ("1000,31", "0"),
])  # fmt: skip
@pytest.mark.parametrize("opcode", ["add", "maximum"])
def test_a_large_reduction_is_split(sizes: str, dimensions: str, opcode: str) -> None:
    text = reduction("f64", sizes, dimensions, opcode)
    assert reductions(text) == 2


def test_many_rows_of_many_columns_are_added_up_a_few_at_a_time() -> None:
    assert reductions(reduction("f64", "4096,130", "0")) == 2
    assert reductions(reduction("f64", "100,130", "0")) == 1


@pytest.mark.parametrize("kind, opcode, initial", [
    ("s32", "add", "3"), ("s8", "multiply", "2"), ("u16", "maximum", "7"), ("s64", "minimum", "7"),
    ("u32", "xor", "5"), ("s16", "and", "6"), ("u8", "or", "1"), ("pred", "and", "true"),
    ("pred", "or", "false"), ("f32", "minimum", "1"),
])  # fmt: skip
def test_exact_combiners_give_the_same_bits(kind: str, opcode: str, initial: str) -> None:
    text = reduction(kind, "128,96,3", "0,1", opcode, initial)
    assert reductions(text) == 2


SUM = reduction("f32", "1024", "0")
STAYING = {
    "small": reduction("f32", "8,8", "0,1"),
    "narrow floats": reduction("bf16", "1024", "0"),
    "complex": reduction("c64", "1024", "0", initial="(3, 0)"),
    "a prime": reduction("f32", "1021", "0"),
    "rows": reduction("f32", "64,64", "1"),
    "wide": reduction("f32", "4,1000", "0"),
    "no plain combiner": SUM.replace(
        "ROOT r = f32[] add(a, b)", "n = f32[] abs(b)  ROOT r = f32[] add(a, n)"
    ),
}


@pytest.mark.parametrize("text", STAYING.values(), ids=STAYING)
def test_what_gains_nothing_or_would_round_otherwise_stays(text: str) -> None:
    assert not TreeReductionRewriter(least=256).run(parse(text))
    assert TreeReductionRewriter(least=256).run(parse(SUM))


def test_minus_zero_stays_the_sum_of_minus_zeros() -> None:
    text = reduction("f32", "1024", "0", initial="-0")
    module = parse(text)
    assert TreeReductionRewriter(least=256).run(module)
    assert str(Evaluator().run(module.entry, [np.full(1024, -0.0, np.float32)])) == "-0.0"


@pytest.mark.parametrize("before", [
    "y = f32[60,50,3] tanh(x)",
    "v3 = f32[3] constant({1, 2, 4})  s = f32[60,50,3] broadcast(v3), dimensions={2}  "
    "y = f32[60,50,3] multiply(x, s)",
    "y = f32[60,50,3] reverse(x), dimensions={1}",
    "n = f32[60,50,3] iota(), iota_dimension=1  y = f32[60,50,3] add(x, n)",
    "two = f32[] constant(2)  s = f32[60,50,3] broadcast(two), dimensions={}  "
    "y = f32[60,50,3] multiply(x, s)",
], ids=["elementwise", "a broadcast vector", "turned round", "numbered", "a broadcast scalar"])  # fmt: skip
def test_what_is_reduced_may_be_made_on_the_way(before: str) -> None:
    text = reduction("f32", "60,50,3", "0,1", before=before)
    assert reductions(text) == 2


@pytest.mark.parametrize("before, sizes", [
    ("n = f32[64,40] iota(), iota_dimension=0\n  y = f32[64,40] multiply(x, n)", "64,40"),
    ("t = f32[64,64] transpose(x), dimensions={1,0}\n  y = f32[64,64] multiply(x, t)", "64,64"),
    ("n = f32[40,9] iota(), iota_dimension=1\n  b = f32[64,40,9] broadcast(n), dimensions={1,2}\n"
     "  y = f32[64,40,9] multiply(x, b)", "64,40,9"),
])  # fmt: skip
def test_loops_over_pieces_of_values_by_index_divide_no_numbers(before: str, sizes: str) -> None:
    dimensions = ",".join(map(str, range(sizes.count(",") + 1)))
    text = reduction("f32", sizes, dimensions, before=before)
    assert reductions(text) == 2
    module = parse(text)
    TreeReductionRewriter(least=256).run(module)
    assert not re.search(r"\b(udiv|urem|sdiv|srem|lshr)\b", hloom.compile(module).to_llvm())


def test_costly_elements_are_split_from_fewer_elements_on() -> None:
    rewriter = TreeReductionRewriter(least=1 << 20, least_costly=1024)
    assert rewriter.run(parse(reduction("f32", "1024", "0", before="y = f32[1024] tanh(x)")))
    assert not rewriter.run(parse(reduction("f32", "512", "0", before="y = f32[512] tanh(x)")))
    assert not rewriter.run(parse(reduction("f32", "1024", "0", before="y = f32[1024] abs(x)")))
