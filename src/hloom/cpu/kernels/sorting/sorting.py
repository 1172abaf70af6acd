"""Emitter of sorts: by integer keys if the comparator compares numbers, else merge sort by comparator."""

from __future__ import annotations

from hloom.codegen.target import Target
from hloom.cpu.kernels.sorting import radix_row
from hloom.cpu.kernels.sorting.merge_sort import emit_merge_sort, merge_sort_bytes
from hloom.cpu.kernels.sorting.radix_row import RadixRow
from hloom.cpu.kernels.sorting.row_sort import (
    SHARED,
    KeySort,
    emit_rows,
    key_sort,
    length,
    slot_bytes,
    slots,
)
from hloom.cpu.kernels.sorting.sample_sort import SampleSort
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.plan.kernel import KernelPlan


def workspace_bytes(i: HloInstruction, target: Target) -> int:
    """Return the bytes of scratch memory that the kernels of sort ``i`` need on ``target``; 0 if none."""
    if not i.operands[0].shape.element_count:
        return 0
    plan = key_sort(i, target)
    if plan is None:
        return merge_sort_bytes(i)
    match _shared_row(i, plan):
        case None:
            return 0 if plan.on_stack else slots(i) * slot_bytes(plan, length(i))
        case row:
            return row.workspace_bytes(plan, length(i))


@KERNELS.register("sort", fuses=True, workspace=workspace_bytes)
def emit_sort(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the kernels of a sort, and their calls.

    Rows are sorted by integer keys if the comparator compares any, else merge-sorted by the comparator.
    """
    i = plan.instruction
    results = [program.view(i, (n,) if i.shape.is_tuple else ()) for n in range(len(i.operands))]
    if not results[0].count:
        return
    keys = key_sort(i, program.module.target)
    if keys is None:
        emit_merge_sort(program, i, results)
        return
    pointers = [*map(program.pointer, i.operands), *(r.pointer for r in results), program.workspace(i)]
    row = _shared_row(i, keys)
    if row is not None:
        row(program, i, keys, pointers).emit()
    else:
        emit_rows(program, i, keys, pointers)


def _shared_row(i: HloInstruction, plan: KeySort) -> type[RadixRow] | type[SampleSort] | None:
    """Return the emitter for a sort of a single row that is long enough to be shared among threads.

    Returns None for several rows, a short row, or keys with indices in a separate array.
    """
    n = length(i)
    if i.operands[0].shape.element_count != n or plan.record.beside:
        return None
    if plan.method == "quicksort":
        return SampleSort if n >= SHARED else None
    return RadixRow if n >= radix_row.LEAST else None
