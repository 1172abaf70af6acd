"""Results that may be written to the memory of donated arguments.

The program stays the same: the caller passes one address for both. That is right if the argument is read for
the last time before the result is written, or by the operation that writes it, index by index.
"""

from __future__ import annotations

from hloom.buffers.assignment import Assignment
from hloom.buffers.buffers import Buffer, BufferCopy


def may_take(assignment: Assignment, result: int, argument: int) -> bool:
    """Return whether a result may be written to the memory of a donated argument; both are leaf numbers."""
    copy, source = assignment.results[result], assignment.arguments[argument]
    if not source.size or source.size != copy.target.size:
        return False
    if copy.source.find() is source:
        return True  # the result is the argument
    if any(other.source.memory is source for other in assignment.results):
        return False  # it is read when results are copied
    target = copy.target.find()
    first = target.spans[0][0] if target.spans else 1 << 60
    reads = assignment.argument_reads.get(source, ())
    last = max((time + (over is not None and over.find() is not target) for time, over in reads), default=-1)
    joins = (*assignment.entering.values(), *assignment.returning.values())
    return last < first and not any(_clash(copies, source, target) for copies in joins)


def _clash(copies: list[BufferCopy], source: Buffer, target: Buffer) -> bool:
    """Return whether parallel copies both read ``source`` and write ``target``.

    A copy from ``source`` to ``target`` itself does not count.
    """
    written = any(c.target.find() is target and c.source.memory is not source for c in copies)
    read = any(c.source.memory is source and c.target.find() is not target for c in copies)
    return written and read
