"""control-dependency-calls: turn custom calls that order two instructions into control dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import check_order, is_ordering
from hloom.passes.expand.sharding_remover import drop
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register


@register
@dataclass(frozen=True, slots=True)
class ControlDependencyCalls(OpExpander):
    """``() custom-call(a, b), custom_call_target="control_dep"`` → ``control-predecessors={a}`` on ``b``.

    `jax.experimental.control_deps` writes these calls. Raises VerifyError by the rules ``computation.cycle``
    if the first operand needs the second one, ``custom-call.control-dependency`` if there are not two.
    """

    name: ClassVar[str] = "control-dependency-calls"
    mandatory: ClassVar[bool] = True

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a call that only orders others."""
        return is_ordering(i)

    def expand(self, i: HloInstruction) -> None:
        """Order by a control dependency."""
        _replace(i)


def _replace(call: HloInstruction) -> None:
    check_order(call)
    before, after = call.operands
    if after.opcode not in ("parameter", "constant"):
        before.add_control_dependency_to(after)
    drop(call)
