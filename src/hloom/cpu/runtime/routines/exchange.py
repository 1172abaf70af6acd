"""Exchange of arrays between the processes of a rendezvous, by MPI functions.

`hloom.cpu.runtime.exchange` fills the tables that this code reads.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, Function, Value
from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import LocalVariable, repeat
from hloom.codegen.structs import Struct
from hloom.cpu.runtime.device_structs import (
    EXCHANGE,
    MESSAGE,
    MPI,
    PARTICIPANT,
    RECEIVE_IN_PLACE,
    RECEIVE_PACKED,
    RENDEZVOUS,
    SEGMENT,
    SEND_PACKED,
    SPAN,
    STAND_IN,
)
from hloom.cpu.runtime.routines.clock import hloom_clock
from hloom.cpu.runtime.routines.host import await_host
from hloom.cpu.runtime.routines.processor import pause

_SIGNATURE_BYTES: Final = 8
"""Header of a packed message: the signature id of the operands."""
_PATIENCE_NANOSECONDS: Final = 20_000_000
"""Time after which the host takes over the waiting."""
_STATUS_WORDS: Final = 8
"""Size of an ``MPI_Status``, at most."""
UNDER_WAY, COMPLETE, FAILED = 0, 1, 2
"""Progress of a step."""

sched_yield: Final = External("sched_yield", I32)


def _element(table: Value, struct: Struct, index: Value) -> Fields:
    return Fields(struct, Function.of(table).offset(table, index * struct.size, I8))


@routine(PTR, rendezvous=RENDEZVOUS, segment=SEGMENT)
def segment_address(f: Function, rendezvous: Fields, segment: Fields) -> Value:
    """Emit a routine that returns the address of the first row of a segment of a participant's array."""
    participant = Fields(PARTICIPANT, rendezvous.load("participants", segment["position"]))
    return f.offset(participant.load("arrays", segment["array"]), segment["offset"])


@routine(exchange=EXCHANGE, message=MESSAGE, packs=I1)
def copy_segments(f: Function, exchange: Fields, message: Fields, packs: Value) -> None:
    """Emit a routine that copies between the array segments of a message and the buffer of the message.

    It copies into the buffer if ``packs`` is true, otherwise into the arrays.
    """
    packed = LocalVariable(f, PTR, f.offset(message["memory"], _SIGNATURE_BYTES))
    span = message.nested("segments")
    with f.loop(span["first"], span["end"]) as segments:
        segment = _element(exchange["segments"], SEGMENT, segments.index)
        row = LocalVariable(f, PTR, segment_address(f, Fields(RENDEZVOUS, exchange["rendezvous"]), segment))
        bytes = segment["bytes"]
        with f.loop(0, segment["rows"]):
            target, source = packs.select(packed.get(), row.get()), packs.select(row.get(), packed.get())
            copy_bytes(target, source, bytes)
            packed.set(f.offset(packed.get(), bytes))
            row.set(f.offset(row.get(), segment["stride"]))


@routine(I32, exchange=EXCHANGE, message=MESSAGE)
def begin_message(f: Function, exchange: Fields, message: Fields) -> Value:
    """Emit a routine that starts the nonblocking send or receive of a message; it returns MPI's status."""
    mpi = Fields(MPI, exchange["mpi"])
    message["complete"] = 0
    kind = message["kind"]
    with f.when(kind.compare("uge", RECEIVE_IN_PLACE)):
        segment = _element(exchange["segments"], SEGMENT, message.nested("segments")["first"])
        message["memory"] = segment_address(f, Fields(RENDEZVOUS, exchange["rendezvous"]), segment)
    with f.when(kind.compare("eq", SEND_PACKED)):
        f.store(exchange["signature_id"], message["memory"])
        copy_segments(f, exchange, message, 1)
    sends = (kind & 1).compare("ne", 0)
    return f.call_pointer(
        I32,
        sends.select(mpi["isend"], mpi["irecv"]),
        message["memory"],
        message["bytes"].cast("trunc", I32),
        mpi["byte"],
        message["rank"].cast("trunc", I32),
        message["tag"].cast("trunc", I32),
        mpi["communicator"],
        message.address("request"),
    )


@routine(I1, exchange=EXCHANGE, message=MESSAGE)
def unpack_message(f: Function, exchange: Fields, message: Fields) -> int:
    """Emit a routine that unpacks a complete message into arrays, if it was received packed; returns true.

    It returns false, without unpacking, if the sender's operands have other types or sizes than those of this
    process.
    """
    f.return_if(message["kind"].compare("ne", RECEIVE_PACKED), 1)
    signature_id = f.load(I64, message["memory"])
    with f.when(signature_id.compare("eq", exchange["signature_id"])):
        copy_segments(f, exchange, message, 0)
        f.return_value(1)
    stand_in = Fields(STAND_IN, exchange["stand_ins"])
    Fields(PARTICIPANT, stand_in["participant"])["signature_id"] = signature_id
    return 0


@routine(exchange=EXCHANGE, step=I32)
def begin_exchange(f: Function, exchange: Fields, step: Value) -> None:
    """Emit a routine that begins step 1 or 2 of an exchange with other processes.

    It marks the participants of other processes as arrived, and selects the first round of the step.
    """
    exchange["round"] = exchange.nested("steps", step.cast("zext", I64) - 1)["first"]
    exchange["under_way"] = 0
    rendezvous, signature_id = Fields(RENDEZVOUS, exchange["rendezvous"]), exchange["signature_id"]
    with f.loop(0, exchange["stand_in_count"]) as loop:
        stand_in = _element(exchange["stand_ins"], STAND_IN, loop.index)
        Fields(PARTICIPANT, stand_in["participant"])["signature_id"] = signature_id
        slot = rendezvous.atomic("participants", stand_in["position"])
        slot.store(stand_in["participant"], "monotonic")


@routine(I32, exchange=EXCHANGE, first=I64, end=I64)
def begin_round(f: Function, exchange: Fields, first: Value, end: Value) -> int:
    """Emit a routine that starts a round: messages ``first`` to ``end`` - 1; it returns MPI's status."""
    with f.loop(first, end) as loop:
        message = _element(exchange["messages"], MESSAGE, loop.index)
        status = begin_message(f, exchange, message)
        f.return_if(status.compare("ne", 0), status)
    exchange["under_way"] = 1
    return 0


@routine(I32, exported=True, exchange=EXCHANGE, step=I32)
def hloom_advance(f: Function, exchange: Fields, step: Value) -> None:
    """Emit a routine that polls the messages of step 1 or 2 of an exchange between processes.

    It starts the next round of messages when one is complete. It does not block, and returns `UNDER_WAY`,
    `COMPLETE` or `FAILED`. A step is also complete once the operands of another process prove to differ in
    type or size from those of this process, as the remaining messages never arrive.
    """
    flag, status = f.allocate(I32), f.allocate(I64, _STATUS_WORDS)
    mpi, last = Fields(MPI, exchange["mpi"]), exchange.nested("steps", step.cast("zext", I64) - 1)["end"]

    def fail_if_nonzero(code: Value) -> None:
        with f.when(code.compare("ne", 0)):
            exchange["error"] = code.cast("sext", I64)
            f.return_value(FAILED)

    with repeat(f):
        f.return_if(exchange["round"].compare("uge", last), COMPLETE)
        span = _element(exchange["rounds"], SPAN, exchange["round"])
        first, end = span["first"], span["end"]
        with f.when(exchange["under_way"].compare("eq", 0)):
            fail_if_nonzero(begin_round(f, exchange, first, end))
        pending = LocalVariable(f, I64, 0)
        with f.loop(first, end) as loop:
            message = _element(exchange["messages"], MESSAGE, loop.index)
            with f.when(message["complete"].compare("eq", 0)):
                fail_if_nonzero(f.call_pointer(I32, mpi["test"], message.address("request"), flag, status))
                came = f.load(I32, flag).compare("ne", 0)
                pending.set(pending.get() + came.select(f.constant(I64, 0), 1))
                with f.when(came):
                    message["complete"] = 1
                    f.return_if(~unpack_message(f, exchange, message), COMPLETE)
        f.return_if(pending.get().compare("ne", 0), UNDER_WAY)
        exchange["round"] = exchange["round"] + 1
        exchange["under_way"] = 0


@routine(I32, exchange=EXCHANGE, number=I64, step=I32)
def run_exchange(f: Function, exchange: Fields, number: Value, step: Value) -> Value:
    """Emit a routine that sends and receives the messages of step 1 or 2 of an exchange between processes.

    It returns 1 on failure, else 0. If the messages take long, Python takes over the waiting and detects
    deadlocks: it is called with ``number``, the index of the collective's host call, and with -1 - ``step``.
    """
    begin = hloom_clock(f)
    polls = LocalVariable(f, I64, 0)
    with repeat(f) as loop:
        progress = hloom_advance(f, exchange, step)
        f.return_if(progress.compare("eq", COMPLETE), 0)
        loop.leave_if(progress.compare("ne", UNDER_WAY))
        polls.set(polls.get() + 1)
        with f.when(polls.get().compare("ule", exchange["eager_polls"])):
            pause(f)
            loop.restart()
        loop.leave_if((hloom_clock(f) - begin).compare("sgt", _PATIENCE_NANOSECONDS))
        sched_yield(f)
    return await_host(f, number, f.constant(I64, -1) - step.cast("zext", I64))


@routine(I32, exported=True, request=PTR, flag=PTR, status=PTR)
def hloom_test_request(f: Function, request: Value, flag: Value, status: Value) -> Value:
    """Emit a stand-in for ``MPI_Test`` for requests of hloom's own transport; it returns an error, or 0.

    A request is a word: 0 while the message is under way, 1 once it is complete, otherwise an error code.
    """
    state = Atomic(I64, request).load("acquire")
    f.store(state.compare("eq", COMPLETE).cast("zext", I32), flag)
    return state.compare("ugt", COMPLETE).select(state.cast("trunc", I32), 0)
