"""Structs of programs on several devices: participants of rendezvous, exchanges between processes, gangs."""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I32, I64, PTR, Array, Contended, Struct

NO_SOURCE: Final = -1
"""The source of a participant to which a permutation brings nothing."""

PARTICIPANT: Final = Struct(
    "participant",
    rendezvous=PTR,
    position=I64,  # in the group
    count=I64,  # of the group
    form=I64,  # equal if the operands of two participants have the same types and sizes
    local=I64,  # participants of this process
    exchange=PTR,  # with other processes; null: there are none
    source=I64,  # position of the participant whose operand a permutation brings here
    fiber=PTR,  # of the device; null: it has a thread
    arrays=Array(PTR),  # operands, then leaves of the result
)
"""The record of a device for one of its collectives."""

RENDEZVOUS: Final = Struct(
    "rendezvous",
    arrived=Contended(I32),
    generation=Contended(I32),  # times that all have arrived
    sleepers=Contended(I32),
    spins=I32,  # before a thread sleeps
    participants=Array(PTR),  # by position; null: not arrived
)
"""Memory that all participants of a process address."""

MPI: Final = Struct("mpi", isend=PTR, irecv=PTR, test=PTR, byte=I64, communicator=I64)
"""Functions of MPI's form, and the handles of ``MPI_BYTE`` and of the communicator."""

SPAN: Final = Struct("span", first=I64, end=I64)

STAND_IN: Final = Struct("stand_in", position=I64, participant=PTR)
"""A participant in another process, with memory of this one for the parts of its arrays needed here."""

SEGMENT: Final = Struct("segment", position=I64, array=I64, offset=I64, bytes=I64, stride=I64, rows=I64)
"""Rows of equal distance in an array of a participant; see `hloom.cpu.runtime.exchange_plan.Segment`."""

RECEIVE_PACKED, SEND_PACKED, RECEIVE_IN_PLACE, SEND_IN_PLACE = 0, 1, 2, 3
"""Kinds of messages: packed in memory of the message behind the form, or one segment in place."""

MESSAGE: Final = Struct(
    "message", kind=I64, rank=I64, tag=I64, memory=PTR, bytes=I64, segments=SPAN, request=I64, complete=I64
)

EXCHANGE: Final = Struct(
    "exchange",
    mpi=PTR,
    rendezvous=PTR,
    round=I64,
    under_way=I64,  # 1 if messages of the round are
    steps=Array(SPAN, 2),  # rounds of steps 1 and 2
    rounds=PTR,  # spans of messages
    messages=PTR,
    segments=PTR,
    stand_in_count=I64,
    stand_ins=PTR,
    form=I64,
    eager_polls=I64,  # before the thread lets others run
    error=I64,  # of an MPI function
)
"""The messages of one process for one collective."""

UCONTEXT: Final = Struct(
    "ucontext", flags=I64, link=PTR, stack=PTR, stack_flags=I32, stack_bytes=I64, registers=Array(I64, 1007)
)
"""``ucontext_t`` of the C library, with room for that of any processor."""

RUNS, WAITS, LOOKS, FINISHED, DIFFERS, CALLS = 0, 1, 2, 3, 4, 5
"""States of a fiber: it runs, waits for others, looks for signals, is finished, has other operands, calls
the host."""

FIBER: Final = Struct(
    "fiber",
    gang=PTR,
    program=PTR,
    context=PTR,  # of the program
    stack=PTR,
    stack_bytes=I64,
    sources=PTR,  # addresses of inputs
    targets=PTR,  # addresses of results
    arena=PTR,
    state=I64,
    word=PTR,  # that it waits for, until its value is another one
    addresses=PTR,  # of operands and results of a host call
    value=I32,
    status=I32,  # of the program, a look for signals, or a host call
    call=I64,  # number of the call that it waits in, or of the host call
    machine=UCONTEXT,
)
"""A device with a stack of its own."""

FREE, TAKEN, AWAITED = 0, 1, 2
"""States of a gang's lock; other threads wait for one that is awaited."""

GANG: Final = Struct(
    "gang",
    lock=I32,
    long_runs=I32,  # runs in a row with long sections between rendezvous
    devices=I64,
    meets=I64,  # devices wait for each other, and have stacks
    memory=PTR,  # recycled memory
    arena_bytes=I64,  # of a device
    getcontext=PTR,
    makecontext=PTR,
    swapcontext=PTR,
    resumptions=I64,
    parallel=I64,  # devices that compute for long use several threads
    host_nanoseconds=I64,  # that host calls of a run have computed for
    unused=Array(I64, 3),
    machine=UCONTEXT,  # of the thread
    fibers=Array(FIBER),
)
"""The devices of a program that one thread runs in turns."""

DONE, ENDED, DEADLOCK, DIFFERENCE, NO_MEMORY = 0, 1, 2, 3, 4
"""Statuses of a run: a program ended early, all devices wait, operands of a collective differ, no arenas."""
