"""Registries of code generation: one rule for an operation; a second one is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hloom.errors import HloError

Rule = TypeVar("Rule")


def enters(table: dict[str, Rule], what: str, *opcodes: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for some opcodes.

    Raises HloError by the rule ``codegen.registered-twice`` if one of them already has a rule.
    """

    def enter(rule: Rule) -> Rule:
        for opcode in opcodes:
            if opcode in table:
                raise HloError(f"{opcode} has {what} already", rule="codegen.registered-twice")
            table[opcode] = rule
        return rule

    return enter
