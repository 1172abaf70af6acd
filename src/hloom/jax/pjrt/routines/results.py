"""Result buffers of an execution, and arguments donated to it."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element, store_element
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import LocalVariable, is_null, is_zero, null
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.routines.buffers import (
    destroy_buffer,
    forget_packed_form,
    keep_storage,
    pjrt_buffer,
    pjrt_delete,
    pjrt_storage,
    release_inline,
    release_pooled,
)
from hloom.jax.pjrt.routines.events import keep_event
from hloom.jax.pjrt.routines.functions import pointee
from hloom.jax.pjrt.structs import BUFFER, DEVICE, EVENT, EXECUTABLE, OUTPUT, STORAGE

ARGS: Final = abi.arguments("LoadedExecutable_Execute")
_DONATIONS: Final = State("donations", calls=I64)
"""The number of executions on a device that had donated arguments."""


def arguments_of(f: Function, args: Fields, device: Value) -> Value:
    """Emit a load of the address of the table of one device's argument buffers; return the address.

    ``device`` is the index of the device.
    """
    return load_element(PTR, args["argument_lists"], device)


@routine(PTR, args=ARGS, device=I64)
def results_of(f: Function, args: Fields, device: Value) -> Value:
    """Emit a native function that returns the address of the table for one device's result buffers.

    It returns null if the caller of the execution passes no tables. ``device`` is the index of the device.
    """
    lists = args["output_lists"]
    f.return_if(is_null(lists), 0)
    return load_element(PTR, lists, device)


# -- donation


@routine(I1, args=ARGS, index=I64)
def is_excepted(f: Function, args: Fields, index: Value) -> Value:
    """Emit a native function that returns whether the caller of an execution forbids to donate an argument.

    It looks for the argument's ``index`` in ``non_donatable_input_indices`` of PJRT's ExecuteOptions; it
    returns false if the address of these options is null.
    """
    f.return_if(is_null(args["options"]), 0)
    options = pointee(args, "options")
    with f.loop(0, options["num_non_donatable_input_indices"]) as loop:
        excepted = load_element(I64, options["non_donatable_input_indices"], loop.index)
        f.return_if(excepted.compare("eq", index), 1)
    return f.constant(I1, 0)


@routine(I1, executable=EXECUTABLE, args=ARGS, arguments=PTR)
def is_donated_twice(f: Function, executable: Fields, args: Fields, arguments: Value) -> Value:
    """Emit a native function that returns whether a donated buffer is also passed for a second argument.

    It stores a number that is unique to this execution in each donated buffer. A buffer is passed twice if it
    has the number already, or if the buffers of more arguments have the number than were donated.
    """
    call = _DONATIONS(f).atomic("calls").add(1, "monotonic") + 1
    donated, bearers = LocalVariable(f, I64, 0), LocalVariable(f, I64, 0)
    with f.loop(0, executable["num_donated"]) as loop:
        index = load_element(I64, executable["donated"], loop.index)
        with f.when(~is_excepted(f, args, index)):
            buffer = Fields(BUFFER, load_element(PTR, arguments, index))
            f.return_if(buffer["donation"].compare("eq", call), 1)
            buffer["donation"] = call
            donated.set(donated.get() + 1)
    with f.loop(0, executable["num_inputs"]) as loop:
        buffer = Fields(BUFFER, load_element(PTR, arguments, loop.index))
        bearers.set(bearers.get() + buffer["donation"].compare("eq", call).cast("zext", I64))
    return bearers.get().compare("ne", donated.get())


@routine(executable=EXECUTABLE, args=ARGS, arguments=PTR)
def donate(f: Function, executable: Fields, args: Fields, arguments: Value) -> None:
    """Emit a native function that deletes the donated buffers among the arguments of one device."""
    with f.loop(0, executable["num_donated"]) as loop:
        index = load_element(I64, executable["donated"], loop.index)
        with f.when(~is_excepted(f, args, index)):
            pjrt_delete(f, load_element(PTR, arguments, index))


@routine(executable=EXECUTABLE, args=ARGS)
def donate_all(f: Function, executable: Fields, args: Fields) -> None:
    """Emit a native function that deletes the donated argument buffers of all devices."""
    f.return_if(is_zero(executable["num_donated"]))
    with f.loop(0, executable["num_devices"]) as loop:
        donate(f, executable, args, arguments_of(f, args, loop.index))


# -- results


@routine(PTR, args=ARGS, arguments=PTR, index=I64)
def donated_storage(f: Function, args: Fields, arguments: Value, index: Value) -> Value:
    """Emit a native function that returns the storage (memory block) of a donated argument, for a result.

    It adds a reference to the storage. It returns null if ``index``, the argument's index, is -1, if the
    execution's options exclude the argument from donation, or if the storage has further references or was
    not allocated by the plug-in.
    """
    f.return_if(index.compare("slt", 0), 0)
    f.return_if(is_excepted(f, args, index), 0)
    storage = pointee(Fields(BUFFER, load_element(PTR, arguments, index)), "storage")
    is_alone = storage.atomic("references").load("acquire").compare("eq", 1)
    release = storage["release"]
    is_inline = release.compare("eq", release_inline.address(f))
    is_pooled = release.compare("eq", release_pooled.address(f))
    f.return_if(~(is_alone & (is_inline | is_pooled)), 0)
    forget_packed_form(f, storage)
    keep_storage(f, storage)
    return storage.pointer


@routine(
    I1, executable=EXECUTABLE, args=ARGS, arguments=PTR, results=PTR, targets=PTR, device=DEVICE, event=EVENT
)
def make_results(
    f: Function,
    executable: Fields,
    args: Fields,
    arguments: Value,
    results: Value,
    targets: Value,
    device: Fields,
    event: Fields,
) -> Value:
    """Emit a native function that creates the result buffers of a device.

    A result takes the memory of a donated argument if it can, else new memory. The function stores the
    buffers in the table ``results``, and the addresses of their data in the table ``targets``; each buffer
    gets a reference to ``event``, which completes when the data are written. It returns false if there is not
    enough memory.
    """
    with f.loop(0, executable["num_outputs"]) as loop:
        output = Fields(OUTPUT, executable["outputs"]).at(loop.index)
        storage = LocalVariable(f, PTR, donated_storage(f, args, arguments, output["donor"]))
        with f.when(is_null(storage.get())):
            storage.set(pjrt_storage(f, output["bytes"]))
            with f.when(is_null(storage.get())):
                destroy_results(f, results, loop.index)
                f.return_value(0)
        buffer = Fields(BUFFER, _buffer_of(f, output, storage.get(), device, event))
        buffer["layout"] = output["layout"]
        store_element(results, loop.index, buffer.pointer)
        store_element(targets, loop.index, Fields(STORAGE, storage.get())["data"])
    return f.constant(I1, 1)


def _buffer_of(f: Function, output: Fields, storage: Value, device: Fields, event: Fields) -> Value:
    memory = load_element(PTR, device["memories"], output["memory"])
    event_of_buffer = keep_event(f, event)
    return pjrt_buffer(
        f,
        storage,
        device,
        memory,
        event_of_buffer,
        output["bytes"],
        output["type"],
        output["rank"],
        output["dimensions"],
    )


@routine(results=PTR, count=I64)
def destroy_results(f: Function, results: Value, count: Value) -> None:
    """Emit a native function that destroys the first ``count`` result buffers in a device's table."""
    with f.loop(0, count) as loop:
        destroy_buffer(f, Fields(BUFFER, load_element(PTR, results, loop.index)))
        store_element(results, loop.index, null(f))


@routine(executable=EXECUTABLE, args=ARGS, devices=I64)
def destroy_all_results(f: Function, executable: Fields, args: Fields, devices: Value) -> None:
    """Emit a native function that destroys the result buffers of the first ``devices`` devices."""
    with f.loop(0, devices) as loop:
        destroy_results(f, results_of(f, args, loop.index), executable["num_outputs"])


def device_of(f: Function, executable: Fields, args: Fields, number: Value | int) -> Value:
    """Emit a load of the address of the device to run a program on; return the address.

    It is ``execute_device`` of ``args``, the arguments of ``PJRT_LoadedExecutable_Execute``, or if that is
    null, the one of the program's devices with the index ``number``.
    """
    device = args["execute_device"]
    return is_null(device).select(load_element(PTR, executable["devices"], number), device)


@routine(I64, executable=EXECUTABLE)
def result_bytes(f: Function, executable: Fields) -> Value:
    """Emit a native function that returns the bytes of the results of all devices together."""
    with f.loop(0, executable["num_outputs"], 1, [f.constant(I64, 0)]) as loop:
        loop.next(loop.values[0] + Fields(OUTPUT, executable["outputs"]).at(loop.index)["bytes"])
    return loop.values[0] * executable["num_devices"]


@routine(I1, executable=EXECUTABLE, args=ARGS, targets=PTR, event=EVENT)
def make_all_results(f: Function, executable: Fields, args: Fields, targets: Value, event: Fields) -> Value:
    """Emit a native function that creates the result buffers of all devices.

    It stores the addresses of their data in the table ``targets``, device after device, and returns false if
    there is not enough memory. ``event``, to which each buffer refers, completes when the data are written.
    """
    arguments = LocalVariable(f, PTR, 0)
    with f.loop(0, executable["num_devices"]) as loop:
        with f.when(~is_zero(executable["num_inputs"])):
            arguments.set(arguments_of(f, args, loop.index))
        results, device = results_of(f, args, loop.index), device_of(f, executable, args, loop.index)
        first = f.offset(targets, loop.index * executable["num_outputs"], PTR)
        is_complete = make_results(f, executable, args, arguments.get(), results, first, device, event)
        with f.when(~is_complete):
            destroy_all_results(f, executable, args, loop.index)
            f.return_value(0)
    return f.constant(I1, 1)
