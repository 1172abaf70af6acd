"""The emitter of dots: as matrix products where they are, else as loops over elements.

What a fusion does with the elements of a dot becomes the end of the product: it is applied to each tile
while the tile is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.cpu.elements import Elements, Indices, View
from hloom.cpu.gemm import Finish, Gemm, emit_gemm, emit_pack_a, emit_pack_b, product_of, rounded
from hloom.cpu.index import Index
from hloom.cpu.llvm_text import Value
from hloom.cpu.loops import result_shapes, root_values
from hloom.cpu.movement import divided
from hloom.cpu.program import WORKSPACES, ProgramEmitter, emitter, hero, kernel_parts
from hloom.cpu.types import Element
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number


@emitter("dot")
def emit_dot(program: ProgramEmitter, i: HloInstruction) -> None:
    """A dot by itself, or a fusion around one."""
    dot = hero(i)
    gemm = product_of(dot)
    if gemm is None:
        program.kernel(i)
        return
    a, b = packed(program, i, dot, gemm)
    if i is dot:
        kernel = program.shared(lambda name: emit_gemm(program.module, name, gemm, 1, _store(gemm, dot)))
        program.call(i, kernel, [a, b, program.pointer(dot)])
        return
    inputs, roots, _ = kernel_parts(i)
    targets = [program.pointer(i, index) for index in program.assignment.values[i]]
    kernel = program.shared(
        lambda name: emit_gemm(
            program.module,
            name,
            gemm,
            len(inputs) + len(targets),
            _fused(gemm, dot, inputs, roots),
            looped=True,
        )
    )
    program.call(i, kernel, [a, b, *program.input_pointers(i), *targets])


def _store(gemm: Gemm, dot: HloInstruction) -> Callable[[Sequence[Value]], Finish]:
    """The sums are the dot's result."""
    dimensions = (gemm.batches, gemm.m, gemm.n)

    def with_pointers(pointers: Sequence[Value]) -> Finish:
        target = View(pointers[0], dot.shape.element_type, dimensions)

        def finish(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.store(target, (batch, row, column), rounded(value, gemm, dot.shape.element_type))

        return finish

    return with_pointers


def _fused(
    gemm: Gemm, dot: HloInstruction, inputs: Sequence[HloInstruction], roots: Sequence[HloInstruction]
) -> Callable[[Sequence[Value]], Finish]:
    """The sums are elements of the dot, of which the results of the fusion are made."""

    def with_pointers(pointers: Sequence[Value]) -> Finish:
        views = {
            i: View(p, i.shape.element_type, i.shape.dimensions)
            for i, p in zip(inputs, pointers, strict=False)
        }
        targets = [
            View(p, shape.element_type, shape.dimensions)
            for p, shape in zip(pointers[len(inputs) :], result_shapes(roots), strict=True)
        ]

        def finish(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.views = views
            indices = dot_indices(e, dot, batch, row, column)
            e.know(dot, indices, rounded(value, gemm, dot.shape.element_type))
            for target, made in zip(targets, root_values(e, roots, indices), strict=True):
                e.store(target, indices, made)

        return finish

    return with_pointers


def dot_indices(e: Elements, dot: HloInstruction, batch: Index, row: Index, column: Index) -> Indices:
    """The index in a dot's result of an element of its matrix product."""
    operation: Any = dot.operation
    dimensions = dot.shape.dimensions
    batches = len(operation.lhs_batch_dims)
    lhs_kept = dot.operands[0].shape.rank - batches - len(operation.lhs_contracting_dims)
    groups = dimensions[:batches], dimensions[batches : batches + lhs_kept], dimensions[batches + lhs_kept :]
    found: list[Index] = []
    for index, sizes in zip((batch, row, column), groups, strict=True):
        real = [size for size in sizes if size != 1]
        parts = iter((index,) if len(real) == 1 else divided(e, index, tuple(real)))
        found += [Index(0) if size == 1 else next(parts) for size in sizes]
    return tuple(found)


def packed(
    program: ProgramEmitter, i: HloInstruction, dot: HloInstruction, gemm: Gemm
) -> tuple[Value, Value]:
    """The operands' addresses, after packing what needs it into the workspace."""
    a, b = (program.pointer(_outside(i, dot, o)) for o in dot.operands)
    a_bytes, _ = gemm.workspace()
    space = program.workspace(i)
    if gemm.pack_a:
        kernel = program.shared(lambda name: emit_pack_a(program.module, name, gemm))
        program.call(i, kernel, [a, space])
        a = space
    if gemm.pack_b:
        kernel = program.shared(lambda name: emit_pack_b(program.module, name, gemm))
        target = program.function.offset(space, a_bytes)
        program.call(i, kernel, [b, target])
        b = target
    return a, b


def _outside(i: HloInstruction, member: HloInstruction, operand: HloInstruction) -> HloInstruction:
    """An operand of a member of a fusion, seen from outside."""
    if i is member:
        return operand
    return i.operands[parameter_number(operand)]


def _workspace(i: HloInstruction) -> int:
    gemm = product_of(hero(i))
    return sum(gemm.workspace()) if gemm is not None else 0


WORKSPACES["dot"] = _workspace
