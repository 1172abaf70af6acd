"""Executions by Python instead of native code: with host calls, dynamic sizes, a profiler, or errors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from hloom.errors import plural
from hloom.jax.calls.callbacks import bind, take_error
from hloom.jax.devices.client import ClientDevice
from hloom.jax.devices.memory_layouts import order_at
from hloom.jax.devices.transfers import buffer_at, dimensions_of, elements_of, logical, new_buffer, wait_for
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback, permanent_address, status_of
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, PjrtError
from hloom.jax.pjrt.handles import object_at, read_array
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import NO_ARENA, NO_RESULTS
from hloom.jax.programs.compiled import Leaf
from hloom.jax.programs.executables import LoadedExecutable, executable_at
from hloom.jax.programs.profiler import ProfilerTrace, current_trace

if TYPE_CHECKING:
    from hloom.cpu.native import NativeExecutable
    from hloom.runtime.measurements import Recording

Array = np.ndarray
_RUN_ERROR: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
_CALLBACK_ERROR: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def install() -> None:
    """Pass native code the addresses of Python functions that execute programs and create their errors."""
    native().call(
        "pjrt_set_execute",
        callback(execute, "LoadedExecutable_Execute"),
        permanent_address(_RUN_ERROR(_run_error)),
        permanent_address(_CALLBACK_ERROR(_callback_error)),
    )


def _run_error(handle: int, status: int) -> int:
    """Return the address of a new PJRT error for the nonzero status of an execution.

    Args:
        handle: the handle of the executable.
        status: `NO_ARENA` or `NO_RESULTS` if memory for temporaries or results was short; otherwise what a
            gang returned, which runs the code of all devices in one thread.
    """
    executable = object_at(handle, LoadedExecutable)
    if status in (NO_ARENA, NO_RESULTS):
        is_arena = status == NO_ARENA
        size = executable.compiled.temp_bytes if is_arena else sum(leaf.bytes for leaf in executable.outputs)
        purpose = "temporaries" if is_arena else "results"
        message = f"not enough memory for {plural(size, 'byte')} of {purpose} of {executable.interface.name}"
        return native().error(RESOURCE_EXHAUSTED, message)
    gang = executable.gang
    assert gang is not None
    return native().error(*status_of(gang.failure(status)))


def _callback_error(handle: int) -> int | None:
    """Return the address of a new PJRT error for the user's callback that failed in this thread.

    Returns None if no callback failed. Native code calls this after an execution that ended early; ``handle``
    is the handle of the executable, whose gang (it runs all devices in one thread), if any, is reset.
    """
    gang = object_at(handle, LoadedExecutable).gang
    if gang is not None:
        gang.reset()
    error = take_error()
    return None if error is None else native().error(*status_of(error))


def execute(args: ctypes.Structure) -> None:
    """Execute a program that native code cannot execute alone: ``PJRT_LoadedExecutable_Execute``.

    ``args`` is the argument struct of this PJRT function, in which the results are stored.
    """
    executable = executable_at(args.executable)
    lists = read_array(args.argument_lists, args.num_devices, ctypes.c_void_p)
    rows = [read_array(row, args.num_args, ctypes.c_void_p) for row in lists]
    devices = executable.devices
    if args.execute_device:
        devices = [object_at(args.execute_device, ClientDevice)]
    if len(devices) != args.num_devices:
        message = (
            f"{executable.interface.name} runs on {plural(len(devices), 'device')}, got {args.num_devices}"
        )
        raise PjrtError(INVALID_ARGUMENT, message)
    donated = _donated(executable, args.options)
    try:
        for partition, row in enumerate(rows):
            _check(executable, row)
            _check_donation(row, donated, partition)
    except PjrtError as error:
        executable.abandon(error)
        raise
    results = _run(executable, rows, devices)
    if executable.outputs:
        for address, row in zip(
            read_array(args.output_lists, len(rows), ctypes.c_void_p), results, strict=True
        ):
            (ctypes.c_void_p * len(row)).from_address(address)[:] = row
    for row in rows:
        for number in donated:
            native().call("pjrt_delete", row[number])
    if args.device_complete_events:
        ready = native().call("pjrt_ready_event")
        events = (ctypes.c_void_p * args.num_devices).from_address(args.device_complete_events)
        events[:] = [ready] * args.num_devices


def _check(executable: LoadedExecutable, row: Sequence[int]) -> None:
    """Check that one device's argument buffers match the program's parameters, and wait until they are ready.

    ``row`` are the handles of the buffers. Raises PjrtError if their number is wrong, or if a buffer is
    deleted, failed to be computed, or has not the type, size and layout of its parameter.
    """
    name = executable.interface.name
    if len(row) != len(executable.inputs):
        raise PjrtError(
            INVALID_ARGUMENT, f"{name} takes {plural(len(executable.inputs), 'argument')}, got {len(row)}"
        )
    for number, (handle, expected) in enumerate(zip(row, executable.inputs, strict=True)):
        buffer = buffer_at(handle)
        if buffer["deleted"]:
            message = f"Buffer has been deleted or donated: argument {number} of {name}."
            raise PjrtError(INVALID_ARGUMENT, message)
        required = expected.element_type, expected.bytes
        if not expected.is_token and (buffer["type"], buffer["bytes"]) != required:
            described = f"{dimensions_of(buffer)} of type {buffer['type']}, {buffer['bytes']} bytes"
            message = f"argument {number} of {name} is {described}; wanted is {expected}"
            raise PjrtError(INVALID_ARGUMENT, message)
        order = order_at(buffer["layout"])
        if order != expected.order:
            message = f"argument {number} of {name} has the layout {order}; wanted is {expected}"
            raise PjrtError(INVALID_ARGUMENT, message)
        wait_for(buffer)


def _run(
    executable: LoadedExecutable, rows: Sequence[Sequence[int]], devices: Sequence[ClientDevice]
) -> list[list[int]]:
    """Run a program on each device; return for each device the handles of its result buffers.

    ``rows`` are, for each device, the handles of its argument buffers.
    """
    from hloom.cpu.native import NativeExecutable

    if not devices:
        return []  # all devices belong to other processes
    program = executable.compiled.program.executable
    arguments = [
        [
            None if leaf.is_token else elements_of(handle)
            for handle, leaf in zip(row, executable.inputs, strict=True)
        ]
        for row in rows
    ]
    if executable.callbacks and not executable.bound:
        executable.bound = bind(program.host_calls, executable.callbacks)
    trace = current_trace()
    if isinstance(program, NativeExecutable):
        results = [_run_alone(program, arguments[0], trace)]
    elif trace is not None:
        recorded: list[tuple[Any, Recording]] = program.record(cast("Any", arguments))
        trace.recordings.extend(recording for _, recording in recorded)
        results = [_flat(result) for result, _ in recorded]
    else:
        structured: list[Any] = program.run(arguments)
        results = [_flat(result) for result in structured]
    return [
        [_result(value, leaf, device) for value, leaf in zip(values, executable.outputs, strict=True)]
        for values, device in zip(results, devices, strict=True)
    ]


def _run_alone(
    program: NativeExecutable, arguments: Sequence[Array | None], trace: ProfilerTrace | None
) -> list[Array | None]:
    from hloom.cpu.runtime.host import HostCalls

    host = HostCalls(program.host_calls) if program.calls_host else None
    if trace is None:
        return list(program.caller.run(arguments, host))
    results, recording = program.inspection.recorded.record(program.caller, arguments, host)
    trace.recordings.append(recording)
    return list(results)


def _flat(value: object) -> list[Any]:
    if isinstance(value, tuple):
        return [leaf for part in cast("tuple[Any, ...]", value) for leaf in _flat(part)]
    return [value]


def _result(value: Array | None, leaf: Leaf, device: ClientDevice) -> int:
    if leaf.is_token or value is None:
        value = np.zeros(0, np.bool_)
    array = logical(np.asarray(value), leaf.order)
    return new_buffer(array, device, device.memories[leaf.memory], leaf.element_type, leaf.order)


def _donated(executable: LoadedExecutable, options: int | None) -> list[int]:
    """Return the indices of the donated arguments, except those that the execution's options exclude.

    ``options`` is the address of PJRT's ExecuteOptions, or null.
    """
    excepted: Sequence[int] = ()
    if options:
        record = abi.arguments("ExecuteOptions").record(options)
        count = record["num_non_donatable_input_indices"]
        excepted = read_array(record["non_donatable_input_indices"], count)
    return [number for number in executable.interface.donated if number not in excepted]


def _check_donation(row: Sequence[int], donated: Sequence[int], partition: int) -> None:
    """Raise PjrtError, with XLA's message, if a donated buffer is also passed for another argument.

    Args:
        row: the handles of the argument buffers of one device.
        donated: the indices of the donated arguments.
        partition: the index of the device, for the message.
    """
    first: dict[int, int] = {}
    for number, handle in enumerate(row if donated else ()):
        before = first.setdefault(handle, number)
        if before == number or (number not in donated and before not in donated):
            continue
        if before not in donated:
            message, example = "donate a buffer which is also used by the same call to", "f(a, donate(a))"
        elif number not in donated:
            message, example = (
                "use a buffer that was previously donated in the same call to",
                "f(donate(a), a)",
            )
        else:
            message, example = "donate the same buffer twice in", "f(donate(a), donate(a))"
        raise PjrtError(
            INVALID_ARGUMENT,
            f"Attempt to {message} Execute() (flattened argument {number}, replica 0, partition {partition}, "
            f"first use: {before}). Toy example for this bug: `{example}`.",
        )
