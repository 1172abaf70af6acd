"""The skeleton of passes that replace single instructions, as XLA's OpExpanderPass."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeAlias, Unpack

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.passes.fuel import consume, exhausted
from hloom.passes.pipeline import Declaration, Pass
from hloom.passes.writing import Writer

Classes: TypeAlias = type[Operation] | tuple[type[Operation], ...]


class OpExpander(Pass):
    """A pass that replaces instructions one by one.

    Class arguments:
        of: the operations that it may expand.
        mandatory: expand without asking for fuel, since what remains cannot be compiled.
    """

    of: ClassVar[Classes]
    mandatory: ClassVar[bool]

    def __init_subclass__(
        cls, *, of: Classes = Operation, mandatory: bool = False, **declaration: Unpack[Declaration]
    ) -> None:
        cls.of, cls.mandatory = of, mandatory
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
