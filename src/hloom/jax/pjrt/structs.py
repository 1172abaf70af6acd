"""Structs of the plug-in's objects, whose addresses are the handles of PJRT's callers.

A field named after a struct, such as ``event`` or ``device``, holds the address of one. Callers of PJRT 0.105
and later expect the address of a table of functions in the first word of errors and memories.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I8, I32, I64, PTR, Array, Struct

MUTEX: Final = Struct("pthread_mutex_t", words=Array(I64, 6))
CONDITION: Final = Struct("pthread_cond_t", words=Array(I64, 6))

ERROR: Final = Struct("error", functions=PTR, code=I32, message_size=I64, message=Array(I8))
"""An error: its table of functions, a status code, and a zero-terminated message."""

EVENT: Final = Struct(
    "event",
    state=I64,
    references=I64,
    error=PTR,  # of a failed event
    callbacks=PTR,  # of a pending event: a linked list
)
"""A future without a value. Null in a field named ``event`` stands for a ready event."""

READY, PENDING, FAILED = range(3)
"""States of an event."""

CALLBACK: Final = Struct("callback", next=PTR, function=PTR, argument=PTR)
"""A function that an event calls when it completes, with a copy of its error and with the argument."""

STORAGE: Final = Struct(
    "storage",
    references=I64,
    data=PTR,
    release=PTR,  # called with the storage when the last reference is dropped
    argument=PTR,
    second_argument=PTR,
    unused=Array(I64, 3),  # padding to 64 bytes: the data of a small array follow
)
"""Reference-counted memory of arrays."""

BUFFER: Final = Struct(
    "buffer",
    storage=PTR,
    data=PTR,
    device=PTR,
    memory=PTR,
    event=PTR,  # completes when the data are written
    bytes=I64,
    rank=I64,
    type=I32,
    deleted=I32,
    layout=PTR,  # null: row-major
    donation=I64,  # number of the execution that it was donated to
    dimensions=Array(I64),
)
"""An immutable array on a device."""

WORKER: Final = Struct(
    "worker", lock=MUTEX, changed=CONDITION, first=PTR, last=PTR, is_started=I64, unfinished=I64
)
"""A thread with a queue of tasks: the first and the last one, and the number of unfinished ones."""

TASK: Final = Struct("task", next=PTR, executable=PTR, event=PTR, addresses=Array(PTR))
"""A queued execution. The addresses: data of the inputs, data of the outputs, storages of both, events of the
inputs."""

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
"""The topology: descriptions of all devices, independent of the client."""

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
    memory=I64,  # number of the memory on its device
    layout=PTR,  # null: row-major
    donor=I64,  # number of the input whose storage the result may reuse if donated; -1: none
)
"""A result of a program."""

EXECUTABLE: Final = Struct(
    "executable",
    is_native=I8,  # whether native code runs it without Python
    is_long=I8,  # whether to run it in a worker instead of the caller's thread
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
"""A loaded executable."""

NO_ARENA, NO_RESULTS = -1, -2
"""Statuses of an execution that has not enough memory for its temporaries, or for its results."""
