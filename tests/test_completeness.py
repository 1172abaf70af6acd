"""Completeness: all opcodes are declared, with shape rules and values; rules have well-formed names.

A run of all tests checks that every rule is broken by a test (`raised_rules`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY, Operation
from hloom.tools.pages.op_example import example_of
from tests.rule_names import rules

TESTS = Path(__file__).parent


# -- operations


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
