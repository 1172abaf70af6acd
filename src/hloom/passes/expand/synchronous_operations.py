"""synchronous-operations: replace asynchronous operations by synchronous ones.

Asynchronous copies become plain copies. An asynchronous computation is called at its start. A collective that
can block on other devices is joined from its start and its done instruction if nothing orders other
instructions between them; otherwise it starts there and completes at its done instruction.

Computations with collectives are executed in post-order, in which a start that only its done uses comes
directly before it, so that devices wait for each other in the same order as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.operations.asynchronous import AsyncDone, AsyncStart, AsyncUpdate, CopyDone, CopyStart
from hloom.operations.collectives import AllGatherDone, AllReduceDone
from hloom.operations.control_flow import Call
from hloom.operations.exchanges import CollectivePermuteDone
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.expand.call_inliner import inline
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer

_DONE: Final = (AllGatherDone, AllReduceDone, CollectivePermuteDone)


class SynchronousOperations(Pass, name="synchronous-operations"):
    """``copy-start`` → the operand; ``all-reduce-start`` → ``all-reduce``; ``async-start`` → ``call``."""

    def run(self, module: HloModule) -> bool:
        """Rewrite every asynchronous operation that can be synchronous."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                if isinstance(instruction.operation, CopyStart):
                    _copy(instruction)
                elif isinstance(instruction.operation, CopyDone):
                    writer = Writer(instruction)
                    writer.replace(writer.op(GetTupleElement(index=0), instruction.operands[0]))
                elif isinstance(instruction.operation, _DONE) and _is_adjacent(instruction.operands[0]):
                    _join(instruction)
                elif (
                    isinstance(instruction.operation, AsyncStart)
                    and (not waits(instruction) or _is_adjacent(instruction))
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


def _is_adjacent(start: HloInstruction) -> bool:
    """Return whether a start and its only user, in any order of the instructions, may follow each other."""
    both = (start, *start.users)
    ordered = any(i.has_control_dependencies for i in both)
    return len(both) == 2 and not start.is_root and not ordered


def _join(done: HloInstruction) -> None:
    """Replace a start and its done instruction by one collective."""
    (start,) = done.operands
    cls = REGISTRY[start.opcode.removesuffix("-start")]
    values = {field: getattr(start.operation, field) for field in (a.field for a in cls.attributes)}
    writer = Writer(done)
    writer.replace(
        writer.op(cls(**values), *start.operands, shape=done.shape, computations=start.called_computations)
    )
    writer.computation.remove(start)


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
    started = writer.op(Tuple(), operands, result, *contexts)
    for user in list(dict.fromkeys(_chain(start))):
        if isinstance(user.operation, AsyncDone):
            Writer(user).replace(result)
        elif isinstance(user.operation, AsyncUpdate):
            Writer(user).replace(user.operands[0])
    writer.replace(started)
    inline(result)
