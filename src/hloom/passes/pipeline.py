"""Passes and pipelines: what a pass is, and lists of passes that read as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from hloom.ir.module import HloModule


@runtime_checkable
class Pass(Protocol):
    """A rewrite of a module.

    A pass is a frozen dataclass: options are fields, ``name`` is XLA's own where XLA has the pass.
    """

    name: ClassVar[str]

    def run(self, module: HloModule) -> bool:
        """Rewrite the module in place; returns whether anything changed."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order; itself a pass.

    Attributes:
        passes: run one after the other.
        until_stable: run them all again until none changes anything (at most ``rounds`` times).
    """

    passes: Sequence[Pass]
    until_stable: bool = False
    rounds: int = 25
    name: ClassVar[str] = "pipeline"

    def run(self, module: HloModule, observe: Callable[[Pass, HloModule], None] | None = None) -> bool:
        """Run the passes; ``observe`` sees the module after every pass that changed it."""
        changed = False
        for _ in range(self.rounds if self.until_stable else 1):
            again = False
            for item in self.passes:
                if isinstance(item, Pipeline):
                    again |= item.run(module, observe)
                elif item.run(module):
                    again = True
                    if observe is not None:
                        observe(item, module)
            changed |= again
            if not again:
                break
        return changed

    def flat(self) -> Iterator[Pass]:
        """Every pass that is not a pipeline, in order."""
        for item in self.passes:
            if isinstance(item, Pipeline):
                yield from item.flat()
            else:
                yield item
