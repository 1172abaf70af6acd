"""Extraction of a part of a program as a program: a prefix of the entry, or a single computation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import Tuple
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape.shape import Shape

N = TypeVar("N", HloInstruction, HloComputation)


def named(items: Iterable[N], name: str) -> N:
    """Return the instruction or computation among ``items`` whose name is ``name``.

    Raises HloError (rule ``reduce.name``) if there is none, for example because an earlier step of a
    reduction has removed it.
    """
    for item in items:
        if item.name == name:
            return item
    raise HloError(f"the program has no {name!r}", rule="reduce.name")


def inlined(module: HloModule) -> HloModule:
    """Return a copy of a program with calls and fusions inlined, without dead code and without a schedule."""
    copy = module.clone()
    reset_config(copy)
    CallInliner().run(copy)
    DeadCodeElimination().run(copy)
    return copy


def reset_config(module: HloModule) -> None:
    """Drop the entry layout, input-output aliases, buffer donors and the schedule flag of a module, in place.

    They no longer hold once its parameters, results or instructions change.
    """
    module.config.is_scheduled = False
    module.config.entry_layout = None
    module.config.aliases = {}
    module.config.buffer_donors = []


def cut(module: HloModule, values: Sequence[HloInstruction]) -> HloModule:
    """Return a copy of a program whose result is the tuple of ``values``, instructions of its entry.

    Instructions that these values do not need are removed.
    """
    copy = module.clone()
    reset_config(copy)
    by_name = {i.name: i for i in copy.entry.instructions}
    parts = [by_name[value.name] for value in values]
    shape = Shape.tuple_([part.shape for part in parts])
    copy.entry.add(HloInstruction(copy.unique_name("cut"), Tuple(), shape, parts), root=True)
    DeadCodeElimination().run(copy)
    return copy


def extracted(module: HloModule, computation: HloComputation) -> HloModule:
    """Return a copy of a program whose entry is ``computation``; code that it does not need is removed."""
    copy = module.clone()
    reset_config(copy)
    entry = named(copy.computations, computation.name)
    copy.add(entry, entry=True)
    DeadCodeElimination().run(copy)
    return copy
