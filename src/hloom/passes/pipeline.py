"""Passes and pipelines: the interface of a pass, and sequences of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.phases import phase


@runtime_checkable
class Pass(Protocol):
    """A rewrite of a module.

    A pass is a frozen dataclass: options are fields, ``name`` is XLA's own where XLA has the pass. It may
    declare in ``needs``, ``establishes`` and ``breaks`` the facts about modules that it relies on or changes,
    and by ``settles = True`` that it is idempotent.
    """

    name: ClassVar[str]

    def run(self, module: HloModule) -> bool:
        """Rewrite the module in place; return whether anything changed."""
        ...


def facts_of(item: Pass, which: str) -> frozenset[str]:
    """Return the facts that a pass ``needs``, ``establishes`` or ``breaks``; see `hloom.passes.facts`."""
    return getattr(item, which, frozenset())


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order; itself a pass.

    Attributes:
        passes: run in order. A pass that needs a fact which no earlier pass establishes is rejected
            with HloError by the rule ``pipeline.needs``.
        until_stable: repeat the passes until none changes anything (at most ``rounds`` times).
        given: facts that hold before the first pass.
        title: the purpose, in a word.
    """

    passes: Sequence[Pass]
    until_stable: bool = False
    rounds: int = 25
    given: frozenset[str] = frozenset()
    title: str = "pipeline"
    name: ClassVar[str] = "pipeline"

    def __post_init__(self) -> None:
        holding = self.given
        for item in self.flat():
            missing = facts_of(item, "needs") - holding
            if missing:
                message = (
                    f"{item.name} needs {', '.join(sorted(missing))}, which no pass before it establishes"
                )
                raise HloError(message, rule="pipeline.needs")
            holding = (holding - facts_of(item, "breaks")) | facts_of(item, "establishes")

    def run(self, module: HloModule, observe: Callable[[Pass, HloModule], None] | None = None) -> bool:
        """Run the passes; call ``observe`` with the module after every pass that changed it.

        In later rounds a pass runs only if another pass has changed the module since, or if it changed the
        module itself and is not idempotent.
        """
        changes = 0
        done = [-1] * len(self.passes)
        for _ in range(self.rounds if self.until_stable else 1):
            before = changes
            for number, item in enumerate(self.passes):
                if done[number] == changes:
                    continue
                done[number] = changes
                if isinstance(item, Pipeline):
                    changed = item.run(module, observe)
                else:
                    with phase("passes", item.name, lambda: module.instruction_count):
                        changed = item.run(module)
                if not changed:
                    continue
                changes += 1
                if getattr(item, "settles", False):
                    done[number] = changes
                if observe is not None and not isinstance(item, Pipeline):
                    observe(item, module)
            if changes == before:
                break
        return changes > 0

    def flat(self) -> Iterator[Pass]:
        """Yield every pass that is not a pipeline, in order."""
        for item in self.passes:
            if isinstance(item, Pipeline):
                yield from item.flat()
            else:
                yield item
