"""Structs of the run time that native code and Python share."""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import CONTENDED_BYTES, I32, I64, PTR, Array, Contended, Struct

CONTEXT: Final = Struct(
    "context",
    pool=PTR,  # the thread pool; null: none
    table=PTR,  # `TIMINGS` or `RECORDING` of a timed program; null: nothing is measured
    participants=PTR,  # array of participant records, by host call
    replica=I64,
    partition=I64,
    stop=PTR,  # a nonzero word ends the program at its next poll; null: none
    poll=PTR,  # `hloom_poll`
    fiber=PTR,  # fiber of a device in a gang; null: the device has its own thread
    host=PTR,  # Python function for host calls; null: the thread's function
)
"""Context of a run: pool, device, stop word, host function."""

TIMING: Final = Struct("timing", nanoseconds=I64, runs=I64, waited=I64)
"""Time, number of runs, and time spent waiting for other devices, of an instruction."""
TIMINGS: Final = Struct("timings", nanoseconds=I64, instructions=Array(TIMING))
"""Accumulated times of the program and of its instructions."""

RECORD: Final = Struct("record", instruction=I64, begin=I64, end=I64)
"""Begin and end of one run of an instruction; instruction -1 is the whole program."""
RECORDING: Final = Struct("recording", count=I64, room=I64, records=Array(RECORD))
"""Records in the order of their ends; excess ones overwrite the slot past the last."""

SLOT: Final = Struct("slot", CONTENDED_BYTES, next=I64, end=I64, pool=PTR, index=I64, thread=I64)
"""A thread of the pool, and the remaining units of its slice."""

POOL: Final = Struct(
    "pool",
    generation=Contended(I32),  # odd while a region is open
    active=Contended(I32),  # workers in the region
    sleepers=Contended(I32),
    waiting=Contended(I32),  # 1 while the caller sleeps until `active` is 0
    busy=Contended(I32),  # locked by the caller of a region
    task=PTR,
    arguments=PTR,
    iterations=I64,
    grain=I64,
    chunk=I64,  # size of a chunk, in units of the grain
    threads=I32,  # number of threads, including the caller
    stop=I32,
    started=I32,
    slots=Array(SLOT),
)
"""The thread pool."""

BLOCK: Final = Struct("block", CONTENDED_BYTES // 2, start=PTR, bytes=I64, size_class=I64, next=PTR)
"""Header of a block of recycled memory; its data follows."""

SIZE_CLASSES: Final = 256
"""Four block sizes for each power of two."""
RECYCLED: Final = Struct("recycled", free_bytes=I64, limit=I64, free=Array(PTR, SIZE_CLASSES))
"""Recycled memory: bytes of free blocks, their limit, and a free list for each size class."""

INPUT: Final = Struct(
    "input",
    dtype=PTR,
    rank=I64,
    dimensions=PTR,
    bytes=I64,
    donated=I64,  # 1 if results may be written to its memory
)
OUTPUT: Final = Struct(
    "output",
    dtype=PTR,
    rank=I64,
    dimensions=PTR,
    bytes=I64,
    donor=I64,  # 1 + the number of the argument whose array it is; 0 for a new array
)

DESCRIPTOR: Final = Struct(
    "descriptor",
    program=PTR,
    context=PTR,
    arena=PTR,
    arena_bytes=I64,
    arena_used=I64,
    memory=PTR,  # recycled memory
    handler=PTR,  # numpy's handler of that memory
    fallback=PTR,
    input_count=I64,
    output_count=I64,
    is_tuple=I64,
    long=I64,  # 1 if the program runs without the GIL
    array_type=PTR,
    new_from_descr=PTR,  # PyArray_NewFromDescr
    inputs=PTR,
    outputs=PTR,
)
"""The program that a builtin function runs."""
