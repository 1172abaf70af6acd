"""Execution of native programs; their only host calls are Python callbacks.

Short programs with ready arguments run at once in the caller's thread, others in the worker of the first
device. A program on several devices runs as a gang (`hloom.cpu.runtime.gang`): the tables of addresses,
storages and events list one device after another. Everything else falls back to Python.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element, store_element
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import LocalVariable, Section, choose, is_null, is_zero, section
from hloom.jax.pjrt.routines.buffers import is_deleted, keep_storage
from hloom.jax.pjrt.routines.c_library import allocate, free
from hloom.jax.pjrt.routines.events import drop_event, is_unready, keep_event, pjrt_event, ready_event
from hloom.jax.pjrt.routines.functions import function, pointee
from hloom.jax.pjrt.routines.results import (
    ARGS,
    arguments_of,
    destroy_all_results,
    device_of,
    donate_all,
    is_donated_twice,
    make_all_results,
    result_bytes,
    results_of,
)
from hloom.jax.pjrt.routines.run_time import gang_parts, leave_gang, take_gang
from hloom.jax.pjrt.routines.runs import PYTHON, error_of_run, run
from hloom.jax.pjrt.routines.workers import (
    TaskAddresses,
    all_inputs,
    all_outputs,
    enqueue,
    wait_for_memory,
)
from hloom.jax.pjrt.structs import BUFFER, DEVICE, EVENT, EXECUTABLE, INPUT, NO_RESULTS, TASK

_TRACING: Final = State("tracing", sessions=I64)
"""The number of running profilers; while there are any, Python executes programs and records them."""
_READY, _LATE, _MISMATCH = range(3)
"""States of arguments: ready, of a pending or failed event, or not of the parameter's type or layout."""


@routine(exported=True, sessions=I64)
def pjrt_set_tracing(f: Function, sessions: Value) -> None:
    """Emit a native function that sets the number of running profilers to ``sessions``.

    While it is not 0, Python executes all programs, and records when their instructions begin and end.
    """
    _TRACING(f).atomic("sessions").store(sessions, "monotonic")


@routine(I32, executable=EXECUTABLE, arguments=PTR)
def worst_argument_state(f: Function, executable: Fields, arguments: Value) -> Value:
    """Emit a native function that compares one device's argument buffers with the program's parameters.

    It returns the greatest of these numbers: 0 for a ready buffer, 1 for one whose event is pending or has
    failed, and 2 for one that is deleted or has not the type, size or layout of its parameter. ``arguments``
    is the address of the table of buffers.
    """
    state = LocalVariable(f, I32, _READY)
    with f.loop(0, executable["num_inputs"]) as loop:
        buffer = Fields(BUFFER, load_element(PTR, arguments, loop.index))
        parameter = Fields(INPUT, executable["inputs"]).at(loop.index)
        fits = ~is_deleted(f, buffer)
        for name in ("bytes", "type", "layout"):
            fits = fits & buffer[name].compare("eq", parameter[name])
        f.return_if(~fits, _MISMATCH)
        state.set(state.get() | is_unready(f, buffer["event"]).cast("zext", I32))
    return state.get()


@function("LoadedExecutable_Execute")
def execute(f: Function, args: Fields) -> Value:
    """Emit ``PJRT_LoadedExecutable_Execute``, which executes a program.

    The caller's thread runs a short program whose arguments are ready; the worker thread of the first device
    runs others. Python executes programs that native code alone cannot, and reports wrong arguments.
    """
    executable = pointee(args, "executable")
    with section(f) as native:
        native.leave_if(_is_run_by_python(f, executable, args))
        is_late = _examine_all(f, executable, args, native)
        gang, error, event = executable["gang"], LocalVariable(f, PTR), LocalVariable(f, PTR, ready_event(f))
        with choose(f, is_late) as choice:
            native.leave_if(~is_zero(executable["calls_python"]))  # it may wait for programs in the queue
            with f.when(~is_null(gang)):
                native.leave_if(gang_parts(f, gang))
            event.set(pjrt_event(f, 2))
            error.set(execute_later(f, executable, args, event.get()))
            choice.otherwise()
            with f.when(~is_null(gang)):
                native.leave_if(is_zero(take_gang(f, gang)))
            error.set(execute_now(f, executable, args))
            with f.when(~is_null(gang)):
                leave_gang(f, gang)
        with f.when(is_null(error.get())):
            donate_all(f, executable, args)
            _give_events(f, args, event.get())
        drop_event(f, event.get())
        f.return_value(error.get())
    return f.call_pointer(PTR, PYTHON(f)["execute"], args.pointer)


def _is_run_by_python(f: Function, executable: Fields, args: Fields) -> Value:
    """Emit a test; return whether Python executes the program.

    It does if the program is not native, if a profiler runs, if ``execute_device`` is stated for a program of
    several devices, or if the number of arguments or devices is wrong, which Python reports.
    """
    is_traced = ~is_zero(_TRACING(f).atomic("sessions").load("monotonic"))
    is_elsewhere = ~is_null(executable["gang"]) & ~is_null(args["execute_device"])
    has_other_inputs = args["num_args"].compare("ne", executable["num_inputs"])
    has_other_devices = args["num_devices"].compare("ne", executable["num_devices"])
    return is_zero(executable["is_native"]) | is_traced | is_elsewhere | has_other_inputs | has_other_devices


def _examine_all(f: Function, executable: Fields, args: Fields, native: Section) -> Value:
    """Emit a check of all devices' arguments; return whether a worker thread must execute the program.

    It must if the program is long, or if the event of an argument is pending or failed. If an argument does
    not match its parameter or a donated buffer is passed twice, the emitted code leaves the section
    ``native``; Python then reports the error.
    """
    is_late = LocalVariable(f, I1, ~is_zero(executable["is_long"]))
    with f.when(~is_zero(executable["num_inputs"])), f.loop(0, args["num_devices"]) as loop:
        arguments = arguments_of(f, args, loop.index)
        state = worst_argument_state(f, executable, arguments)
        native.leave_if(state.compare("eq", _MISMATCH))
        is_late.set(is_late.get() | state.compare("eq", _LATE))
        with f.when(~is_zero(executable["num_donated"])):
            native.leave_if(is_donated_twice(f, executable, args, arguments))
    return is_late.get()


def _give_events(f: Function, args: Fields, event: Value) -> None:
    """Emit code that gives the caller ``event`` as the completion event of each device, if it asks for them.

    Each one is a new reference to ``event``.
    """
    events = args["device_complete_events"]
    with f.when(~is_null(events)), f.loop(0, args["num_devices"]) as loop:
        store_element(events, loop.index, keep_event(f, event))


@routine(PTR, executable=EXECUTABLE, args=ARGS)
def execute_now(f: Function, executable: Fields, args: Fields) -> Value:
    """Emit a native function that runs a program in the calling thread; it returns an error, null on success.

    ``args`` are the arguments of ``PJRT_LoadedExecutable_Execute``, in which the results are stored.
    """
    inputs = executable["num_inputs"]
    words = all_inputs(executable) + executable["num_packed"]
    sources = f.allocate_bytes(words * PTR.size, align=PTR.size)
    storages = f.allocate_bytes(inputs * PTR.size, align=PTR.size)
    targets = f.allocate_bytes(all_outputs(executable) * PTR.size, align=PTR.size)
    with f.when(~make_all_results(f, executable, args, targets, 0)):
        f.return_value(error_of_run(f, executable, NO_RESULTS))
    with f.when(~is_zero(inputs)), f.loop(0, executable["num_devices"]) as row:
        arguments = arguments_of(f, args, row.index)
        first = f.offset(sources, row.index * inputs, PTR)
        with f.loop(0, inputs) as loop:
            buffer = Fields(BUFFER, load_element(PTR, arguments, loop.index))
            store_element(first, loop.index, buffer["data"])
            store_element(storages, loop.index, buffer["storage"])
    error = run(f, executable, sources, targets, storages)
    with f.when(~is_null(error)):
        destroy_all_results(f, executable, args, executable["num_devices"])
        donate_all(f, executable, args)  # the program may have overwritten donated arguments
    return error


@routine(PTR, executable=EXECUTABLE, args=ARGS, event=EVENT)
def execute_later(f: Function, executable: Fields, args: Fields, event: Fields) -> Value:
    """Emit a native function that queues an execution for a worker thread; it returns an error or null.

    The error is that memory for the results is short. The queued task takes over one reference to ``event``,
    and completes the event after the run.
    """
    inputs, outputs = all_inputs(executable), all_outputs(executable)
    words = (inputs + outputs) * 2 + inputs + executable["num_packed"]
    worker = Fields(DEVICE, device_of(f, executable, args, 0)).nested("worker")
    bytes = result_bytes(f, executable)
    wait_for_memory(f, worker, bytes)
    task = allocate(f, TASK, words, executable=executable, event=event, bytes=bytes)
    addresses = TaskAddresses.of(f, task, executable)
    with f.when(~make_all_results(f, executable, args, addresses.targets, event)):
        free(f, task)
        drop_event(f, event)
        f.return_value(error_of_run(f, executable, NO_RESULTS))
    with f.loop(0, executable["num_devices"]) as loop:
        _hold_inputs(f, executable, args, addresses, loop.index)
        _hold_outputs(f, executable, args, f.offset(addresses.storages, inputs, PTR), loop.index)
    executable.atomic("queued").add(1, "monotonic")
    enqueue(f, worker, task)
    return f.constant(PTR, 0)


def _hold_inputs(
    f: Function, executable: Fields, args: Fields, addresses: TaskAddresses, device: Value
) -> None:
    """Emit stores of a device's arguments into the tables of a task, a queued execution.

    The tables hold the addresses of the data, the storages (reference-counted memory blocks), and the events
    that complete when the data are written. The task gets a reference to each storage and event.
    """
    first = device * executable["num_inputs"]
    with f.loop(0, executable["num_inputs"]) as loop:
        buffer = Fields(BUFFER, load_element(PTR, arguments_of(f, args, device), loop.index))
        number = first + loop.index
        keep_storage(f, buffer["storage"])
        store_element(addresses.sources, number, buffer["data"])
        store_element(addresses.storages, number, buffer["storage"])
        store_element(addresses.events, number, keep_event(f, buffer["event"]))


def _hold_outputs(f: Function, executable: Fields, args: Fields, storages: Value, device: Value) -> None:
    """Emit stores of the storages (memory blocks) of a device's results into a queued execution's table.

    ``storages`` is the address of the part of the table for the results of all devices. The emitted code adds
    a reference to each storage.
    """
    results, first = results_of(f, args, device), device * executable["num_outputs"]
    with f.loop(0, executable["num_outputs"]) as loop:
        storage = Fields(BUFFER, load_element(PTR, results, loop.index))["storage"]
        keep_storage(f, storage)
        store_element(storages, first + loop.index, storage)
