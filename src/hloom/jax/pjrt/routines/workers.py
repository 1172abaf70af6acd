"""Worker threads: one for each device, with a queue of executions."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element
from hloom.codegen.llvm.routines import routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, is_zero, null, repeat, section
from hloom.jax.pjrt.routines.buffers import drop_storage
from hloom.jax.pjrt.routines.c_library import (
    free,
    locked,
    pthread_cond_broadcast,
    pthread_cond_wait,
    pthread_create,
    pthread_detach,
)
from hloom.jax.pjrt.routines.errors import copy_of_error
from hloom.jax.pjrt.routines.events import drop_event, is_unready, pjrt_await, pjrt_complete
from hloom.jax.pjrt.routines.functions import pointee
from hloom.jax.pjrt.routines.run_time import leave_gang, wait_for_gang
from hloom.jax.pjrt.routines.runs import run
from hloom.jax.pjrt.structs import DEVICE, TASK, WORKER
from hloom.records import dataclass

_MOST_UNFINISHED: Final = 32
"""Limit of unfinished tasks of a worker: each holds memory for its results."""
_MOST_BYTES: Final = 1 << 23
"""Limit of the bytes of results of unfinished tasks, if there are more than one: memory that a finished task
gives back is still in the caches, and results of many tasks are not."""


def all_inputs(executable: Fields) -> Value:
    """Emit the computation of the number of inputs of all devices together; return it."""
    return executable["num_inputs"] * executable["num_devices"]


def all_outputs(executable: Fields) -> Value:
    """Emit the computation of the number of outputs of all devices together; return it."""
    return executable["num_outputs"] * executable["num_devices"]


@dataclass(frozen=True, slots=True)
class TaskAddresses:
    """The addresses of the four tables in a task, a queued execution; each lists one device after the other.

    Attributes:
        sources: addresses of the inputs' data, then a word for each argument that may have a packed copy
            (`packed_form_word`).
        targets: addresses of the outputs' data.
        storages: addresses of the reference-counted memory blocks (`STORAGE`) of inputs, then of outputs.
        events: addresses of the events of the inputs, which complete when the inputs' data are written.
    """

    sources: Value
    targets: Value
    storages: Value
    events: Value

    @staticmethod
    def of(f: Function, task: Fields, executable: Fields) -> TaskAddresses:
        """Emit the computation of the addresses of a task's tables, which follow each other in the task."""
        inputs, outputs = all_inputs(executable), all_outputs(executable)
        sources = task.address("addresses")
        targets = f.offset(sources, inputs + executable["num_packed"], PTR)
        storages = f.offset(targets, outputs, PTR)
        return TaskAddresses(sources, targets, storages, f.offset(storages, inputs + outputs, PTR))


@routine(worker=WORKER, is_blocked=I64)
def report_blocked(f: Function, worker: Fields, is_blocked: Value) -> None:
    """Emit a native function that tells those who wait for a worker whether it waits for an input itself."""
    with locked(f, worker.nested("lock")):
        worker["is_blocked"] = is_blocked
        pthread_cond_broadcast(f, worker.nested("changed"))


@routine(worker=WORKER, task=TASK)
def execute_task(f: Function, worker: Fields, task: Fields) -> None:
    """Emit a native function that executes and frees a task, a queued execution of a worker.

    It waits for the inputs, runs the program, drops the task's references to storages and events, and
    completes the task's event.
    """
    executable, event = pointee(task, "executable"), task["event"]
    inputs, outputs = all_inputs(executable), all_outputs(executable)
    addresses = TaskAddresses.of(f, task, executable)
    error = LocalVariable(f, PTR, 0)
    with section(f) as ready:
        with f.loop(0, inputs) as loop:
            input_event = load_element(PTR, addresses.events, loop.index)
            with f.when(is_unready(f, input_event)):
                report_blocked(f, worker, 1)
                pjrt_await(f, input_event)
                report_blocked(f, worker, 0)
            failure = pjrt_await(f, input_event)
            with f.when(~is_null(failure)):
                error.set(copy_of_error(f, failure))
                ready.leave()
        error.set(_run_in_turn(f, executable, addresses))
    with f.loop(0, inputs + outputs) as loop:
        drop_storage(f, load_element(PTR, addresses.storages, loop.index))
    with f.loop(0, inputs) as loop:
        drop_event(f, load_element(PTR, addresses.events, loop.index))
    executable.atomic("queued").subtract(1, "release")
    pjrt_complete(f, event, error.get())
    drop_event(f, event)
    free(f, task)


def _run_in_turn(f: Function, executable: Fields, addresses: TaskAddresses) -> Value:
    """Emit code that runs a program; return its error, null on success.

    If the program has a gang (one thread runs all devices in turns), the emitted code waits until it has
    locked the gang, and unlocks it after the run.
    """
    gang = executable["gang"]
    with f.when(~is_null(gang)):
        wait_for_gang(f, gang)
    error = run(f, executable, addresses.sources, addresses.targets, addresses.storages)
    with f.when(~is_null(gang)):
        leave_gang(f, gang)
    return error


@routine(PTR, worker=WORKER)
def work(f: Function, worker: Fields) -> None:
    """Emit the main function of a worker thread: an endless loop that executes the tasks in its queue."""
    lock, changed, task = worker.nested("lock"), worker.nested("changed"), LocalVariable(f, PTR)
    with repeat(f):
        with locked(f, lock):
            with repeat(f) as loop:
                task.set(worker["first"])
                loop.leave_if(~is_null(task.get()))
                pthread_cond_wait(f, changed, lock)
            worker["first"] = Fields(TASK, task.get())["next"]
        bytes = Fields(TASK, task.get())["bytes"]
        execute_task(f, worker, task.get())
        with locked(f, lock):
            worker["unfinished"] = worker["unfinished"] - 1
            worker["bytes"] = worker["bytes"] - bytes
            pthread_cond_broadcast(f, changed)


@routine(exported=True, device=DEVICE)
def pjrt_drain(f: Function, device: Fields) -> None:
    """Emit a native function that waits until the worker thread of a device has finished all its tasks."""
    worker = device.nested("worker")
    with locked(f, worker.nested("lock")), repeat(f) as loop:
        loop.leave_if(is_zero(worker["unfinished"]))
        pthread_cond_wait(f, worker.nested("changed"), worker.nested("lock"))


@routine(worker=WORKER, bytes=I64)
def wait_for_memory(f: Function, worker: Fields, bytes: Value) -> None:
    """Emit a native function that waits while the results of unfinished tasks and ``bytes`` are too large.

    It returns if a worker has but one unfinished task, or waits for the inputs of one: the caller may be the
    one that is to provide them.
    """
    lock, changed = worker.nested("lock"), worker.nested("changed")
    with locked(f, lock), repeat(f) as loop:
        loop.leave_if(worker["unfinished"].compare("ule", 1))
        loop.leave_if((worker["bytes"] + bytes).compare("ule", _MOST_BYTES))
        loop.leave_if(~is_zero(worker["is_blocked"]))
        pthread_cond_wait(f, changed, lock)


@routine(worker=WORKER, task=TASK)
def enqueue(f: Function, worker: Fields, task: Fields) -> None:
    """Emit a native function that appends a task to a worker's queue, and starts the worker's thread if none.

    The function waits while the worker has `_MOST_UNFINISHED` unfinished tasks.
    """
    lock, changed = worker.nested("lock"), worker.nested("changed")
    task["next"] = 0
    with locked(f, lock):
        with repeat(f) as loop:
            loop.leave_if(worker["unfinished"].compare("ult", _MOST_UNFINISHED))
            pthread_cond_wait(f, changed, lock)
        with choose(f, is_null(worker["first"])) as choice:
            worker["first"] = task
            choice.otherwise()
            Fields(TASK, worker["last"])["next"] = task
        worker["last"] = task
        worker["unfinished"] = worker["unfinished"] + 1
        worker["bytes"] = worker["bytes"] + task["bytes"]
        with f.when(is_zero(worker["is_started"])):
            worker["is_started"] = 1
            thread = LocalVariable(f, I64)
            pthread_create(f, thread.pointer, null(f), work.address(f), worker)
            pthread_detach(f, thread.get())
        pthread_cond_broadcast(f, changed)
