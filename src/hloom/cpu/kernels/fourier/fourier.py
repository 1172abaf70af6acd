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
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.plan.kernel import KernelPlan


def workspace_bytes(i: HloInstruction, machine: Target) -> int:
    """Return the bytes of workspace of an fft, for scratch arrays of long transforms and a half spectrum.

    The half spectrum is the intermediate result of an inverse real transform along several dimensions.
    """
    if not i.shape.element_count:
        return 0
    axes = axes_of(i, machine)
    return max(slot_count(axis) * slot_bytes(axis) for axis in axes) + _spectrum_bytes(i, axes)


def _spectrum_bytes(i: HloInstruction, axes: Sequence[AxisTransform]) -> int:
    if len(axes) == 1 or axes[-1].source not in ("half", "spectrum"):
        return 0
    return -(-2 * axes[0].part.size * i.operands[0].shape.element_count // 64) * 64


@KERNELS.register("fft", workspace=workspace_bytes)
def emit_fft(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit an fft: a kernel and its call for each dimension."""
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    axes = axes_of(i, program.module.target)
    source, result = program.pointer(i.operands[0]), target.pointer
    space = program.workspace(i)
    if not i.operands[0].shape.element_count:
        fill_bytes(result, program.function.constant(I8, 0), program.leaf_size(i))
        return
    spectrum = _spectrum_bytes(i, axes)
    for number, axis in enumerate(axes):
        goal = space if spectrum and number < len(axes) - 1 else result
        kernel = program.shared(lambda name, a=axis: emit_axis(program.module, name, a))
        scratch = program.function.offset(space, spectrum) if spectrum else space
        program.call(i, kernel, [source, goal, scratch])
        source = goal


def emit_axis(module: Module, name: str, axis: AxisTransform) -> LoopKernel:
    """Emit the kernel (source, target, workspace, begin, end) of all transforms along one dimension."""
    function = module.function(name, [PTR] * 3 + [I64, I64])
    emitter = LanesAlong(module, function, axis) if axis.within else LanesAcross(module, function, axis)
    trips = emitter.emit()
    function.finish()
    work = 2 * axis.outer * axis.inner * axis.length * max(1, axis.length.bit_length())
    form = "lanes along the transform" if axis.within else f"{lanes_of(axis)} transforms at a time"
    return LoopKernel(name, trips, 1, work, form)
