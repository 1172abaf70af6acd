"""scatter-fusion: fuse the producers of a scatter's indices and updates into the scatter."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.affine import row_major_strides
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import ElementCost, Family
from hloom.operations.control_flow import Fusion
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.gather_scatter import Scatter
from hloom.operations.movement import Pad, Reverse, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Parameter, parameter_number
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.pipeline import Pass


class ScatterFusion(Pass, name="scatter-fusion", of=Scatter):
    """``scatter(x, f(i), g(u))`` → a ``fusion`` with the scatter as its root.

    Attributes:
        accepts: the scatters for which the target has a kernel.
        most_members: maximum number of instructions in a fusion.
    """

    accepts: Callable[[HloInstruction], bool] = lambda scatter: True
    most_members: int = 48

    def run(self, module: HloModule) -> bool:
        """Fuse every scatter with the producers that only it uses."""
        changed = False
        for computation in control_computations(module):
            for i in list(computation.instructions):
                if (
                    isinstance(i.operation, Scatter)
                    and i.shape.is_array
                    and i.shape.is_static
                    and self.accepts(i)
                    and consume(f"%{i.name}")
                ):
                    changed |= _ScatterGroup(computation, i, self.most_members).fuse()
        return changed


class _ScatterGroup:
    """A scatter and the producers fused into it."""

    def __init__(self, computation: HloComputation, scatter: HloInstruction, most: int) -> None:
        self.computation, self.scatter, self.most = computation, scatter, most
        self.taken: dict[HloInstruction, None] = {}
        self.members = 1

    def fuse(self) -> bool:
        """Create the fusion if at least one producer can be fused."""
        operand, *others = self.scatter.operands
        ordered = self.scatter.has_control_dependencies
        if self.scatter.has_side_effect or ordered or operand in others:
            return False
        waiting = list(others)
        while waiting:
            p = waiting.pop()
            if p not in self.taken and self.takes(p):
                self.taken[p] = None
                waiting.extend(p.operands)
        if not self.taken:
            return False
        assert self.computation.module is not None
        self.body = FusedBody(self.computation.module)
        self.copies: dict[HloInstruction, HloInstruction] = {}
        root = self.body.copy(self.scatter, [self.inside(o) for o in self.scatter.operands])
        self.body.computation.root = root
        fusion = self.body.fusion(self.scatter, f"{self.scatter.name}_fusion")
        self.scatter.replace_all_uses_with(fusion)
        self.computation.remove(self.scatter)
        for p in self.taken:  # users precede their operands
            if not p.users:
                self.computation.remove(p)
        return True

    def takes(self, p: HloInstruction) -> bool:
        """Return whether a value is used only inside the group and is cheap to compute."""
        inside = {self.scatter, *self.taken}
        if p.is_root or p.has_control_dependencies or not p.shape.is_array:
            return False
        if any(user not in inside for user in p.users) or p is self.scatter.operands[0]:
            return False
        if isinstance(p.operation, (Parameter, Constant)):
            return False
        body = p.called_computations[0].instructions if isinstance(p.operation, Fusion) else [p]
        parts = [m for m in body if not isinstance(m.operation, Parameter)]
        if not all(map(_is_cheap, parts)):
            return False
        if self.scatter.operands[0] in p.operands or self.members + len(parts) > self.most:
            return False
        self.members += len(parts)
        return True

    def inside(self, p: HloInstruction) -> HloInstruction:
        """Return the copy of a value in the fusion's body, or its parameter."""
        if p not in self.taken:
            return self.body.input(p)
        if p not in self.copies:
            if isinstance(p.operation, Fusion):
                self.copies[p] = self.inlined(p)
            else:
                self.copies[p] = self.body.copy(p, [self.inside(o) for o in p.operands])
        return self.copies[p]

    def inlined(self, fusion: HloInstruction) -> HloInstruction:
        """Copy a fused producer's body; return the copy of its root."""
        copies: dict[HloInstruction, HloInstruction] = {}
        body = fusion.called_computations[0]
        for member in body.post_order():
            if isinstance(member.operation, Parameter):
                copies[member] = self.inside(fusion.operands[parameter_number(member)])
            else:
                copies[member] = self.body.copy(member, [copies[o] for o in member.operands])
        return copies[body.root]


def _is_cheap(i: HloInstruction) -> bool:
    """Return whether an element costs less to recompute than to write and read back."""
    match i.operation:
        case Reshape():  # indices are joined, not divided
            sizes = ([n for n in s.dimensions if n != 1] for s in (i.operands[0].shape, i.shape))
            before, after = (set(row_major_strides(s)) for s in sizes)
            return before <= after
        case Constant():
            return i.shape.rank == 0
        case Transpose() | DynamicSlice() | Pad() | Reverse():
            return False
        case operation:
            computes = operation.elementwise or operation.family is Family.MOVEMENT
            return computes and operation.element_cost <= ElementCost.CHEAP and not operation.updates_operand
