"""The report of a compiled program's kernels: the plan of each instruction and the kernels that it calls.

::

    d: kernel; hero dot; workspace 2097152 B
      16 steps, work 1073741824, shared by threads; tiles of 8 rows, 2 x 16 columns; ...
    u: kernel; hero dynamic-update-slice; in place 0
      1 step, work 8
      copies %x, 4096 B: its value is needed by %y
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hloom.buffers.copies import ArrayCopy
from hloom.codegen.loops import LoopKernel
from hloom.cpu.program import NativeProgram, is_parallel
from hloom.plan.kernel import KernelKind, KernelPlan


def kernel_report(plans: Iterable[KernelPlan], program: NativeProgram) -> str:
    """Return a text about the code of a program: a line for each kernel plan, kernel and copy of an array.

    A plan states how one instruction runs; its line precedes those of its kernels and copies. Plans without
    code and copies of small arrays are left out. The last line states the bytes of the program's temporaries.
    """
    calls: dict[str, list[LoopKernel]] = defaultdict(list)
    for call in program.calls:
        if call.kernel is not None:
            calls[call.instruction].append(call.kernel)
    copies: dict[str, list[ArrayCopy]] = defaultdict(list)
    for copy in program.copies:
        copies[copy.instruction].append(copy)
    lines: list[str] = []
    for plan in plans:
        if plan.kind is not KernelKind.NONE:
            name = plan.instruction.name
            lines += [str(plan), *(f"  {_described(kernel)}" for kernel in calls[name])]
            lines += [f"  {copy}" for copy in copies[name]]
    lines.append(f"temporaries: {program.temp_bytes} B")
    return "".join(f"{line}\n" for line in lines)


def _described(kernel: LoopKernel) -> str:
    words = [f"{kernel.trips} steps" if kernel.trips != 1 else "1 step", f"work {kernel.work}"]
    if is_parallel(kernel):
        by = f" by {kernel.grain}" if kernel.grain > 1 else ""
        words.append(f"shared by threads{by}")
    return ", ".join(words) + (f"; {kernel.form}" if kernel.form else "")
