"""Exchange of arrays with the participants of a rendezvous in other processes: the tables of native code.

The layout is in ``native_code/exchange.ll``, which sends and receives by the functions of the MPI library.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Final

from hloom.cpu.runtime.context import PARTICIPANT_WORDS
from hloom.cpu.runtime.exchange_plan import ExchangePlan, Message
from hloom.cpu.runtime.support import support
from hloom.evaluate.peers import MessageFunctions

_POLLS: Final = 2000
"""Polls before a thread lets others run, if every device of this machine can have a core: some 100 us."""
_ROUND_WORD: Final = 2
_ERROR_WORD: Final = 16
_MESSAGE_WORDS: Final = 9
_COMPLETE: Final = 1


class Exchange:
    """The messages of one process for one collective with operands of one form.

    Args:
        plan: the messages.
        functions: how native code sends them.
        rendezvous: the address of the rendezvous.
        participants: the number of participants.
        arrays: the number of arrays of each of them.
        form: see `Participant`.
        tag: of the messages.
        memory: at least `ExchangePlan.size` bytes, used only while the collective runs.
        crowded: this machine has fewer cores than devices.

    Attributes:
        address: as native code takes it.
    """

    def __init__(
        self,
        plan: ExchangePlan,
        functions: MessageFunctions,
        rendezvous: int,
        *,
        participants: int,
        arrays: int,
        form: int,
        tag: int,
        memory: mmap.mmap,
        crowded: bool,
    ) -> None:
        self._memory = (ctypes.c_char * len(memory)).from_buffer(memory)
        start = ctypes.addressof(self._memory)
        self._kept: list[ctypes.Array[ctypes.c_uint64]] = []
        self._rounds = [messages for rounds in plan.steps for messages in rounds]
        f = functions
        called = self._words([f.isend, f.irecv, f.test, f.byte, f.communicator])
        segments: list[int] = []
        messages: list[int] = []
        for message, buffer in zip(plan.messages, plan.buffers, strict=True):
            place = 0 if buffer is None else start + buffer
            messages += _message_words(message, tag, place, len(segments) // 6)
            for s in message.segments:
                segments += [s.position, s.array, s.offset, s.size, s.stride, s.rows]
        spans: list[int] = []
        ends: list[int] = []
        begun = 0
        for rounds in plan.steps:
            ends.append(len(spans) // 2)
            for each in rounds:
                spans += [begun, begun := begun + len(each)]
            ends.append(len(spans) // 2)
        stand_ins: list[int] = []
        for position in plan.stand_ins:
            places = [plan.places.get((position, array)) for array in range(arrays)]
            head = [rendezvous, position, participants, form, 0, 0, 0, 0]
            assert len(head) == PARTICIPANT_WORDS
            stand_ins += [
                position,
                self._words([*head, *(0 if place is None else start + place for place in places)]),
            ]
        tables = [self._words(spans), self._words(messages), self._words(segments)]
        self._messages = (ctypes.c_uint64 * len(messages)).from_address(tables[1])
        present = [len(plan.stand_ins), self._words(stand_ins)]
        head = [called, rendezvous, 0, 0, *ends, *tables, 0, *present, form, 0 if crowded else _POLLS, 0]
        self.address = self._words(head)
        self._advance = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(
            support().symbols["hloom_advance"]
        )

    def _words(self, values: Sequence[int]) -> int:
        """Return the address of words that live as long as this object."""
        words = (ctypes.c_uint64 * max(1, len(values)))(*values)
        self._kept.append(words)
        return ctypes.addressof(words)

    @property
    def error(self) -> int:
        """The error that a function of MPI returned; 0 if none did."""
        return ctypes.c_int64.from_address(self.address + 8 * _ERROR_WORD).value

    def is_complete(self, step: int) -> bool:
        """Continue a step that native code has begun; return whether it has ended, possibly by an error."""
        return self._advance(self.address, step) >= _COMPLETE

    @property
    def awaited(self) -> set[int]:
        """The processes from or to which a message of the present round is under way."""
        number = ctypes.c_uint64.from_address(self.address + 8 * _ROUND_WORD).value
        if number >= len(self._rounds):
            return set()
        first = sum(map(len, self._rounds[:number]))
        complete = self._messages[_MESSAGE_WORDS - 1 :: _MESSAGE_WORDS]
        return {m.rank for n, m in enumerate(self._rounds[number], first) if not complete[n]}


def _message_words(message: Message, tag: int, place: int, first: int) -> list[int]:
    kind = 2 * message.in_place + message.sends
    return [kind, message.rank, tag, place, message.bytes, first, first + len(message.segments), 0, 0]
