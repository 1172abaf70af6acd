"""Run passes on programs in tests; the verifier must pass and values must not change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.pipeline import Pass
from tests import agreement
from tests.evaluation import parse
from tests.rule_checks import argument

CHANGES_NO_TEXT = ("scheduler", "while-loop-trip-count-annotator")
"""Ends of the names of passes whose results are not all in the text: annotations, orders of instructions."""


def after(text: str, *passes: Pass, arguments: list[Any] | None = None) -> HloModule:
    """The module of a text after passes, each of which is checked on arguments (random ones if none are "
    "given)."""
    module = parse(text)
    module.verify()
    FlattenCallGraph().run(module)
    drawn = [argument(p.shape, 1, plain=True) for p in module.entry.parameters]
    given = drawn if arguments is None else [np.asarray(a) for a in arguments]
    wanted = Evaluator().run(module.entry, given)
    for item in passes:
        run_truly(item, module)
        module.verify()
        try:
            agreement.same(Evaluator().run(module.entry, given), wanted)
        except AssertionError as error:
            raise AssertionError(f"{item.name}\n{module}\n{error}") from None
    return module


def run_truly(item: Pass, module: HloModule) -> None:
    """Run a pass, and assert that it returns whether it has changed the text of the program."""
    before = str(module)
    changed = item.run(module)
    if not item.name.endswith(CHANGES_NO_TEXT):
        assert changed == (str(module) != before), f"{item.name} returns {changed}"


def opcodes(module: HloModule) -> Counter[str]:
    """Count the instructions of each opcode in a module."""
    return Counter(i.opcode for i in module.instructions())
