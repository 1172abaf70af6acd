"""library-call-expander: write calls of vendors' libraries in ordinary operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Call
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.passes.expand.call_inliner import inline
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class LibraryCallExpander(OpExpander):
    """``custom-call(x), custom_call_target="__cublas$gemm"`` → ``dot`` and what the call's config adds.

    Behind `BitcastExpander`, since the results have no layouts. Targets that are registered stay.
    """

    name: ClassVar[str] = "library-call-expander"
    mandatory: ClassVar[bool] = True

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is an emulated call."""
        return is_emulated(i)

    def expand(self, i: HloInstruction) -> None:
        """Write the call in ordinary operations."""
        expand(i)


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
