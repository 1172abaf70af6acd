"""Programs cut out of a program: up to some values of its entry, or one of its computations."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import Tuple
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape.shape import Shape


def inlined(module: HloModule) -> HloModule:
    """Return a copy without calls and fusions, and without a schedule."""
    copy = module.clone()
    free(copy)
    CallInliner().run(copy)
    DeadCodeElimination().run(copy)
    return copy


def free(module: HloModule) -> None:
    """Remove the properties of a module that hold only for its present parameters, results and order."""
    module.config.is_scheduled = False
    module.config.entry_layout = None
    module.config.aliases = {}
    module.config.buffer_donors = []


def cut(module: HloModule, values: Sequence[HloInstruction]) -> HloModule:
    """Return a copy whose result is the tuple of some values of the entry computation."""
    copy = module.clone()
    free(copy)
    by_name = {i.name: i for i in copy.entry.instructions}
    parts = [by_name[value.name] for value in values]
    shape = Shape.tuple_([part.shape for part in parts])
    copy.entry.add(HloInstruction(copy.unique_name("cut"), Tuple(), shape, parts), root=True)
    DeadCodeElimination().run(copy)
    return copy


def extracted(module: HloModule, computation: HloComputation) -> HloModule:
    """Return a copy whose entry is one of the computations."""
    copy = module.clone()
    free(copy)
    entry = next(c for c in copy.computations if c.name == computation.name)
    copy.add(entry, entry=True)
    DeadCodeElimination().run(copy)
    return copy
