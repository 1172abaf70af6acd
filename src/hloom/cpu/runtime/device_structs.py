"""Structs that native code shares with Python for several devices: rendezvous, exchanges, gangs."""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I32, I64, PTR, Array, Contended, Struct

NO_SOURCE: Final = -1
"""Source of a participant that receives zeros from a permutation."""

PARTICIPANT: Final = Struct(
    "participant",
    rendezvous=PTR,
    position=I64,  # the device's position in the replica group
    count=I64,  # number of participants: devices of the replica group
    signature_id=I64,  # number of the operands' types and sizes
    local=I64,  # number of participants in this process
    exchange=PTR,  # the exchange with other processes; null: none
    source=I64,  # position of the participant that a permutation copies from
    fiber=PTR,  # the device's fiber; null: the device has its own thread
    arrays=Array(PTR),  # operands, then leaves of the result
)
"""A device in one of its collectives."""

RENDEZVOUS: Final = Struct(
    "rendezvous",
    arrived=Contended(I32),
    generation=Contended(I32),  # number of completed meetings
    sleepers=Contended(I32),
    spins=I32,  # number of reads of the generation before a thread sleeps
    participants=Array(PTR),  # participant records by position; null: not arrived
)
"""A rendezvous, shared by the participants of a process."""

MPI: Final = Struct("mpi", isend=PTR, irecv=PTR, test=PTR, byte=I64, communicator=I64)
"""MPI functions, and the handles of ``MPI_BYTE`` and of the communicator."""

SPAN: Final = Struct("span", first=I64, end=I64)

STAND_IN: Final = Struct("stand_in", position=I64, participant=PTR)
"""A participant of another process, with local memory for the received parts of its arrays."""

SEGMENT: Final = Struct("segment", position=I64, array=I64, offset=I64, bytes=I64, stride=I64, rows=I64)
"""Strided rows in an array of a participant; see `hloom.cpu.runtime.exchange_plan.Segment`."""

RECEIVE_PACKED, SEND_PACKED, RECEIVE_IN_PLACE, SEND_IN_PLACE = 0, 1, 2, 3
"""Kinds of messages: packed into a buffer behind the signature id, or one segment in place."""

MESSAGE: Final = Struct(
    "message", kind=I64, rank=I64, tag=I64, memory=PTR, bytes=I64, segments=SPAN, request=I64, complete=I64
)

EXCHANGE: Final = Struct(
    "exchange",
    mpi=PTR,
    rendezvous=PTR,
    round=I64,
    under_way=I64,  # 1 while messages of the round are under way
    steps=Array(SPAN, 2),  # rounds of steps 1 and 2
    rounds=PTR,  # spans of messages
    messages=PTR,
    segments=PTR,
    stand_in_count=I64,
    stand_ins=PTR,
    signature_id=I64,
    eager_polls=I64,  # polls before the thread yields
    error=I64,  # error code returned by an MPI function
)
"""The messages of one process for one collective."""

UCONTEXT: Final = Struct(
    "ucontext", flags=I64, link=PTR, stack=PTR, stack_flags=I32, stack_bytes=I64, registers=Array(I64, 1007)
)
"""``ucontext_t`` of the C library, with room for the registers of any processor."""

RUNS, WAITS, LOOKS, FINISHED, DIFFERS, CALLS = 0, 1, 2, 3, 4, 5
"""States of a fiber: running, waiting, polling for signals, finished, operands differ, calling the host."""

FIBER: Final = Struct(
    "fiber",
    gang=PTR,
    program=PTR,
    context=PTR,  # the program's context
    stack=PTR,
    stack_bytes=I64,
    sources=PTR,  # addresses of inputs
    targets=PTR,  # addresses of results
    arena=PTR,
    state=I64,
    word=PTR,  # the word that the device waits for, until it differs from `value`
    addresses=PTR,  # addresses of operands and results of a host call
    value=I32,
    status=I32,  # status of the program, the poll, or the host call
    call=I64,  # number of the collective or host call
    machine=UCONTEXT,
)
"""A device of a gang, on its own stack."""

FREE, TAKEN, AWAITED = 0, 1, 2
"""States of a gang's lock: free, taken, taken with waiters."""

GANG: Final = Struct(
    "gang",
    lock=I32,
    long_runs=I32,  # consecutive runs with long sections between rendezvous
    devices=I64,
    has_collectives=I64,  # 1 if the program has collectives, so that devices have stacks
    memory=PTR,  # recycled memory
    arena_bytes=I64,  # size of a device's arena
    getcontext=PTR,
    makecontext=PTR,
    swapcontext=PTR,
    resumptions=I64,
    parallel=I64,  # 1 if devices may run in several threads
    host_nanoseconds=I64,  # CPU time of the host calls of a run
    unused=Array(I64, 3),
    machine=UCONTEXT,  # the thread's machine context
    fibers=Array(FIBER),
)
"""The devices of a program, run by one thread in turns."""

DONE, ENDED, DEADLOCK, DIFFERENCE, NO_MEMORY = 0, 1, 2, 3, 4
"""Statuses of a run: done, ended early, deadlock, operands of a collective differ, out of memory."""
