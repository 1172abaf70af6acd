"""The computation of a fusion under construction."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Fusion
from hloom.passes.writing import Body


class FusedBody(Body):
    """A new computation of a fusion.

    Attributes:
        inputs: the parameter of each value from outside, in order.
    """

    def __init__(self, module: HloModule) -> None:
        super().__init__(module, "fused_computation")
        self.inputs: dict[HloInstruction, HloInstruction] = {}

    def input(self, value: HloInstruction) -> HloInstruction:
        """Return the parameter of a value from outside."""
        if value not in self.inputs:
            self.inputs[value] = self.parameter(value.shape, f"param_{self.count}")
        return self.inputs[value]

    def inlined(self, i: HloInstruction, operands: Sequence[HloInstruction]) -> HloInstruction:
        """Add a copy of an instruction on other operands; of a fusion, copies of its instructions."""
        if not isinstance(i.operation, Fusion):
            return self.copy(i, operands)
        inner = i.called_computations[0]
        copies = dict(zip(inner.parameters, operands, strict=True))
        for member in inner.post_order():
            if member not in copies:
                copies[member] = self.copy(member, [copies[o] for o in member.operands])
        return copies[inner.root]

    def fusion(self, source: HloInstruction, name: str, kind: str = "kLoop") -> HloInstruction:
        """Add the fusion beside an instruction, with its metadata."""
        assert source.parent is not None
        shape, operands = self.computation.root.shape, list(self.inputs)
        name = self.module.unique_name(name)
        fusion = HloInstruction(name, Fusion(kind=kind), shape, operands, [self.computation])
        fusion.metadata = source.metadata
        return source.parent.add(fusion)
