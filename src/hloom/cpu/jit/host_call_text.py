"""The instructions of a program that call the host, as text stored beside its code in the cache.

A program loaded from the cache then needs neither the passes nor the emitters to find these instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions

_OPTIONS: Final = PrintOptions.short_parsable().replace(print_original_value=False)


def text_of_calls(module: HloModule, calls: Sequence[HloInstruction]) -> str:
    """Return the text of a module, from which `calls_in` restores the instructions ``calls``.

    These are the instructions of the module that native code leaves to Python; returns "" if there are none.
    Constants are elided, unless a computation called by these instructions has a constant, as Python needs
    its value.
    """
    if not calls:
        return ""
    evaluated = any(i.opcode == "constant" for call in calls for i in call.called_instructions())
    return module.to_text(_OPTIONS.replace(print_large_constants=evaluated))


def places_of_calls(module: HloModule, calls: Sequence[HloInstruction]) -> tuple[tuple[str, str], ...]:
    """Return (name of its computation, name of the instruction) for each instruction in ``calls``."""
    computations = {i: c.name for c in module.computations for i in c.instructions}
    return tuple([(computations[call], call.name) for call in calls])


def calls_in(text: str, places: Sequence[tuple[str, str]]) -> tuple[HloInstruction, ...]:
    """Parse the text of a module that `text_of_calls` returned, and return its instructions at ``places``.

    A place is (name of the computation, name of the instruction).
    """
    if not places:
        return ()
    module = HloModule.from_text(text)
    instructions = {(c.name, i.name): i for c in module.computations for i in c.instructions}
    return tuple([instructions[place] for place in places])
