"""control-dependency-calls: turn custom calls that order two instructions into control dependencies."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import CustomCall, check_order, is_ordering
from hloom.operations.structure import Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer


class ControlDependencyCalls(OpExpander, name="control-dependency-calls", of=CustomCall, mandatory=True):
    """``() custom-call(a, b), custom_call_target="control_dep"`` → ``control-predecessors={a}`` on ``b``.

    `jax.experimental.control_deps` writes these calls. Raises VerifyError by the rules ``computation.cycle``
    if the first operand needs the second one, ``custom-call.control-dependency`` if there are not two.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not is_ordering(i):
            return None
        check_order(i)
        before, after = i.operands
        if after.opcode not in ("parameter", "constant"):
            before.add_control_dependency_to(after)
        i.bypass_control_dependencies()
        return w.op(Tuple())
