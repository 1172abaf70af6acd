"""Facts of operations: cost, highlights and sharding rule of examples; ``--bless`` writes `facts.txt`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.sharding.test_operations import PROGRAMS, SHARDINGS, module_of

from hloom.analysis.cost import instruction_cost
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.ir.sharding_rule import Factor
from hloom.shape.element_type import S32
from hloom.tools.op_example import example_of

FILE = Path(__file__).with_name("facts.txt")
RANGES = ((-7, 5), (2, 3), (0, 40))
"""The least and the greatest number of each operand."""


def programs() -> Iterator[HloModule]:
    """Yield the examples of the pages of operations, and the programs that are tested on tiles."""
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
    if all(shape.is_array for shape in operands) and i.shape.is_array:
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
