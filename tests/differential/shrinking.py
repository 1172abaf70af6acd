"""Shrink failing modules: fewer results, and parameters in place of computed values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import hloom
from hloom.ir.module import HloModule

from .case import Case, program
from .draw import Array
from .modules import Module

NAME = re.compile(r"@\w+")


def smaller(module: Module, fails: Callable[[Module], bool]) -> Module:
    """Return the smallest module found that still fails: one result if that is enough, few instructions."""
    for value in module.results:
        alone = Module(pruned(dataclasses.replace(module.case, roots=(value.name,))), (value,))
        if fails(alone):
            module = alone
            break
    known = values_of(module.case)
    for name in reversed([line.split(" = ")[0] for line in module.case.lines]):
        there = any(line.startswith(f"{name} =") for line in module.case.lines)
        if there and name in known and name not in module.case.roots:
            given = Module(with_argument(module.case, name, known[name]), module.results)
            if fails(given):
                module = given
    return module


def pruned(case: Case) -> Case:
    """Remove instructions and computations that no result needs."""
    needed = set(case.roots)
    kept: list[str] = []
    for line in reversed(case.lines):
        name, expression = line.split(" = ", 1)
        if name in needed:
            needed |= set(NAME.findall(expression))
            kept.append(line)
    called: list[str] = []
    for text in reversed(case.computations):
        name, *used = NAME.findall(text)
        if name in needed:
            needed |= set(used)
            called.append(text)
    return dataclasses.replace(case, lines=tuple(reversed(kept)), computations=tuple(reversed(called)))


def values_of(case: Case) -> dict[str, Array]:
    """Return the evaluator's value of every array that the entry computes, by name."""
    names = [
        name for name, expression in (line.split(" = ", 1) for line in case.lines) if expression[0] != "("
    ]
    if not names:
        return {}
    text = program([dataclasses.replace(case, roots=tuple(names))])
    results = hloom.compile(HloModule.from_text(text), "evaluator")(*case.arguments)
    return dict(zip(names, results, strict=True))


def with_argument(case: Case, name: str, value: Array) -> Case:
    """Replace an instruction by an argument."""
    parameter = f"@p{len(case.parameters)}"
    shape = next(line.split(" = ", 1)[1].split(" ")[0] for line in case.lines if line.startswith(f"{name} ="))
    lines = [re.sub(rf"{name}\b", parameter, line) for line in case.lines if not line.startswith(f"{name} =")]
    more = dataclasses.replace(
        case, lines=tuple(lines), parameters=(*case.parameters, shape), arguments=(*case.arguments, value)
    )
    return pruned(more)
