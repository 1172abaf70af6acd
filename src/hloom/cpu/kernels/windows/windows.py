"""Emitter of reduce-window: cumulative scans, pooling, or loops over elements."""

from __future__ import annotations

import math

from hloom.analysis.instructions import operation_of
from hloom.buffers.buffers import leaves
from hloom.cpu.kernels.movement.interleaving import emit_rows_kernel, find_short_sums
from hloom.cpu.kernels.windows.cumulative import cumulative_of, emit_cumulative
from hloom.cpu.kernels.windows.pooling import emit_pooling, is_pooling
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.operations.window_reduction import ReduceWindow
from hloom.plan.kernel import KernelPlan


@KERNELS.register("reduce-window")
def emit_reduce_window(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a reduce-window: rows as lanes if they are short, a scan, or pooling if it is padded.

    Else, it becomes a loop over the elements of the result.
    """
    i = plan.instruction
    scan = cumulative_of(i)
    targets = [program.pointer(i, index) for index, _ in leaves(i.shape)]
    terms = math.prod(d.size for d in operation_of(i, ReduceWindow).window)
    rows = find_short_sums(plan.parts, i, terms, program.module.target) if i.shape.is_array else None
    if rows is not None:
        kernel = program.shared(lambda name: emit_rows_kernel(program.module, name, plan.parts, rows))
    elif scan is not None and scan.results:
        kernel = program.shared(lambda name: emit_cumulative(program.module, name, i, scan))
    elif is_pooling(i):
        kernel = program.shared(lambda name: emit_pooling(program.module, name, i))
    else:
        program.elements(plan)
        return
    program.call(i, kernel, [*(program.pointer(o) for o in i.operands), *targets])
