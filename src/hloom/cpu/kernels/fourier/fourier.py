"""fft: a kernel for the transforms along each dimension, with lanes across them or along a single one.

Long transforms take two steps (Bailey, "FFTs in external or hierarchical memory", J. of Supercomputing 4,
1990): with j = n2 j1 + j2, the transforms of n2 columns of n1 elements, times exp(-2 pi i k1 j2 / n) and
transposed, and then those of n1 columns of n2 elements; k = k1 + n1 k2.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.llvm import I8, I64, PTR, Module
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.loops import LoopKernel
from hloom.codegen.target import Target
from hloom.cpu.kernels.fourier.axes import AxisTransform, axes_of, lanes_of, slot_bytes, slot_count
from hloom.cpu.kernels.fourier.lanes_across import LanesAcross
from hloom.cpu.kernels.fourier.lanes_along import LanesAlong
from hloom.cpu.kernels.fourier.spectra import Spectra
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.plan.kernel import KernelPlan


def workspace_bytes(i: HloInstruction, machine: Target) -> int:
    """Return the bytes of workspace of an fft: for intermediate results, and scratch arrays of transforms."""
    if not i.shape.element_count:
        return 0
    axes = axes_of(i, machine)
    scratch = max(slot_count(axis) * slot_bytes(axis) for axis in axes if not axis.converts)
    return scratch + sum(_intermediate_bytes(i, axes).values())


def _intermediate_bytes(i: HloInstruction, axes: Sequence[AxisTransform]) -> dict[str, int]:
    """Return the bytes of intermediate results in the workspace, by the names of `_goals`.

    ``spectrum``: of an inverse real transform along several dimensions; ``pairs``: the transforms of pairs of
    neighbors of real signals, if their conversion is a step of its own.
    """
    goals, part = _goals(axes), axes[0].part.size
    pairs = sum(2 * part * axis.outer * axis.length for axis in axes if axis.converts)
    bytes = {"spectrum": 2 * part * i.operands[0].shape.element_count, "pairs": pairs}
    return {name: -(-count // 64) * 64 for name, count in bytes.items() if name in goals}


def _goals(axes: Sequence[AxisTransform]) -> list[str]:
    """Return where each step stores its results: ``result``, ``pairs`` or ``spectrum``."""
    goals: list[str] = []
    is_inverse = any(axis.source in ("half", "spectrum") for axis in axes)
    for number, axis in enumerate(axes):
        converts_next = any(a.converts and a.target == "spectrum" for a in axes[number + 1 :])
        if axis.converts:
            goals.append("result" if axis.target == "spectrum" else "pairs")
        elif axis.whole:
            goals.append("pairs" if converts_next else "result")
        else:
            is_before = is_inverse and axis.source == axis.target == "complex" and number < len(axes) - 1
            goals.append("spectrum" if is_before else "result")
    return goals


@KERNELS.register("fft", workspace=workspace_bytes)
def emit_fft(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit an fft: a kernel and its call for each step."""
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    axes = axes_of(i, program.module.target)
    source, scratch = program.pointer(i.operands[0]), program.workspace(i)
    if not i.operands[0].shape.element_count:
        fill_bytes(target.pointer, program.function.constant(I8, 0), program.leaf_size(i))
        return
    places = {"result": target.pointer}
    for name, size in _intermediate_bytes(i, axes).items():
        places[name], scratch = scratch, program.function.offset(scratch, size)
    for axis, goal in zip(axes, _goals(axes), strict=True):
        kernel = program.shared(lambda name, a=axis: emit_axis(program.module, name, a))
        program.call(i, kernel, [source, places[goal], scratch])
        source = places[goal]


def emit_axis(module: Module, name: str, axis: AxisTransform) -> LoopKernel:
    """Emit the kernel (source, target, workspace, begin, end) of all transforms along one dimension."""
    function = module.function(name, [PTR] * 3 + [I64, I64])
    work = 2 * axis.outer * axis.inner * axis.length
    if axis.converts:
        emitter, form = Spectra(module, function, axis), "spectra of pairs"
    elif axis.within:
        emitter, form = LanesAlong(module, function, axis), "lanes along the transform"
    else:
        emitter, form = LanesAcross(module, function, axis), f"{lanes_of(axis)} transforms at a time"
    trips = emitter.emit()
    function.finish()
    return LoopKernel(name, trips, 1, work * (8 if axis.converts else axis.length.bit_length() or 1), form)
