"""Exchange of arrays between the processes of a rendezvous: the tables that native code reads.

`routines/exchange.py` reads them, and sends and receives by MPI functions.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from hloom.codegen.structs import Record
from hloom.cpu.runtime.device_structs import (
    EXCHANGE,
    MESSAGE,
    MPI,
    PARTICIPANT,
    RECEIVE_IN_PLACE,
    RECEIVE_PACKED,
    SEGMENT,
    SPAN,
    STAND_IN,
)
from hloom.cpu.runtime.exchange_plan import ExchangePlan, Message, Segment
from hloom.cpu.runtime.support import support
from hloom.devices.transport import MessageFunctions

_POLLS: Final = 2000
"""Polls before a thread yields, about 100 us; 0 if devices outnumber cores."""
_COMPLETE: Final = 1


def mpi_record(functions: MessageFunctions) -> Record:
    """Return the C struct `MPI`: addresses of MPI functions, handles of ``MPI_BYTE`` and a communicator."""
    return MPI.allocate(
        isend=functions.isend,
        irecv=functions.irecv,
        test=functions.test or support().symbols["hloom_test_request"],
        byte=functions.byte,
        communicator=functions.communicator,
    )


class Exchange:
    """The MPI messages by which one process takes part in a collective, as tables that native code reads.

    They are for operands of fixed types and sizes.

    Args:
        plan: the messages.
        mpi: MPI functions and handles; see `mpi_record`.
        rendezvous: the address of the struct `RENDEZVOUS` where the collective's devices meet.
        participants: the number of devices in the collective.
        arrays: the number of arrays of each device: its operands and results.
        signature_id: the number that identifies the operands' types and sizes.
        tag: the MPI tag of the messages.
        memory: at least `ExchangePlan.size` bytes for received arrays and buffers, used only while the
            collective runs.
        crowded: whether devices outnumber cores, so that a thread that waits yields its core at once.

    Attributes:
        address: the address of the struct `EXCHANGE`.
    """

    def __init__(
        self,
        plan: ExchangePlan,
        mpi: Record,
        rendezvous: int,
        *,
        participants: int,
        arrays: int,
        signature_id: int,
        tag: int,
        memory: mmap.mmap,
        crowded: bool,
    ) -> None:
        self._memory = (ctypes.c_char * len(memory)).from_buffer(memory)
        start = ctypes.addressof(self._memory)
        self._rounds = [messages for rounds in plan.steps for messages in rounds]
        segments = SEGMENT.table([_segment(s) for message in plan.messages for s in message.segments])
        buffers = [0 if offset is None else start + offset for offset in plan.buffers]
        self._messages = MESSAGE.table([_message(m, tag, at) for m, at in zip(plan.messages, buffers)])
        _set_spans(
            [record.nested("segments") for record in self._messages],
            [len(message.segments) for message in plan.messages],
        )
        rounds = SPAN.table([{"first": 0}] * len(self._rounds))
        _set_spans(rounds, [len(messages) for messages in self._rounds])
        absent = [
            _stand_in(
                plan,
                position,
                arrays,
                start,
                rendezvous=rendezvous,
                count=participants,
                signature_id=signature_id,
            )
            for position in plan.stand_ins
        ]
        stand_ins = STAND_IN.table(
            [
                {"position": position, "participant": record.address}
                for position, record in zip(plan.stand_ins, absent, strict=True)
            ]
        )
        tables = {"rounds": rounds, "messages": self._messages, "segments": segments, "stand_ins": stand_ins}
        self._addressed = (mpi, absent, tables)
        self._record = EXCHANGE.allocate(
            mpi=mpi.address,
            rendezvous=rendezvous,
            stand_in_count=len(stand_ins),
            signature_id=signature_id,
            eager_polls=0 if crowded else _POLLS,
            **{name: records[0].address for name, records in tables.items() if records},
        )
        steps = [self._record.nested("steps", step) for step in range(len(plan.steps))]
        _set_spans(steps, [len(step_rounds) for step_rounds in plan.steps])
        self.address = self._record.address
        self._advance = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(
            support().symbols["hloom_advance"]
        )

    @property
    def error(self) -> int:
        return self._record["error"]

    def is_complete(self, step: int) -> bool:
        """Poll this exchange's messages of step 1 or 2, without blocking; return whether the step has ended.

        It has ended if all messages are complete, or if one has failed.
        """
        return self._advance(self.address, step) >= _COMPLETE

    @property
    def pending_receives(self) -> list[int]:
        """The addresses of the MPI requests of this exchange's receives that are started but not complete."""
        return [
            record.location("request")
            for record in self._messages
            if record["kind"] in (RECEIVE_PACKED, RECEIVE_IN_PLACE)
            and record["request"]
            and not record["complete"]
        ]

    @property
    def awaited(self) -> set[int]:
        """The ranks of the processes with which a message of the exchange's current round is incomplete."""
        number = self._record["round"]
        if number >= len(self._rounds):
            return set()
        first = sum(map(len, self._rounds[:number]))
        records = self._messages[first : first + len(self._rounds[number])]
        pairs = zip(self._rounds[number], records, strict=True)
        return {message.rank for message, record in pairs if not record["complete"]}


def _set_spans(spans: Sequence[Record], counts: Sequence[int]) -> None:
    """Set each span to a range of indices [first, end), as long as its count; the ranges adjoin from 0 on."""
    for span, end, count in zip(spans, accumulate(counts), counts, strict=True):
        span["first"], span["end"] = end - count, end


def _message(message: Message, tag: int, memory: int) -> dict[str, int]:
    kind = RECEIVE_IN_PLACE * message.in_place + message.sends
    return {"kind": kind, "rank": message.rank, "tag": tag, "memory": memory, "bytes": message.bytes}


def _segment(segment: Segment) -> dict[str, int]:
    return {
        "position": segment.position,
        "array": segment.array,
        "offset": segment.offset,
        "bytes": segment.size,
        "stride": segment.stride,
        "rows": segment.rows,
    }


def _stand_in(plan: ExchangePlan, position: int, arrays: int, start: int, **fields: int) -> Record:
    """Return the struct `PARTICIPANT` that represents a device of another process in this process.

    For each array of the device, the struct has the address at which this process receives the array, or null
    if this process does not receive it.

    Args:
        plan: tells where in the exchange's memory the arrays are received.
        position: the position of the device among the collective's participants.
        arrays: how many arrays the device has: operands and results.
        start: the address of the exchange's memory.
        fields: further fields of the struct.
    """
    participant = PARTICIPANT.allocate(arrays, position=position, **fields)
    for array in range(arrays):
        offset = plan.places.get((position, array))
        participant.store("arrays", array, 0 if offset is None else start + offset)
    return participant
