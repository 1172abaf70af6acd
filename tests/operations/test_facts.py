"""Facts of operations: cost, highlights and sharding rule of examples; ``--bless`` writes `facts.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hloom.analysis.cost import instruction_cost
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.ir.sharding_rule import Factor
from hloom.shape.element_type import S32
from hloom.tools.pages.op_example import example_of
from tests.reducers import with_reducers
from tests.sharding.test_operations import PROGRAMS, SHARDINGS, module_of

FILE = Path(__file__).with_name("facts.txt")
RANGES = ((-7, 5), (2, 3), (0, 40))
"""The least and the greatest number of each operand."""


MORE = with_reducers("""HloModule more
affine { a = f32[] parameter(0)  b = f32[] parameter(1)  p = f32[] multiply(a, b)  ROOT s = f32[] add(p, b) }
order {
  a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[8,6] parameter(0)
  n = s32[8,6] parameter(1)
  zero = f32[] constant(0)
  sum = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
  affine = f32[8] reduce(x, zero), dimensions={1}, to_apply=affine
  running = f32[8,6] reduce-window(x, zero), window={size=8x1 pad=7_0x0_0}, to_apply=add
  windows = f32[8,6] reduce-window(x, zero), window={size=3x2 pad=1_1x1_0}, to_apply=affine
  sorted = (f32[8,6], s32[8,6]) sort(x, n), dimensions={0}, to_apply=order
  call = f32[8,6] custom-call(x), custom_call_target="unknown"
  best = (f32[8,2], s32[8,2]) custom-call(x), custom_call_target="TopK", called_computations={order}
  whole = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={replicated}
  base = f32[2,9,9,4] parameter(2)
  kernel = f32[3,3,2,6] parameter(3)
  grouped = f32[2,4,4,6] convolution(base, kernel), window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f,
    feature_group_count=2
  kernel2 = f32[3,3,4,6] parameter(4)
  dilated = f32[2,17,9,6] convolution(base, kernel2), dim_labels=b01f_01io->b01f,
    window={size=3x3 pad=1_1x2_2 lhs_dilate=2x1 rhs_dilate=1x2}
  batches = f32[1,7,7,6] convolution(base, kernel2), window={size=3x3}, dim_labels=b01f_01io->b01f,
    batch_group_count=2
  ROOT t = () tuple()
}""")


def programs() -> Iterator[HloModule]:
    """Yield `MORE`, the examples of the pages of operations, and the programs that are tested on tiles."""
    yield HloModule.from_text(re.sub(r"  (?=[ab-j] = |ROOT)", "\n", MORE))
    for opcode in sorted(REGISTRY):
        example = example_of(opcode)
        if example is not None:
            yield example.module()
    for name in PROGRAMS:
        yield module_of(name, min(SHARDINGS), np.random.default_rng(0))


def factor_text(factor: Factor) -> str:
    """Return an index of an operation with its dimensions in operands and result."""
    places = [f"{number}[{d}]" for number, d in factor.operands.items()]
    result = "reduced" if factor.result is None else f"result[{factor.result}]"
    by = f" by {factor.combiner.opcode}" if factor.combiner is not None else ""
    return f"{factor.size} {factor.kind}: {' '.join([*places, result])}{by}"


def facts(i: HloInstruction) -> Iterator[str]:
    """Yield lines about an instruction."""
    operands = [o.shape for o in i.operands]
    yield f"{i.opcode}({', '.join(map(str, operands))}) → {i.shape}".replace("  ", " ")
    cost = instruction_cost(i)
    yield f"    {cost.flops:g} flops, {cost.transcendentals:g} transcendentals, {cost.bytes:g} bytes"
    for text in i.operation.highlights():
        yield f"    {text}"
    if all(leaf.is_array for shape in (*operands, i.shape) for _, leaf in shape.leaves()):
        yield from (f"    {factor_text(factor)}" for factor in i.operation.sharding_rule(i, operands))


def ranges() -> Iterator[str]:
    """Yield the range of the result of each elementwise operation whose operands have `RANGES`."""
    for opcode, operation in sorted(REGISTRY.items()):
        count = operation.arity()
        if operation.elementwise and count and opcode not in ("compare", "reduce-precision"):
            found = operation().value_range(S32, *RANGES[:count])
            if found is not None:
                yield f"{opcode}: {found[0]} to {found[1]}"


def described(modules: Iterable[HloModule]) -> Iterator[str]:
    """Yield the facts of all different instructions, then the ranges."""
    seen: set[str] = set()
    for module in modules:
        for i in module.instructions():
            text = "\n".join(facts(i))
            if text not in seen and i.opcode not in ("parameter", "constant"):
                seen.add(text)
                yield text
    yield from ranges()


def test_facts(pytestconfig: pytest.Config) -> None:
    found = "\n".join(described(programs())) + "\n"
    if pytestconfig.getoption("--bless"):
        FILE.write_text(found)
    assert found == FILE.read_text()
