"""library-call-expander: write calls of vendors' libraries in ordinary operations."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Call
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.passes.expand.call_inliner import inline
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer


class LibraryCallExpander(Pass, name="library-call-expander"):
    """``custom-call(x), custom_call_target="__cublas$gemm"`` → ``dot`` and what the call's config adds.

    Behind `BitcastExpander`, since the results have no layouts. Targets that are registered stay.
    """

    def run(self, module: HloModule) -> bool:
        calls = [i for i in module.instructions() if is_emulated(i)]
        for call in calls:
            expand(call)
        return bool(calls)


def is_emulated(instruction: HloInstruction) -> bool:
    """Return whether an instruction is a call that is emulated, and not registered by the user."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or operation.custom_call_target in TARGETS:
        return False
    target = operation.custom_call_target
    if not target.startswith(("__cu", "__onednn", "cu_", "hip_")):
        return False
    from hloom.library_calls.emulation import emulations  # loads the builder

    return target in emulations()


def expand(instruction: HloInstruction) -> None:
    """Replace one call by its program."""
    from hloom.library_calls.emulation import embedded_program

    writer = Writer(instruction)
    computation = embedded_program(instruction, writer.module)
    call = writer.op(Call(), *instruction.operands, shape=computation.root.shape, computations=[computation])
    writer.replace(call)
    inline(call)
    writer.module.remove(computation)
