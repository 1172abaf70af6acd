"""Keys of kernel plans: plans with equal keys have equal kernels, so that these are emitted once."""

from __future__ import annotations

from hloom.analysis.instructions import used_results
from hloom.analysis.structure import Key, operation_key
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import Constant
from hloom.plan.kernel import KernelPlan


def plan_key(plan: KernelPlan) -> Key:
    """Return a key of all that a kernel depends on: instruction, plan, shapes of operands, results used.

    Equal operands have equal numbers. A constant is part of the key itself, since code may contain its value.
    """
    i = plan.instruction
    number: dict[HloInstruction, int] = {}
    operands = [
        (number.setdefault(o, len(number)), o.shape, o if isinstance(o.operation, Constant) else None)
        for o in i.operands
    ]
    results = tuple(used_results(i))  # kernels of sorts and reductions store no others
    return (*operation_key(i), tuple(operands), results, plan.kind, plan.in_place, plan.workspace)
