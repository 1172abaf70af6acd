"""Tickets: numbers that stand in the memory of results of start operations until these are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from hloom.errors import EvaluationError
from hloom.ir.device import Pending

MOST_BYTES: Final = 7
"""Bytes of the longest tickets."""


@dataclass(slots=True)
class _Numbers:
    """The tickets of one length.

    Attributes:
        pending: their values, by number.
        free: numbers to be given again, a heap; with those of ``pending`` all from 1 on.
        redeemed: numbers of ``pending`` whose values have arrived, the last one redeemed last.
    """

    pending: dict[int, Pending] = field(default_factory=dict[int, Pending])
    free: list[int] = field(default_factory=list[int])
    redeemed: dict[int, None] = field(default_factory=dict[int, None])


class Tickets:
    """The tickets of one program on one device; tickets of each length are counted for themselves."""

    def __init__(self) -> None:
        self._of: dict[int, _Numbers] = {}

    def clear(self) -> None:
        """Forget all tickets."""
        self._of.clear()

    def give(self, pending: Pending, size: int) -> bytes:
        """Return a ticket for memory of ``size`` bytes.

        If all numbers are taken it is the one that was redeemed longest ago; raises EvaluationError if no
        value of them has arrived.
        """
        length = min(size, MOST_BYTES)
        of = self._of.setdefault(length, _Numbers())
        limit = 1 << (8 * length)
        if of.free:
            number = heappop(of.free)
        elif len(of.pending) + 1 < limit:
            number = len(of.pending) + 1
        elif of.redeemed:
            number = next(iter(of.redeemed))
            del of.redeemed[number]
        else:
            raise EvaluationError(f"more than {limit - 1} operations are pending", rule="cpu.tickets")
        of.pending[number] = pending
        return number.to_bytes(length, "little")

    def redeem(self, ticket: bytes, *, again: bool) -> Pending:
        """Return the value of a ticket; ``again``: it may be asked for again."""
        number = int.from_bytes(ticket, "little")
        of = self._of.get(len(ticket))
        if of is None or number not in of.pending:
            raise EvaluationError("no operation is pending here", rule="cpu.tickets")
        of.redeemed.pop(number, None)
        if again:
            of.redeemed[number] = None
            return of.pending[number]
        heappush(of.free, number)
        return of.pending.pop(number)
