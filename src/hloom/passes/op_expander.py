"""The skeleton of passes that replace single instructions, as XLA's OpExpanderPass."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Unpack

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.fuel import consume, exhausted
from hloom.passes.pipeline import Declaration, Pass
from hloom.passes.writing import Writer


class OpExpander(Pass):
    """A pass that replaces instructions one by one.

    Class arguments:
        mandatory: expand without asking for fuel, since what remains cannot be compiled.
    """

    mandatory: ClassVar[bool]

    def __init_subclass__(cls, *, mandatory: bool = False, **declaration: Unpack[Declaration]) -> None:
        cls.mandatory = mandatory
        super().__init_subclass__(**declaration)

    @abstractmethod
    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return what replaces an instruction; None to leave it as it is."""

    def run(self, module: HloModule) -> bool:
        """Expand the instructions of every computation; return whether there were any."""
        changed = False
        for computation in module.computations:
            for i in computation:
                if not isinstance(i.operation, self.of) or (exhausted() and not self.mandatory):
                    continue
                w = Writer(i)
                new = self.expand(i, w)
                if new is not None:
                    w.replace(new)
                    changed = True
                    if not self.mandatory:
                        consume(f"%{i.name}")
        return changed
