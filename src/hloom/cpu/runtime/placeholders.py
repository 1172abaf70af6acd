"""Placeholder ids, stored in the result of an asynchronous start operation until it completes."""

from __future__ import annotations

from dataclasses import field
from heapq import heappop, heappush
from typing import Final

from hloom.errors import EvaluationError
from hloom.ir.device import Pending
from hloom.records import dataclass

MOST_BYTES: Final = 7
"""Length of the longest ids."""


@dataclass(slots=True)
class _Ids:
    """The placeholder ids of one length in bytes; each stands for the pending result of a start operation.

    Attributes:
        pending: the pending values by id.
        free: the released ids, a heap; the ids in ``pending`` and ``free`` together are 1, 2 and so on,
            without gaps.
        resolved: the ids in ``pending`` that were looked up but not released, as they may be looked up again;
            the latest last.
    """

    pending: dict[int, Pending] = field(default_factory=dict[int, Pending])
    free: list[int] = field(default_factory=list[int])
    resolved: dict[int, None] = field(default_factory=dict[int, None])


class Placeholders:
    """The ids that stand for pending results of start operations, of one program on one device.

    An id is stored in the first bytes of the result's memory, so that small results have short ids; ids of
    different lengths are independent.
    """

    def __init__(self) -> None:
        self._ids: dict[int, _Ids] = {}

    def clear(self) -> None:
        """Release all placeholder ids, and forget the pending values for which they stand."""
        self._ids.clear()

    def issue(self, pending: Pending, size: int) -> bytes:
        """Return a placeholder id for a pending value, to store in the ``size`` bytes of its result's memory.

        If all ids are in use, reuses the one looked up longest ago of those that `resolve` has not released;
        raises EvaluationError if there is none.
        """
        length = min(size, MOST_BYTES)
        ids = self._ids.setdefault(length, _Ids())
        limit = 1 << (8 * length)
        if ids.free:
            number = heappop(ids.free)
        elif len(ids.pending) + 1 < limit:
            number = len(ids.pending) + 1
        elif ids.resolved:
            number = next(iter(ids.resolved))
            del ids.resolved[number]
        else:
            raise EvaluationError(f"more than {limit - 1} operations are pending", rule="cpu.placeholder-ids")
        ids.pending[number] = pending
        return number.to_bytes(length, "little")

    def resolve(self, placeholder: bytes, *, again: bool) -> Pending:
        """Return the pending value for which an id stands; release the id, unless ``again``.

        ``again``: whether the id may be looked up again. Raises EvaluationError for an unknown id.
        """
        number = int.from_bytes(placeholder, "little")
        ids = self._ids.get(len(placeholder))
        if ids is None or number not in ids.pending:
            raise EvaluationError("no operation is pending here", rule="cpu.placeholder-ids")
        ids.resolved.pop(number, None)
        if again:
            ids.resolved[number] = None
            return ids.pending[number]
        heappush(ids.free, number)
        return ids.pending.pop(number)
