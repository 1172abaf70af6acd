"""Evaluation of library calls: registers the programs that emulate them with the evaluator."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Value
from hloom.library_calls.emulation import emulations, program_of
from hloom.operations.custom_call import KNOWN


def evaluate(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Return the result of a library call."""
    return Evaluator().call(program_of(instruction).entry, operands)


KNOWN.update(dict.fromkeys(emulations(), evaluate))
