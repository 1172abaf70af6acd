"""Gangs: one thread runs the devices of a program in turns.

Each device is a fiber with its own stack. A device that waits in a rendezvous switches to the next one at
once, and continues when the generation has changed, so that no device waits for a thread that the system has
not scheduled. Devices without collectives need no stacks: they run one after the other, or as tasks of the
thread pool. Polls for signals and host calls run on the stack of the thread. `hloom.cpu.runtime.gang` is the
Python side.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, repeat
from hloom.cpu.runtime.device_structs import (
    AWAITED,
    CALLS,
    DEADLOCK,
    DIFFERENCE,
    DIFFERS,
    DONE,
    ENDED,
    FIBER,
    FINISHED,
    FREE,
    GANG,
    LOOKS,
    NO_MEMORY,
    RUNS,
    TAKEN,
    UCONTEXT,
    WAITS,
)
from hloom.cpu.runtime.routines.clock import thread_nanoseconds
from hloom.cpu.runtime.routines.fiber import leave_fiber
from hloom.cpu.runtime.routines.host import call_python, restore_thread, save_thread
from hloom.cpu.runtime.routines.interruption import look_for_signals
from hloom.cpu.runtime.routines.memory import hloom_give, hloom_take
from hloom.cpu.runtime.routines.pool import hloom_parallel
from hloom.cpu.runtime.routines.processor import futex_wait, futex_wake
from hloom.cpu.runtime.structs import CONTEXT

_LONG_RUNS: Final = 3
"""Consecutive long runs after which devices get threads."""
_LONG_NANOSECONDS: Final = 100_000
"""Mean CPU time between switches from which a run is long."""


# -- locking


@routine(I1, exported=True, gang=GANG)
def hloom_gang_parts(f: Function, gang: Fields) -> Value:
    """Emit a routine that returns whether a gang's devices should run in threads: if recent runs were long.

    A gang is all devices of a program, which one thread runs in turns.
    """
    return gang["long_runs"].compare("uge", _LONG_RUNS) & gang["parallel"].compare("ne", 0)


@routine(I32, exported=True, gang=GANG)
def hloom_gang_take(f: Function, gang: Fields) -> Value:
    """Emit a routine that locks a gang without waiting; it returns 1 if that succeeded, else 0.

    It returns 0 if the gang is already locked, or if its devices should run in threads of their own. A gang
    is all devices of a program, which one thread runs in turns.
    """
    f.return_if(hloom_gang_parts(f, gang), 0)
    return gang.atomic("lock").compare_exchange(FREE, TAKEN, "acquire").cast("zext", I32)


@routine(exported=True, gang=GANG)
def hloom_gang_wait(f: Function, gang: Fields) -> None:
    """Emit a routine that waits until a gang is unlocked, then locks it.

    A gang is all devices of a program, which one thread runs in turns.
    """
    lock = gang.atomic("lock")
    f.return_if(lock.compare_exchange(FREE, TAKEN, "acquire"))
    with repeat(f) as loop:
        loop.leave_if(lock.exchange(AWAITED, "acquire").compare("eq", FREE))
        futex_wait(f, gang.address("lock"), AWAITED)


@routine(exported=True, gang=GANG)
def hloom_gang_leave(f: Function, gang: Fields) -> None:
    """Emit a routine that unlocks a gang and wakes the threads that wait for it.

    A gang is all devices of a program, which one thread runs in turns.
    """
    with f.when(gang.atomic("lock").exchange(FREE, "release").compare("eq", AWAITED)):
        futex_wake(f, gang.address("lock"))


# -- fibers


@routine(I32, fiber=FIBER)
def run_device(f: Function, fiber: Fields) -> Value:
    """Emit a routine that runs a device's program on the current stack; it returns the status, 0 for success.

    ``fiber`` holds the device's arguments and results.
    """
    return f.call_pointer(
        I32, fiber["program"], fiber["sources"], fiber["targets"], fiber["arena"], fiber["context"]
    )


@routine(low=I32, high=I32)
def fiber_main(f: Function, low: Value, high: Value) -> None:
    """Emit the main function of a fiber, which runs a device's program on the fiber's own stack.

    ``low`` and ``high`` are the halves of the address of the struct `FIBER`, passed by ``makecontext``.
    """
    address = (high.cast("zext", I64) << 32) | low.cast("zext", I64)
    fiber = Fields(FIBER, address.cast("inttoptr", PTR))
    fiber["status"] = run_device(f, fiber)
    leave_fiber(f, fiber, FINISHED)


@routine(gang=GANG, fiber=FIBER)
def begin_fiber(f: Function, gang: Fields, fiber: Fields) -> None:
    """Emit a routine that prepares a fiber's stack, so that the first switch to the fiber starts a program.

    The program is that of the fiber's device.
    """
    machine = Fields(UCONTEXT, fiber.address("machine"))
    f.call_pointer(I32, gang["getcontext"], machine.pointer)
    machine["link"], machine["stack"], machine["stack_bytes"] = 0, fiber["stack"], fiber["stack_bytes"]
    address = fiber.pointer.cast("ptrtoint", I64)
    low, high = address.cast("trunc", I32), address.logical_shift_right(32).cast("trunc", I32)
    two = f.constant(I32, 2)
    f.call_pointer(VOID, gang["makecontext"], machine.pointer, fiber_main.address(f), two, low, high)


# -- running


@routine(gang=GANG, begin=I64, end=I64)
def run_devices(f: Function, gang: Fields, begin: Value, end: Value) -> None:
    """Emit a routine that runs the programs of devices ``begin`` to ``end`` - 1, as a task of the pool."""
    with f.loop(begin, end) as loop:
        fiber = gang.nested("fibers", loop.index)
        fiber["status"] = run_device(f, fiber)


@routine(I32, gang=GANG)
def run_apart(f: Function, gang: Fields) -> Value:
    """Emit a routine that runs the programs of a gang's devices if these have no collectives.

    They run in the threads of the pool if they compute for long, else one after the other. The routine
    returns the run's status: 0 for success.
    """
    count = gang["devices"]
    with f.when(gang["parallel"].compare("eq", 0)):
        with f.loop(0, count) as loop:
            status = run_device(f, gang.nested("fibers", loop.index))
            f.return_if(status.compare("ne", 0), ENDED)
        f.return_value(DONE)
    context = gang.nested("fibers")["context"]
    status = LocalVariable(f, I32, hloom_parallel(f, context, run_devices.address(f), gang, count, 1))
    with f.loop(0, count) as loop:
        status.set(status.get() | gang.nested("fibers", loop.index)["status"])
    return status.get()


@routine(I32, gang=GANG)
def resume_all(f: Function, gang: Fields) -> None:
    """Emit a routine that resumes the devices' fibers in turns until all finish; returns `DONE`.

    It returns another status if the run ends before: `DEADLOCK` if all unfinished fibers wait, `DIFFERENCE`
    if operands of a collective differ in type or size, `ENDED` if a program ends early.
    """
    count = gang["devices"]
    moved, waits_on = LocalVariable(f, I1), LocalVariable(f, I1)
    with repeat(f):
        moved.set(0)
        waits_on.set(0)
        with f.loop(0, count) as loop:
            fiber = gang.nested("fibers", loop.index)
            unfinished = fiber["state"].compare("ne", FINISHED)
            with f.when(unfinished), choose(f, _waits(f, fiber)) as waiting:
                waits_on.set(1)
                waiting.otherwise()
                moved.set(1)
                _resume(f, gang, fiber, waits_on)
        f.return_if(~waits_on.get(), DONE)
        f.return_if(~moved.get(), DEADLOCK)


def _waits(f: Function, fiber: Fields) -> Value:
    """Emit a test whether a fiber must still wait; return its result, an i1.

    It must if it waits for a word in memory to change, and the word still has its old value.
    """
    waits = LocalVariable(f, I1, 0)
    with f.when(fiber["state"].compare("eq", WAITS)):
        waits.set(Atomic(I32, fiber["word"]).load("monotonic").compare("eq", fiber["value"]))
    return waits.get()


def _resume(f: Function, gang: Fields, fiber: Fields, left: LocalVariable) -> None:
    """Emit code that switches to a fiber until it waits for another fiber, or finishes.

    Meanwhile the code answers the fiber's polls for signals and its host calls. It sets ``left`` to true if
    the fiber waits, and returns from the function with a status if the run cannot go on.
    """
    with repeat(f) as loop:
        fiber["state"] = RUNS
        gang["resumptions"] = gang["resumptions"] + 1
        f.call_pointer(I32, gang["swapcontext"], gang.address("machine"), fiber.address("machine"))
        state = fiber["state"]
        f.return_if(state.compare("eq", DIFFERS), DIFFERENCE)
        with f.when(state.compare("eq", LOOKS)):
            fiber["status"] = look_for_signals(f)
            loop.restart()
        with f.when(state.compare("eq", CALLS)):
            fiber["status"] = answer(f, gang, fiber)
            loop.restart()
        with f.when(state.compare("eq", WAITS)):
            left.set(1)
            loop.leave()
        f.return_if(fiber["status"].compare("ne", 0), ENDED)
        loop.leave()


@routine(I32, gang=GANG, fiber=FIBER)
def answer(f: Function, gang: Fields, fiber: Fields) -> Value:
    """Emit a routine that has Python answer the host call for which a fiber is suspended.

    It returns 1 if Python raised an exception, else 0.
    """
    begin = thread_nanoseconds(f)
    function = Fields(CONTEXT, fiber["context"])["host"]
    status = call_python(f, function, fiber["call"], fiber["addresses"].cast("ptrtoint", I64))
    gang["host_nanoseconds"] = gang["host_nanoseconds"] + thread_nanoseconds(f) - begin
    return status


@routine(I32, gang=GANG)
def take_turns(f: Function, gang: Fields) -> Value:
    """Emit a routine that runs the fibers in turns until all have finished; it returns the run's status.

    It also counts consecutive long runs, after which devices get threads of their own: a run is long if its
    CPU time per switch to a fiber, without host calls, exceeds a limit.
    """
    begin = thread_nanoseconds(f)
    gang["resumptions"], gang["host_nanoseconds"] = 0, 0
    status = resume_all(f, gang)
    elapsed = thread_nanoseconds(f) - begin - gang["host_nanoseconds"]
    is_long = elapsed.compare("ugt", gang["resumptions"] * _LONG_NANOSECONDS)
    gang["long_runs"] = is_long.select(gang["long_runs"] + 1, 0)
    return status


@routine(I32, exported=True, gang=GANG, sources=PTR, inputs=I64, targets=PTR, outputs=I64)
def hloom_gang_run(
    f: Function, gang: Fields, sources: Value, inputs: Value, targets: Value, outputs: Value
) -> Value:
    """Emit a routine that runs all devices of a gang, which the caller has locked; returns the run's status.

    ``sources`` and ``targets`` are tables of the addresses of arguments and results, those of the first
    device, then those of the second, and so on; ``inputs`` and ``outputs`` are their numbers for one device.
    """
    count, arena_bytes = gang["devices"], gang["arena_bytes"]
    bytes = arena_bytes * count
    arenas = LocalVariable(f, PTR, 0)
    with f.when(bytes.compare("ne", 0)):
        arenas.set(hloom_take(f, gang["memory"], bytes))
        f.return_if(is_null(arenas.get()), NO_MEMORY)
    has_collectives = gang["has_collectives"].compare("ne", 0)
    with f.loop(0, count) as loop:
        number, fiber = loop.index, gang.nested("fibers", loop.index)
        fiber["sources"] = f.offset(sources, number * inputs, PTR)
        fiber["targets"] = f.offset(targets, number * outputs, PTR)
        fiber["arena"] = f.offset(arenas.get(), number * arena_bytes)
        fiber["state"], fiber["status"] = RUNS, 0
        with f.when(has_collectives):
            begin_fiber(f, gang, fiber)
    status = LocalVariable(f, I32)
    with choose(f, has_collectives) as choice:
        status.set(take_turns(f, gang))
        choice.otherwise()
        status.set(run_apart(f, gang))
    with f.when(~is_null(arenas.get())):
        hloom_give(f, gang["memory"], arenas.get())
    return status.get()


@routine(I32, exported=True, gang=GANG, sources=PTR, inputs=I64, targets=PTR, outputs=I64)
def hloom_gang_execute(
    f: Function, gang: Fields, sources: Value, inputs: Value, targets: Value, outputs: Value
) -> Value:
    """Emit a routine that releases the GIL, runs all devices of a gang, and takes the GIL again.

    Parameters and result are those of `hloom_gang_run`.
    """
    thread = save_thread(f)
    status = hloom_gang_run(f, gang, sources, inputs, targets, outputs)
    restore_thread(f, thread)
    return status
