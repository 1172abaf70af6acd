"""Emitter of sorts: by keys if the comparator orders by numbers, else by the comparator."""

from __future__ import annotations

from hloom.cpu.kernels.sorting import long_sort
from hloom.cpu.kernels.sorting.merge_sort import emit_merge_sort, merge_sort_bytes
from hloom.cpu.kernels.sorting.row_sort import emit_rows, key_sort, length, slot_bytes, slots
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.plan.kernel import KernelPlan


def workspace_bytes(i: HloInstruction) -> int:
    """Return the bytes of scratch memory of a sort."""
    if not i.operands[0].shape.element_count:
        return 0
    plan = key_sort(i)
    if plan is None:
        return merge_sort_bytes(i)
    if long_sort.shares_row(i, plan):
        return long_sort.workspace_bytes(i, plan)
    return 0 if plan.by_network else slots(i) * slot_bytes(plan, length(i))


@KERNELS.register("sort", fuses=True, workspace=lambda i, target: workspace_bytes(i))
def emit_sort(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a sort."""
    i = plan.instruction
    results = [program.view(i, (n,) if i.shape.is_tuple else ()) for n in range(len(i.operands))]
    if not results[0].count:
        return
    keys = key_sort(i)
    if keys is None:
        emit_merge_sort(program, i, results)
    elif long_sort.shares_row(i, keys):
        long_sort.emit_long_sort(program, i, keys, results)
    else:
        sources = [program.pointer(o) for o in i.operands]
        emit_rows(program, i, keys, [*sources, *(r.pointer for r in results), program.workspace(i)])
