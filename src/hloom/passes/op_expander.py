"""The skeleton of passes that replace single instructions, as XLA's OpExpanderPass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.fuel import consume


class OpExpander(ABC):
    """A pass that expands each instruction that it matches."""

    __slots__ = ()
    mandatory: ClassVar[bool] = False
    """Expand without asking for fuel: what remains cannot be compiled."""

    @abstractmethod
    def matches(self, i: HloInstruction) -> bool:
        """Return whether to expand an instruction."""

    @abstractmethod
    def expand(self, i: HloInstruction) -> None:
        """Replace an instruction that matches."""

    def run(self, module: HloModule) -> bool:
        """Expand the matching instructions of every computation; return whether there were any."""
        changed = False
        for computation in module.computations:
            for i in list(computation):
                if self.matches(i) and (self.mandatory or consume(f"%{i.name}")):
                    self.expand(i)
                    changed = True
        return changed
