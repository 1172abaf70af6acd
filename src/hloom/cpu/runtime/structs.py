"""Structs of the run time that native code and Python share."""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import CONTENDED_BYTES, I32, I64, PTR, Array, Contended, Struct

CONTEXT: Final = Struct(
    "context",
    pool=PTR,  # null: none
    table=PTR,  # `TIMINGS` or `RECORDING`, which a timed program fills; null: the program measures nothing
    participants=PTR,  # of the device, one for each host call
    replica=I64,
    partition=I64,
    stop=PTR,  # a word that ends the program at its next poll if it is not 0; null: none
    poll=PTR,  # `hloom_poll`
    fiber=PTR,  # of a device that shares a thread; null: it has a thread
    host=PTR,  # the Python function that answers host calls; null: that of the thread's run
)
"""The run of a program: pool, device, stop word, host function."""

TIMING: Final = Struct("timing", nanoseconds=I64, runs=I64, waited=I64)
"""Of an instruction; it waited in native code for other devices that many nanoseconds."""
TIMINGS: Final = Struct("timings", nanoseconds=I64, instructions=Array(TIMING))
"""Of a run and of its instructions, added up."""

RECORD: Final = Struct("record", instruction=I64, begin=I64, end=I64)
"""Number and times of an instruction that ran once; the number -1 is the whole run."""
RECORDING: Final = Struct("recording", count=I64, room=I64, records=Array(RECORD))
"""Records in the order in which they ended. Those that find no room share the place behind the others."""

SLOT: Final = Struct("slot", CONTENDED_BYTES, next=I64, end=I64, pool=PTR, index=I64, thread=I64)
"""A thread of the pool, and the units of its slice that are left."""

POOL: Final = Struct(
    "pool",
    generation=Contended(I32),  # odd while a region is open
    active=Contended(I32),  # threads in the region beside the caller
    sleepers=Contended(I32),
    waiting=Contended(I32),  # the caller sleeps until active is 0
    busy=Contended(I32),  # a region is open, or about to be opened
    task=PTR,
    arguments=PTR,
    iterations=I64,
    grain=I64,
    chunk=I64,  # in units of the grain
    threads=I32,  # the caller's included
    stop=I32,
    started=I32,
    slots=Array(SLOT),
)
"""A pool of threads."""

BLOCK: Final = Struct("block", CONTENDED_BYTES // 2, bytes=I64, size_class=I64, next=PTR)
"""The header of a block of recycled memory; the memory behind it is handed out."""

SIZE_CLASSES: Final = 256
"""Four block sizes for each power of two."""
RECYCLED: Final = Struct("recycled", free_bytes=I64, limit=I64, free=Array(PTR, SIZE_CLASSES))
"""Recycled memory: bytes of the free blocks, at most, and a list of free blocks for each size."""

INPUT: Final = Struct("input", dtype=PTR, rank=I64, dimensions=PTR)
OUTPUT: Final = Struct("output", dtype=PTR, rank=I64, dimensions=PTR, bytes=I64)

DESCRIPTOR: Final = Struct(
    "descriptor",
    program=PTR,
    context=PTR,
    arena=PTR,
    arena_bytes=I64,
    arena_used=I64,
    memory=PTR,  # recycled
    handler=PTR,  # numpy's, of that memory
    fallback=PTR,
    input_count=I64,
    output_count=I64,
    is_tuple=I64,
    long=I64,  # the program runs without the GIL
    array_type=PTR,
    new_from_descr=PTR,  # PyArray_NewFromDescr
    inputs=PTR,
    outputs=PTR,
)
"""The program of a builtin function."""
