"""Emitter of reduce-window: cumulative scans, pooling, or loops over elements."""

from __future__ import annotations

from hloom.buffers.buffers import leaves
from hloom.cpu.kernels.windows.cumulative import cumulative_of, emit_cumulative
from hloom.cpu.kernels.windows.pooling import emit_pooling, is_pooling
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.plan.kernel import KernelPlan


@KERNELS.register("reduce-window")
def emit_reduce_window(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a reduce-window: as a scan if its windows are cumulative, else as pooling if it is padded.

    If neither is the case, it becomes a loop over the elements of the result.
    """
    i = plan.instruction
    scan = cumulative_of(i)
    targets = [program.pointer(i, index) for index, _ in leaves(i.shape)]
    if scan is not None and scan.results:
        kernel = program.shared(lambda name: emit_cumulative(program.module, name, i, scan))
    elif is_pooling(i):
        kernel = program.shared(lambda name: emit_pooling(program.module, name, i))
    else:
        program.elements(plan)
        return
    program.call(i, kernel, [*(program.pointer(o) for o in i.operands), *targets])
