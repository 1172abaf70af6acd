"""The emitter of dots: as matrix products where they are, else as loops over elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hloom.cpu.elements import Elements, View
from hloom.cpu.gemm import Finish, Gemm, emit_gemm, emit_pack_a, emit_pack_b, gemm_of, rounded
from hloom.cpu.index import Index
from hloom.cpu.llvm_text import Value
from hloom.cpu.program import WORKSPACES, ProgramEmitter, emitter
from hloom.cpu.types import Element
from hloom.ir.instruction import HloInstruction


def plain_finish(gemm: Gemm, dot: HloInstruction) -> Callable[[Sequence[Value]], Finish]:
    """Store the sums as the dot's result."""
    dimensions = (gemm.batches, gemm.m, gemm.n)

    def with_pointers(pointers: Sequence[Value]) -> Finish:
        def finish(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.store(
                View(pointers[0], dot.shape.element_type, dimensions),
                (batch, row, column),
                rounded(value, gemm, dot.shape.element_type),
            )

        return finish

    return with_pointers


@emitter("dot")
def emit_dot(program: ProgramEmitter, dot: HloInstruction) -> None:
    """A dot by itself."""
    gemm = gemm_of(dot)
    if gemm is None or gemm.n == 1 or math.prod((gemm.batches, gemm.m, gemm.n)) < 16:
        program.kernel(dot)
        return
    a, b = packed(program, dot, gemm)
    kernel = program.shared(lambda name: emit_gemm(program.module, name, gemm, 1, plain_finish(gemm, dot)))
    program.call(dot, kernel, [a, b, program.pointer(dot)])


def packed(program: ProgramEmitter, dot: HloInstruction, gemm: Gemm) -> tuple[Value, Value]:
    """The operands' addresses, after packing what needs it into the workspace."""
    a, b = (program.pointer(o) for o in dot.operands)
    a_bytes, _ = gemm.workspace()
    space = program.workspace(dot)
    if gemm.pack_a:
        kernel = program.shared(lambda name: emit_pack_a(program.module, name, gemm))
        program.call(dot, kernel, [a, space])
        a = space
    if gemm.pack_b:
        kernel = program.shared(lambda name: emit_pack_b(program.module, name, gemm))
        target = program.function.offset(space, a_bytes)
        program.call(dot, kernel, [b, target])
        b = target
    return a, b


def workspace_bytes(instruction: HloInstruction) -> int:
    """Bytes of scratch memory that an instruction's kernels need."""
    gemm = gemm_of(instruction)
    return sum(gemm.workspace()) if gemm is not None and gemm.n > 1 else 0


WORKSPACES["dot"] = workspace_bytes
