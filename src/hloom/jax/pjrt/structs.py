"""Structs of the plug-in's objects, whose addresses PJRT's callers have as handles.

A field named after a struct, such as ``event`` or ``device``, is the address of one. Callers of PJRT 0.105
and later read a table of functions at the beginning of errors and memories.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I8, I32, I64, PTR, Array, Struct

MUTEX: Final = Struct("pthread_mutex_t", words=Array(I64, 6))
CONDITION: Final = Struct("pthread_cond_t", words=Array(I64, 6))

ERROR: Final = Struct("error", functions=PTR, code=I32, message_size=I64, message=Array(I8))
"""An error: its table of functions, a status code, and a text, which a zero byte ends."""

EVENT: Final = Struct(
    "event",
    state=I64,
    references=I64,
    error=PTR,  # of a failed event
    callbacks=PTR,  # of a pending event, as a list
)
"""A moment that is waited for. Null stands for an event that is ready in every field named ``event``."""

READY, PENDING, FAILED = range(3)
"""States of an event."""

CALLBACK: Final = Struct("callback", next=PTR, function=PTR, argument=PTR)
"""A function that is called with a copy of the event's error, and its argument."""

STORAGE: Final = Struct(
    "storage",
    references=I64,
    data=PTR,
    release=PTR,  # called with the storage when the last reference is dropped
    argument=PTR,
    second_argument=PTR,
    unused=Array(I64, 3),  # the data of small arrays follow, aligned to 64 bytes
)
"""Memory of arrays, with a count of references."""

BUFFER: Final = Struct(
    "buffer",
    storage=PTR,
    data=PTR,
    device=PTR,
    memory=PTR,
    event=PTR,  # completes when the data are there
    bytes=I64,
    rank=I64,
    type=I32,
    deleted=I32,
    layout=PTR,  # null: row-major
    donation=I64,  # number of the call that it was donated to
    dimensions=Array(I64),
)
"""An immutable array on a device."""

WORKER: Final = Struct(
    "worker", lock=MUTEX, changed=CONDITION, first=PTR, last=PTR, is_started=I64, unfinished=I64
)
"""A thread that runs queued tasks: the first and the last of them, and the number of unfinished ones."""

TASK: Final = Struct("task", next=PTR, executable=PTR, event=PTR, addresses=Array(PTR))
"""A queued run. The addresses are those of the inputs and outputs, of the storages of both, and of the events
of the inputs."""

CLIENT: Final = Struct(
    "client",
    platform=PTR,
    platform_size=I64,
    version=PTR,
    version_size=I64,
    process=I32,
    devices=PTR,
    num_devices=I64,
    own_devices=PTR,  # those of this process
    num_own_devices=I64,
    memories=PTR,  # of the devices of this process
    num_memories=I64,
    topology=PTR,
)
"""A client of a platform."""

TOPOLOGY: Final = Struct(
    "topology",
    client=PTR,
    text=PTR,
    text_size=I64,
    fingerprint=I64,
    descriptions=PTR,
    num_descriptions=I64,
    memory_kinds=PTR,
    num_memory_kinds=I64,
)
"""The devices without the client."""

DESCRIPTION: Final = Struct(
    "description",
    id=I32,
    process=I32,
    kind=PTR,
    kind_size=I64,
    text=PTR,
    text_size=I64,
    debug_text=PTR,
    debug_text_size=I64,
)
"""The description of a device."""

DEVICE: Final = Struct(
    "device",
    memory=PTR,  # the default one
    memories=PTR,
    num_memories=I64,
    description=PTR,
    local_id=I32,
    is_own=I8,  # of this process
    worker=WORKER,
)
"""A device."""

MEMORY: Final = Struct(
    "memory",
    functions=PTR,  # null
    device=PTR,
    devices=PTR,
    num_devices=I64,
    id=I32,
    kind_number=I32,
    kind=PTR,
    kind_size=I64,
    text=PTR,
    text_size=I64,
)
"""A memory of a device."""

LAYOUT: Final = Struct("layout", text=PTR, text_size=I64, dimensions=PTR, num_dimensions=I64)
"""A layout: its text, and the dimensions, minor to major."""

INPUT: Final = Struct("input", bytes=I64, type=I32, layout=PTR)
"""A parameter of a program; a null layout is row-major."""

OUTPUT: Final = Struct(
    "output",
    bytes=I64,
    type=I32,
    rank=I64,
    dimensions=PTR,
    memory=I64,  # its number on the device
    layout=PTR,  # null: row-major
    donor=I64,  # number of the input whose memory it may take if that is donated; -1: none
)
"""A result of a program."""

EXECUTABLE: Final = Struct(
    "executable",
    is_native=I8,  # whether native code runs it; Python otherwise
    is_long=I8,  # whether a worker runs it
    calls_python=I8,
    is_deleted=I8,
    name=PTR,
    name_size=I64,
    program=PTR,
    context=PTR,
    arena_bytes=I64,
    num_inputs=I64,
    num_outputs=I64,
    inputs=PTR,
    outputs=PTR,
    gang=PTR,  # null: one device
    num_devices=I64,
    devices=PTR,
    num_donated=I64,
    donated=PTR,  # numbers of inputs
    queued=I64,  # number of queued runs
    num_replicas=I64,
    num_partitions=I64,
    destroyed=I64,
    next=PTR,  # in the list of destroyed executables
)
"""A loaded program."""

NO_ARENA, NO_RESULTS = -1, -2
"""Statuses of runs for which memory lacks: for temporaries, for results."""
