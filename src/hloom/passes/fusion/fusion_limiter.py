"""fusion-limiter: divide fusions that evaluate too many elements for one kernel."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Fusion
from hloom.operations.structure import Parameter, Tuple
from hloom.passes.expand.call_inliner import inline
from hloom.passes.fuel import consume
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.pipeline import Pass
from hloom.plan.evaluations import evaluated_elements


class FusionLimiter(Pass, name="fusion-limiter", of=Fusion):
    """``y = fusion(x)`` that evaluates too many elements → its instructions, each with a kernel of its own.

    The passes that create fusions bound them. This is the guard behind them: a kernel's code, and the time
    that its emission takes, are proportional to the evaluated elements.

    Attributes:
        most_evaluated: maximum number of elements that a kernel evaluates for each result.
    """

    most_evaluated: int = 2048

    def run(self, module: HloModule) -> bool:
        """Divide the fusions of the entry and of every computation of control flow."""
        changed = False
        for computation in control_computations(module):
            for i in list(computation.instructions):
                if isinstance(i.operation, Fusion) and self.exceeds(i) and consume(f"%{i.name}"):
                    inline(i)
                    changed = True
        return changed

    def exceeds(self, fusion: HloInstruction) -> bool:
        """Return whether the kernel of a fusion would evaluate more elements than the limit."""
        body = fusion.called_computations[0]
        members = [m for m in body.post_order() if not isinstance(m.operation, Parameter)]
        roots = body.root.operands if isinstance(body.root.operation, Tuple) else [body.root]
        return sum(evaluated_elements(roots, members).values()) > self.most_evaluated
