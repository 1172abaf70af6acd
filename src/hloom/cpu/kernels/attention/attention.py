"""Emitter of attention: scores, weights and sums of a block of rows, one block after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.llvm import I8, PTR, Value
from hloom.codegen.llvm.structured import choose
from hloom.codegen.target import Target
from hloom.cpu.kernels.attention.attention_plan import (
    Attention,
    attention_of,
    packed,
    plan_amx_products,
    plan_products,
)
from hloom.cpu.kernels.attention.blocks import AmxBlocks, RegisterBlocks, row_inputs
from hloom.cpu.kernels.dot.amx_packing import LINE_BYTES, emit_packing
from hloom.cpu.kernels.dot.gemm_packing import emit_pack_b
from hloom.cpu.kernels.dot.gemm_pairs import emit_large_enough
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.kernel import KernelPlan
from hloom.plan.registry import ATTENTION


@KERNELS.register(ATTENTION, workspace=lambda i, target: _workspace(i, target))
def emit_attention(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the calls of an attention fusion's kernels: pack keys and values, if needed; compute the result.

    The loop of the last kernel runs over blocks; a block is an interval of query rows in one batch.
    """
    i, module, f = plan.instruction, program.module, program.function
    attention = _attention(i)
    arrays = [program.pointer(i.operands[parameter_number(a)]) for a in attention.arrays]
    inputs = [program.pointer(i.operands[parameter_number(p)]) for p in row_inputs(attention)]
    others = [*inputs, program.pointer(i)]
    space = program.workspace(i)
    plans = plan_amx_products(attention, module.target)
    if plans is None:
        _in_registers(program, i, attention, arrays, others, space)
        return
    factors, tiles = (plans[0].a, plans[0].b, plans[1].b), list[Value]()
    place = f.offset(space, LINE_BYTES)
    for factor, source in zip(factors, arrays, strict=True):
        kernel = program.shared(lambda name, factor=factor: emit_packing(module, name, factor))
        program.call(i, kernel, [source, place])
        tiles.append(place)
        place = f.offset(place, factor.bytes)
    first, second = (factor.magnitudes for factor in factors[:2])
    test = program.shared(lambda name: emit_large_enough(module, name, first, second))
    program.call(i, test, [*tiles[:2], space])
    with choose(f, f.load(I8, space).compare("ne", 0)) as choice:
        kind = i.shape.element_type
        kernel = program.shared(lambda name: AmxBlocks(module, name, attention, plans, kind).emit())
        program.call(i, kernel, [*tiles, *others])
        choice.otherwise()
        _in_registers(program, i, attention, arrays, others, f.offset(space, LINE_BYTES))


def _in_registers(
    program: ProgramEmitter,
    i: HloInstruction,
    attention: Attention,
    arrays: Sequence[Value],
    others: Sequence[Value],
    space: Value,
) -> None:
    """Emit the kernel calls of attention in register tiles.

    ``arrays`` are the addresses of queries, keys and values, ``others`` those of other inputs and the result,
    and ``space`` is that of the workspace.
    """
    module, f = program.module, program.function
    products = plan_products(attention, module.target)
    queries, *factors = arrays
    pointers = [queries]
    for product, source in zip(products, factors, strict=True):
        if product.pack_b != "group":
            pointers.append(source)
            continue
        panels = packed(product)
        kernel = program.shared(lambda name, panels=panels: emit_pack_b(module, name, panels))
        program.call(i, kernel, [source, space, f.constant(PTR, 0)])
        pointers.append(space)
        space = f.offset(space, panels.workspace())
    kind = i.shape.element_type
    kernel = program.shared(lambda name: RegisterBlocks(module, name, attention, products, kind).emit())
    program.call(i, kernel, [*pointers, *others])


def _attention(i: HloInstruction) -> Attention:
    attention = attention_of(i)
    assert attention is not None
    return attention


def _workspace(i: HloInstruction, target: Target) -> int:
    attention = _attention(i)
    bytes = sum(packed(product).workspace() for product in plan_products(attention, target))
    plans = plan_amx_products(attention, target)
    if plans is None:
        return bytes
    return LINE_BYTES + max(bytes, plans[0].workspace() + plans[1].b.bytes)
