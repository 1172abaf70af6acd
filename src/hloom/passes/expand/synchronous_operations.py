"""synchronous-operations: replace asynchronous operations that never block by synchronous ones.

Asynchronous copies become plain copies. An asynchronous computation is called at its start, unless its root
can block on other devices: that one starts there and completes at its done instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.asynchronous import AsyncDone, AsyncStart, AsyncUpdate, CopyDone, CopyStart
from hloom.operations.control_flow import Call
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.expand.call_inliner import inline
from hloom.passes.registry import register
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class SynchronousOperations:
    """``copy-start``, ``copy-done`` → the operand; ``async-start`` of plain computations → ``call``."""

    name: ClassVar[str] = "synchronous-operations"

    def run(self, module: HloModule) -> bool:
        """Rewrite every asynchronous operation that never blocks."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                if isinstance(instruction.operation, CopyStart):
                    _copy(instruction)
                elif isinstance(instruction.operation, CopyDone):
                    writer = Writer(instruction)
                    writer.replace(writer.op(GetTupleElement(index=0), instruction.operands[0]))
                elif (
                    isinstance(instruction.operation, AsyncStart)
                    and not waits(instruction)
                    and _ends_here(instruction)
                ):
                    _call(instruction)
                else:
                    continue
                changed = True
        return changed


def waits(start: HloInstruction) -> bool:
    """Return whether the root of the started computation can block on other devices."""
    return hasattr(start.called_computations[0].root.operation, "begin")


def _copy(instruction: HloInstruction) -> None:
    writer = Writer(instruction)
    (operand,) = instruction.operands
    contexts = [writer.full(0, s) for s in instruction.shape.tuple_shapes[2:]]
    writer.replace(writer.op(Tuple(), operand, operand, *contexts))


def _chain(start: HloInstruction) -> Iterator[HloInstruction]:
    """Yield the users of a start operation, following updates."""
    for user in start.users:
        if isinstance(user.operation, AsyncUpdate):
            yield from _chain(user)
        yield user


def _ends_here(start: HloInstruction) -> bool:
    ends = (AsyncUpdate, AsyncDone, GetTupleElement)
    return not start.is_root and all(
        isinstance(u.operation, AsyncDone) or (isinstance(u.operation, ends) and not u.is_root)
        for u in _chain(start)
    )


def _call(start: HloInstruction) -> None:
    writer = Writer(start)
    result = writer.op(Call(), *start.operands, computations=start.called_computations)
    contexts = [writer.full(0, s) for s in start.shape.tuple_shapes[2:]]
    operands = writer.op(Tuple(), *start.operands)
    whole = writer.op(Tuple(), operands, result, *contexts)
    for user in list(dict.fromkeys(_chain(start))):
        if isinstance(user.operation, AsyncDone):
            Writer(user).replace(result)
        elif isinstance(user.operation, AsyncUpdate):
            Writer(user).replace(user.operands[0])
    writer.replace(whole)
    inline(result)
