"""Both programs of each rule of XLA have the same results on the evaluator, for drawn sizes.

A proof compares terms; this compares the statements with what operations do, without any proof.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.ir.module import HloModule
from hloom.passes.rewriting import same_type
from hloom.proofs.symbolic.rules import SymbolicRule, programs
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.symbolic.verdicts import InvalidSizes, Pair, plain
from hloom.shape.shape import Shape
from tests import agreement
from tests.proofs.proved_rules import rules_of_xla
from tests.proofs.rule_mutants import DrawnSizes

STATEMENTS = dict(rules_of_xla())
PROGRAMS = 3
"""Number of sizes for which the programs of a statement are compared."""
TRIES = 2000
NUMBERS = np.array([1, 2, 3, 4, -1, -2, -3])
"""Elements of arguments: none of them is 0, by which a rule over the reals may divide."""


def drawn(rule: SymbolicRule) -> Iterator[Pair]:
    """Yield the programs of a statement for drawn sizes, with one dimension of each class."""
    draw, counts = random.Random(1), dict.fromkeys(rule.axes, 1)
    for _ in range(TRIES):
        try:
            pair = programs(rule, rule.kinds[0], counts, Trail(DrawnSizes(draw)))
        except InvalidSizes:
            continue
        yield Pair(plain(pair.before), plain(pair.after))


def results(module: HloModule, seed: int) -> tuple[Any, Any]:
    """Return the result of a program, of arguments drawn by name, and its rounding errors."""

    def argument(name: str, shape: Shape) -> np.ndarray[Any, Any]:
        numbers = np.random.default_rng([seed, *name.encode()]).choice(NUMBERS, shape.dimensions)
        return (np.asarray(numbers) > 0 if shape.element_type.is_predicate else np.asarray(numbers)).astype(
            shape.element_type.numpy_dtype
        )

    arguments = [argument(p.name, p.shape) for p in module.entry.parameters]
    with np.errstate(all="ignore"):
        return ErrorAnalysis(module).run(arguments)


def check(name: str) -> None:
    """Compare the programs of a statement, up to the rounding errors of both.

    The rule applies to some of the sizes.
    """
    pairs = [pair for pair, _ in zip(drawn(STATEMENTS[name]), range(PROGRAMS), strict=False)]
    assert pairs
    for seed, pair in enumerate(pairs):
        pair.after.verify()
        assert same_type(pair.before.entry.root.shape, pair.after.entry.root.shape)
        (before, error), (after, other_error) = (results(m, seed) for m in (pair.before, pair.after))
        agreement.within(after, before, error + other_error)


def of_book(*books: str) -> list[str]:
    """Return the names of the statements of some books."""
    return [name for name in STATEMENTS if name.split(".")[0] in books]


@pytest.mark.parametrize("name", of_book("elementwise", "conversion"))
def test_statements_of_elementwise_operations(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", of_book("movement"))
def test_statements_of_movement(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", of_book("slicing"))
def test_statements_of_slicing(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", of_book("sums"))
def test_statements_of_sums(name: str) -> None:
    check(name)
