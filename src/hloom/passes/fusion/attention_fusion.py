"""attention-fusion: join two products and the row operations between them into one kernel."""

from __future__ import annotations

from collections.abc import Callable

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Fusion
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.layout.product_views import dot_of
from hloom.passes.pipeline import Pass


class AttentionFusion(Pass, name="attention-fusion", of=Dot):
    """``dot(f(dot(q, k)), v)`` → one fusion, if f is a row fusion that nothing else uses.

    Attributes:
        takes: whether the target has a kernel for a fusion of these three instructions.
    """

    takes: Callable[[HloInstruction], bool]

    def run(self, module: HloModule) -> bool:
        """Fuse the row fusions of every computation with the products around them."""
        changed = False
        for computation in control_computations(module):
            for i in computation.post_order():
                if isinstance(i.operation, Fusion) and i.operation.kind == "kCustom":
                    changed |= self.join(i)
        return changed

    def join(self, rows: HloInstruction) -> bool:
        """Fuse a row fusion with the product of its scores and the product of its only user."""
        scores = [o for o in rows.operands if dot_of(o) is not None and len(o.users) == 1]
        (user, *others) = rows.users or [rows]
        trio = [*scores, rows, user]
        if len(scores) != 1 or others or dot_of(user) is None or dot_of(rows) is not None:
            return False
        if any(i.has_control_dependencies for i in trio) or any(i.is_root for i in trio[:2]):
            return False
        fusion = _joined(*trio)
        joins = self.takes(fusion) and consume(f"%{rows.name}")
        if joins:
            user.replace_all_uses_with(fusion)
        for i in trio[::-1] if joins else [fusion]:
            _remove(i)
        return joins


def _joined(scores: HloInstruction, rows: HloInstruction, user: HloInstruction) -> HloInstruction:
    """Add the fusion of three instructions, without uses."""
    assert rows.parent is not None and rows.parent.module is not None
    body = FusedBody(rows.parent.module)
    inlined: dict[HloInstruction, HloInstruction] = {}
    for i in (scores, rows, user):
        inlined[i] = body.inlined(i, [inlined[o] if o in inlined else body.input(o) for o in i.operands])
    body.computation.root = inlined[user]
    return body.fusion(user, f"{rows.name}_attention", "kCustom")


def _remove(i: HloInstruction) -> None:
    """Remove an instruction without users; of a fusion, also its computation."""
    computation = i.parent
    assert computation is not None and computation.module is not None
    computation.remove(i)
    if isinstance(i.operation, Fusion):
        computation.module.remove(i.called_computations[0])
