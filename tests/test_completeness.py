"""Completeness: all opcodes are declared, with shape rules and values; rules have well-formed names.

A run of all tests checks that every rule is broken by a test (`raised_rules`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY, Operation
from hloom.tools.op_example import example_of
from rule_names import rules

TESTS = Path(__file__).parent

# jaxlib's HloOpcode names that are not the text's words joined by dashes.
IRREGULAR = {
    "Clz": "count-leading-zeros",
    "Cos": "cosine",
    "Exp": "exponential",
    "Expm1": "exponential-minus-one",
    "Log1p": "log-plus-one",
    "OptimizationBarrier": "opt-barrier",
    "PopulationCount": "popcnt",
    "Sin": "sine",
    "TopK": "topk",
}


def opcodes_of_jaxlib() -> list[str]:
    hlo = pytest.importorskip("jaxlib._hlo")
    names = [name[1:] for name in hlo.HloOpcode.__members__]
    words = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() for name in names)
    return [IRREGULAR.get(name, word) for name, word in zip(names, words, strict=True)]


# -- operations


def test_every_opcode_of_xla_is_declared() -> None:
    opcodes = opcodes_of_jaxlib()
    assert len(opcodes) == 133
    assert sorted(REGISTRY) == sorted(opcodes)


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_operation_has_a_shape_rule_and_a_value(opcode: str) -> None:
    cls = REGISTRY[opcode]
    assert cls.evaluate is not Operation.evaluate
    assert (cls.infer if cls.infers else cls.check) not in (Operation.infer, Operation.check)
    assert cls.__doc__


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_operation_has_an_example(opcode: str) -> None:
    example = example_of(opcode)
    assert example is not None
    assert opcode in {i.opcode for i in example.module().instructions()}


# -- rules


def test_rules_are_named_by_room_or_opcode_and_by_what_holds() -> None:
    odd = [rule for rule in rules() if not re.fullmatch(r"[a-z0-9\-]+\.[a-z0-9_\-]+", rule)]
    assert not odd
