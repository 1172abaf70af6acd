"""Structs of the plug-in's objects, whose addresses are the handles of PJRT's callers.

A field named after a struct, such as ``event`` or ``device``, holds the address of one. Callers of PJRT 0.105
and later expect the address of a table of functions in the first word of errors and memories.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.structs import I8, I32, I64, PTR, Array, Struct
from hloom.jax.pjrt.abi import structs

MUTEX: Final = Struct("pthread_mutex_t", words=Array(I64, 6))
CONDITION: Final = Struct("pthread_cond_t", words=Array(I64, 6))

ERROR: Final = Struct("error", functions=PTR, code=I32, message_size=I64, message=Array(I8))
"""An error: its table of functions, a status code, and a zero-terminated message."""

EVENT: Final = Struct(
    "event",
    state=I64,
    references=I64,
    error=PTR,  # the error of a failed event
    callbacks=PTR,  # linked list of the callbacks of a pending event
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
    uses=I64,  # executions that would have read a packed form
    packed=I64,  # address of the packed form, or 0
    unused=I64,  # padding to 64 bytes: the data of a small array follow
)
"""Reference-counted memory of arrays."""

PACKED_FORM: Final = Struct("packed_form", bytes=I64, form=I64, unused=Array(I64, 6))
"""The packed form of an array: its size, and the digest of the order of the elements, which follow."""

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
    donation=I64,  # number of the execution to which the buffer was donated
    dimensions=Array(I64),
)
"""An immutable array on a device."""

WORKER: Final = Struct(
    "worker",
    lock=MUTEX,
    changed=CONDITION,
    first=PTR,
    last=PTR,
    is_started=I64,
    is_blocked=I64,  # it waits for an input of the first task
    unfinished=I64,
    bytes=I64,  # of the results of the unfinished tasks
)
"""A thread with a queue of tasks: the first and the last one, and the number of unfinished ones."""

TASK: Final = Struct("task", next=PTR, executable=PTR, event=PTR, bytes=I64, addresses=Array(PTR))
"""A queued execution, and the bytes of its results. The addresses: data of the inputs, data of the outputs,
storages of both, events of the inputs."""

_OBJECTS: Final = structs(
    """
client platform:t version:t process:i devices:a own_devices:a memories:a topology:p
topology client:p text:t fingerprint:l descriptions:a memory_kinds:a
description id:i process:i kind:t text:t debug_text:t
device memory:p memories:a description:p local_id:i is_own:b worker:worker
memory functions:p device:p devices:a id:i kind_number:i kind:t text:t
layout text:t dimensions:a
input bytes:l type:i layout:p
output bytes:l type:i rank:l dimensions:p memory:l layout:p donor:l
packed argument:l bytes:l form:l
executable is_native:b is_long:b calls_python:b is_deleted:b name:t program:p context:p arena_bytes:l
    inputs:a outputs:a gang:p devices:a donated:a queued:l num_replicas:l num_partitions:l destroyed:l next:p
    packed:a
""",
    worker=WORKER,
)
CLIENT: Final = _OBJECTS["client"]
"""A client of a platform, the devices of all processes and of its own, and the memories of the latter."""
TOPOLOGY: Final = _OBJECTS["topology"]
"""The topology: descriptions of all devices, independent of the client."""
DESCRIPTION: Final = _OBJECTS["description"]
"""The description of a device."""
DEVICE: Final = _OBJECTS["device"]
"""A device, its default memory and all its memories; `is_own` tells whether it belongs to this process."""
MEMORY: Final = _OBJECTS["memory"]
"""A memory space of a device; its table of functions is null."""
LAYOUT: Final = _OBJECTS["layout"]
"""A layout: its text, and the dimensions, minor to major."""
INPUT: Final = _OBJECTS["input"]
"""A parameter of a program; a null layout is row-major."""
OUTPUT: Final = _OBJECTS["output"]
"""A result of a program.

`memory` is the number of the memory space on its device; a null layout is row-major; `donor` is the number of
the input whose storage the result may reuse if donated, or -1.
"""
PACKED: Final = _OBJECTS["packed"]
"""A packed argument of a program: number of the input, size, and digest of the form."""
EXECUTABLE: Final = _OBJECTS["executable"]
"""A loaded executable.

It is native if it runs without Python, and long if a worker runs it instead of the caller's thread. The gang
is null on one device; `donated` are numbers of inputs; `queued` counts queued executions; `next` links
destroyed executables.
"""

NO_ARENA, NO_RESULTS = -1, -2
"""Statuses of an execution that has not enough memory for its temporaries, or for its results."""
