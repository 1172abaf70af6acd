"""Emitter of convolutions: direct kernels over strides, else a loop over the window for every element.

The elementwise operations that a fusion applies to a convolution become its epilogue: they run on each
register tile before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Final

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import Module, Value
from hloom.codegen.loops import LoopKernel, root_values
from hloom.codegen.target import Target
from hloom.codegen.types import Element, round_to, storage_bytes
from hloom.cpu.kernels.convolution.amx_windows import amx_convolution, result_indices
from hloom.cpu.kernels.convolution.convolution_depth import DepthTiles, emit_pack_depth
from hloom.cpu.kernels.convolution.convolution_groups import GroupTiles
from hloom.cpu.kernels.convolution.convolution_kernel import Epilogue, Tiles, emit_direct
from hloom.cpu.kernels.convolution.convolution_packing import (
    emit_copy_base,
    emit_copy_strips,
    emit_pack_kernel,
)
from hloom.cpu.kernels.convolution.convolution_plan import (
    DirectConvolution,
    across_depth,
    across_groups,
    convolution_of,
    in_strips,
)
from hloom.cpu.kernels.convolution.convolution_tiling import (
    TiledPhase,
    needs_copy,
    strip_by_strip,
    strips_pay,
    tiling_of,
)
from hloom.cpu.kernels.dot.amx_packing import LINE_BYTES
from hloom.cpu.kernels.dot.gemm import Epilogue as ProductStore
from hloom.cpu.kernels.dot.gemm_amx import emit_amx
from hloom.cpu.kernels.dot.gemm_epilogue import ProductEpilogue
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.iteration import result_shapes
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import kernel_parts
from hloom.records import dataclass

_WIDEST: Final = Target.named("x86_64-linux-gnu", "x86-64-v4")


@dataclass(frozen=True, slots=True)
class ConvolutionKernels:
    """The plan of a convolution's generated code: which kernels it has, and the layout of its workspace.

    Attributes:
        convolution: the convolution in terms of strides.
        phases: convolutions without base dilation that each compute a part of the result (all of it if there
            is only one), with the register tiles of each.
        kernel_offsets: byte offset in the workspace of each phase's packed filter (rhs); -1 if the phase
            reads the filter in place.
        bytes: size of the workspace. It begins with the copy of the base (lhs), if there is one.
    """

    convolution: DirectConvolution
    phases: tuple[TiledPhase, ...]
    kernel_offsets: tuple[int, ...]
    bytes: int

    @property
    def first_kernel(self) -> int:
        """Return the byte offset in the workspace of a convolution's packed filters (rhs).

        They follow the copy of the base (lhs), if there is one.
        """
        return -(-self.convolution.copied_bytes // 64) * 64


@lru_cache(maxsize=256)
def plan_of(i: HloInstruction, target: Target) -> ConvolutionKernels | None:
    """Return the plan of the kernels for a convolution instruction, or for a fusion around a convolution.

    Returns None if the convolution gets a generic loop over the elements of its result instead.
    """
    instruction = KERNELS.hero(i)
    convolution = _chosen(instruction, copied=False)
    if convolution is not None and any(needs_copy(convolution, phase) for phase in convolution.phases):
        convolution = _chosen(instruction, copied=True)
    if convolution is None:
        return None
    resumable = i is instruction and i.shape.element_type is convolution.kind
    tilings = [tiling_of(convolution, phase, target, resumable=resumable) for phase in convolution.phases]
    if all(
        strips_pay(TiledPhase(convolution, *each)) for each in zip(convolution.phases, tilings, strict=True)
    ):
        convolution = in_strips(convolution, [(t.row, t.rows) for t in tilings]) or convolution
        if convolution.strip:
            pairs = zip(convolution.phases, tilings, strict=True)
            tilings = [strip_by_strip(convolution, *each) for each in pairs]
    phases = tuple(TiledPhase(convolution, *each) for each in zip(convolution.phases, tilings, strict=True))
    total = ConvolutionKernels(convolution, phases, (), 0).first_kernel
    offsets: list[int] = []
    for tiled in phases:
        packed = tiled.phase.terms > 0 and tiled.packs_kernel
        offsets.append(total if packed else -1)
        total += tiled.packed_bytes if packed else 0
    return ConvolutionKernels(convolution, phases, tuple(offsets), total)


def _chosen(i: HloInstruction, *, copied: bool) -> DirectConvolution | None:
    """Return convolution ``i`` in terms of strides, with its vector lanes chosen; None if no choice suits it.

    The lanes are output features or, if these are few, features of several groups, or input features.
    ``copied`` says that the kernel reads a padded copy of the base (lhs).
    """
    convolution = convolution_of(i, copied=copied)
    if convolution is None:
        return None
    lanes, columns = 64 // storage_bytes(convolution.kind), convolution.phases[0].columns
    if columns * 2 > lanes:
        return convolution
    plan = across_groups(convolution, lanes) or across_depth(convolution, lanes)
    return plan or across_depth(convolution, lanes // 2) or (convolution if columns > 1 else None)


def fuses_epilogue(i: HloInstruction) -> bool:
    """Return whether elementwise operations on a convolution's result can be fused into its kernel.

    They cannot if the kernel stores partial sums to memory. This is decided for AVX-512 vectors, as the
    fusion passes do not know the target.
    """
    plan = plan_of(i, _WIDEST)
    return plan is not None and all(tiled.tiling.split is None for tiled in plan.phases)


@KERNELS.register("convolution", fuses=True, workspace=lambda i, target: _workspace(i, target))
def emit_convolution(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a convolution, or a fusion around one: copying of the base, packing of the filter, computation."""
    i = plan.instruction
    direct = plan_of(i, program.module.target)
    if direct is None:
        program.elements(plan)
        return
    instruction = plan.hero
    x, w = (program.pointer(_outside(i, instruction, o)) for o in instruction.operands)
    targets = [program.pointer(i, index) for index in program.assignment.values[i]]
    extra = targets if i is instruction else [*program.input_pointers(i), *targets]
    space = program.workspace(i)
    emit = partial(_emit_direct, program, i, direct, x, w, extra)
    amx = amx_convolution(instruction, program.module.target)
    if amx is None:
        emit(space)
        return
    bind = _store(i, direct.convolution) if i is instruction else _fused(i, direct.convolution)

    def rows(pointers: Sequence[Value]) -> ProductStore:
        epilogue = bind(pointers)

        def store(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            epilogue.store(e, result_indices(e, instruction, row, column), value)

        return store

    epilogue = ProductEpilogue(len(extra), extra, rows)
    kernel = _outside(i, instruction, instruction.operands[1])
    is_float = instruction.shape.element_type.is_floating
    emit_amx(program, i, amx, x, w, kernel, epilogue, space, emit if is_float else None)


def _emit_direct(
    program: ProgramEmitter,
    i: HloInstruction,
    direct: ConvolutionKernels,
    x: Value,
    w: Value,
    extra: Sequence[Value],
    space: Value,
) -> None:
    """Emit the kernel calls of a direct convolution of ``x`` and ``w``.

    ``extra`` are the addresses that its epilogue reads and writes, and ``space`` is that of the workspace.
    """
    f, convolution = program.function, direct.convolution
    instruction = KERNELS.hero(i)
    if convolution.copied_bytes:
        emit_copy = emit_copy_strips if convolution.strip else emit_copy_base
        program.call(i, program.shared(lambda n: emit_copy(program.module, n, convolution)), [x, space])
        x = space
    kept = _kept_kernel(program, i, direct, _outside(i, instruction, instruction.operands[1]))
    first = direct.first_kernel
    for tiled, offset in zip(direct.phases, direct.kernel_offsets, strict=True):
        base = f.offset(x, tiled.phase.x_offset * storage_bytes(convolution.x_type))
        weights = f.offset(w, tiled.phase.w_offset * storage_bytes(convolution.w_type))
        if offset >= 0:
            packed = f.offset(space, offset)
            with nullcontext() if kept is None else f.when(kept.compare("eq", 0)):
                _pack(program, i, tiled, weights, packed)
            weights = packed
            if kept is not None:
                weights = kept.compare("eq", 0).select(packed, f.offset(kept, offset - first))
        kernel = program.shared(_direct(program.module, i, tiled, len(extra)))
        program.call(i, kernel, [base, weights, *extra])


def _pack(
    program: ProgramEmitter, i: HloInstruction, tiled: TiledPhase, source: Value, target: Value
) -> None:
    """Emit the call of a kernel that packs the filter (rhs) of a phase from ``source`` into ``target``.

    A phase is a convolution without base dilation, one of those that compute the result.
    """
    emit = emit_pack_depth if tiled.convolution.deep else emit_pack_kernel
    pack = program.shared(partial(emit, program.module, tiled=tiled))
    program.call(i, pack, [source, target])


def _kept_kernel(
    program: ProgramEmitter, i: HloInstruction, direct: ConvolutionKernels, operand: HloInstruction
) -> Value | None:
    """Emit the address of a packed filter kept from an earlier execution; null at run time if there is none.

    Returns None if each execution must pack the filter (rhs), or the kernel reads it in place. The former is
    the case if ``operand``, the filter, is not an argument of the program that may be kept in packed form.
    """
    arguments, convolution = program.packed_arguments, direct.convolution
    factor = None if arguments is None else arguments.argument_operand(operand)
    if arguments is None or factor is None or factor.parts > 1 or -1 in direct.kernel_offsets:
        return None

    def pack(source: Value, target: Value) -> None:
        f, size = program.function, storage_bytes(convolution.w_type)
        for tiled, offset in zip(direct.phases, direct.kernel_offsets, strict=True):
            weights = f.offset(source, tiled.phase.w_offset * size)
            _pack(program, i, tiled, weights, f.offset(target, offset - direct.first_kernel))

    phases = [(t.phase.w_offset, t.phase.columns, t.phase.axes, t.tiling) for t in direct.phases]
    form = f"kernel {convolution.w_type} {convolution.kind} {operand.shape} {phases}"
    return arguments.address(factor, direct.bytes - direct.first_kernel, form, pack)


def _direct(module: Module, i: HloInstruction, tiled: TiledPhase, extra: int) -> Callable[[str], LoopKernel]:
    convolution = tiled.convolution
    bind = _store(i, convolution) if i.opcode == "convolution" else _fused(i, convolution)
    kind = GroupTiles if convolution.repeat else DepthTiles if convolution.deep else Tiles
    return lambda name: emit_direct(module, name, tiled, extra, bind, kind)


def _rounded(value: Element, convolution: DirectConvolution, i: HloInstruction) -> Element:
    result = i.shape.element_type
    return value if isinstance(value, tuple) or convolution.kind is result else round_to(value, result)


def _store(i: HloInstruction, convolution: DirectConvolution) -> Callable[[Sequence[Value]], Epilogue]:
    """Return a function that takes the result's address, and returns how to store sums: an `Epilogue`.

    The sums are rounded to the type of convolution ``i``. The function's argument is a list of one address.
    """

    def with_pointers(pointers: Sequence[Value]) -> Epilogue:
        target = View.of(pointers[0], i.shape)

        def store(e: Elements, indices: Indices, value: Element) -> None:
            e.store(target, indices, _rounded(value, convolution, i))

        return Epilogue(store, lambda e, indices: e.load(target, indices))

    return with_pointers


def _fused(i: HloInstruction, convolution: DirectConvolution) -> Callable[[Sequence[Value]], Epilogue]:
    """Return a function that takes addresses, and returns how to store a fusion's results: an `Epilogue`.

    It computes the results from the convolution's sums. The addresses are those of the fusion's inputs, then
    of its results.
    """
    parts = kernel_parts(i)
    inputs, roots = parts.inputs, parts.roots
    instruction = KERNELS.hero(i)

    def with_pointers(pointers: Sequence[Value]) -> Epilogue:
        views = {o: View.of(p, o.shape) for o, p in zip(inputs, pointers, strict=False)}
        targets = list(map(View.of, pointers[len(inputs) :], result_shapes(roots)))

        def store(e: Elements, indices: Indices, value: Element) -> None:
            e.views = views
            e.know(instruction, indices, _rounded(value, convolution, instruction))
            for target, root_value in zip(targets, root_values(e, roots, indices), strict=True):
                e.store(target, indices, root_value)

        return Epilogue(store, looped=True)

    return with_pointers


def _outside(i: HloInstruction, member: HloInstruction, operand: HloInstruction) -> HloInstruction:
    """Return the operand of ``i`` that the convolution ``member`` reads as its operand ``operand``.

    ``member`` is ``i`` itself, or an instruction inside the fusion ``i``; then ``operand`` is a parameter of
    the fusion.
    """
    if i is member:
        return operand
    return i.operands[parameter_number(operand)]


def _workspace(i: HloInstruction, target: Target) -> int:
    plan = plan_of(i, target)
    if plan is None:
        return 0
    amx = amx_convolution(KERNELS.hero(i), target)
    return plan.bytes if amx is None else LINE_BYTES + max(plan.bytes, amx.workspace())
