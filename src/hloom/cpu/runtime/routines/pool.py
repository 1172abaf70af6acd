"""The thread pool, for loops with independent iterations.

The caller opens a region by incrementing the generation to an odd number and closes it by incrementing it
again. Workers that are awake, or wake up in time, join the region; the caller waits for these only, so that a
late worker costs nothing. Iterations are divided into a slice per thread, and slices into chunks; a thread
that has finished its slice steals chunks of other slices. Results do not depend on the thread that computes a
chunk. The caller polls after each of its chunks, and drops the remaining ones if the program must end.

Memory order: a worker increments ``active``, then reads the generation again; the caller increments the
generation, then reads ``active``. All four accesses are sequentially consistent: either the worker sees that
the region is closed, or the caller sees the worker and waits. The pairs ``sleepers`` and generation,
``waiting`` and ``active`` exclude lost wake-ups in the same way. The acquire load of the generation publishes
task and slices to the workers; ``busy`` is the lock of the callers. ``next`` is monotonic: its atomic add
alone assigns the chunks.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, is_zero, null, repeat
from hloom.cpu.runtime.routines.processor import futex_wait, futex_wake, pause
from hloom.cpu.runtime.structs import CONTEXT, POOL, SLOT

_WORKER_SPINS, _CALLER_SPINS = 6000, 20_000
"""Polls before a worker, or the caller, sleeps."""
_CHUNKS: Final = 4
"""Chunks of a slice."""
_SERIAL_RANGES: Final = 32
"""Ranges of a loop that runs in the caller only, which polls between them."""
_SIGNAL_SET_BYTES, _SET_MASK = 128, 2
pthread_create: Final = External("pthread_create", I32, PTR, PTR, PTR, PTR)
pthread_join: Final = External("pthread_join", I32, I64, PTR)
pthread_sigmask: Final = External("pthread_sigmask", I32, I32, PTR, PTR)


@routine(I32, context=CONTEXT, last=PTR)
def poll(f: Function, context: Fields, last: Value) -> Value:
    """Emit a routine that calls the poll function of a run context, and returns its status.

    A nonzero status means that the program must end early. Without a poll function the routine returns 0.
    ``last`` points to the time of the last poll for signals.
    """
    function = context["poll"]
    f.return_if(is_null(function), 0)
    return f.call_pointer(I32, function, context.pointer.cast("ptrtoint", I64), last)


# -- in a region


@routine(I32, pool=POOL, index=I64, context=CONTEXT)
def work(f: Function, pool: Fields, index: Value, context: Fields) -> int:
    """Emit a routine in which a thread of the pool runs chunks of a loop's iterations.

    It begins with its own slice of the iterations and goes on with the slices of the other threads. ``index``
    is that of the thread. With a nonnull ``context`` it polls after each chunk whether the program must end
    early; if so, it empties all slices and returns 1, otherwise 0.
    """
    last = LocalVariable(f, I64, 0)
    task, arguments, chunk = pool["task"], pool["arguments"], pool["chunk"]
    iterations, grain, threads = pool["iterations"], pool["grain"], pool["threads"].cast("zext", I64)
    with f.loop(0, threads) as slices:
        slot = pool.nested("slots", (index + slices.index).unsigned_remainder(threads))
        next, end = slot.atomic("next"), slot["end"]
        with repeat(f) as loop:
            loop.leave_if(next.load("monotonic").compare("sge", end))
            first = next.add(chunk, "monotonic")
            loop.leave_if(first.compare("sge", end))
            limit = f.intrinsic("smin", first + chunk, end)
            stop = f.intrinsic("smin", limit * grain, iterations)
            f.call_pointer(VOID, task, arguments, first * grain, stop)
            loop.restart_if(is_null(context.pointer))
            with f.when(poll(f, context, last.pointer).compare("ne", 0)):
                _drop_chunks(f, pool, threads)
                f.return_value(1)
    return 0


def _drop_chunks(f: Function, pool: Fields, threads: Value) -> None:
    with f.loop(0, threads) as loop:
        slot = pool.nested("slots", loop.index)
        slot.atomic("next").store(slot["end"], "monotonic")


@routine(pool=POOL, generation=I32, index=I64)
def join_region(f: Function, pool: Fields, generation: Value, index: Value) -> None:
    """Emit a routine in which a worker thread joins a parallel loop, and runs chunks of its iterations.

    It does nothing if the loop, identified by ``generation``, has ended. The last worker to leave wakes the
    loop's caller if that sleeps. ``index`` is that of the worker.
    """
    active = pool.atomic("active")
    active.add(1, "seq_cst")
    with f.when(pool.atomic("generation").load("seq_cst").compare("eq", generation)):
        work(f, pool, index, null(f))
    is_last = active.subtract(1, "seq_cst").compare("eq", 1)
    with f.when(is_last & pool.atomic("waiting").load("seq_cst").compare("ne", 0)):
        futex_wake(f, pool.address("active"))


@routine(PTR, slot=SLOT)
def worker(f: Function, slot: Fields) -> None:
    """Emit the main function of a worker thread, which joins parallel loops until the pool stops."""
    pool, index = Fields(POOL, slot["pool"]), slot["index"]
    joined, spins = LocalVariable(f, I32, 0), LocalVariable(f, I32, 0)
    with repeat(f):
        generation = pool.atomic("generation").load("acquire")
        f.return_if(pool.atomic("stop").load("monotonic").compare("ne", 0), 0)
        is_open = (generation & 1).compare("ne", 0) & generation.compare("ne", joined.get())
        with choose(f, is_open) as region:
            join_region(f, pool, generation, index)
            joined.set(generation)
            spins.set(0)
            region.otherwise()
            with choose(f, spins.get().compare("ult", _WORKER_SPINS)) as patience:
                pause(f)
                spins.set(spins.get() + 1)
                patience.otherwise()
                pool.atomic("sleepers").add(1, "seq_cst")
                futex_wait(f, pool.address("generation"), generation)
                pool.atomic("sleepers").subtract(1, "seq_cst")
                spins.set(0)


# -- threads


@routine(pool=POOL)
def start(f: Function, pool: Fields) -> None:
    """Emit a routine that starts the worker threads of the pool.

    They block all signals, so that other threads of the process handle them.
    """
    everything, before = (f.allocate(I8, _SIGNAL_SET_BYTES) for _ in range(2))
    fill_bytes(everything, f.constant(I8, -1), _SIGNAL_SET_BYTES)
    pthread_sigmask(f, _SET_MASK, everything, before)
    pool["started"] = 1
    with f.loop(1, pool["threads"].cast("zext", I64)) as loop:
        slot = pool.nested("slots", loop.index)
        slot["pool"], slot["index"] = pool, loop.index
        failed = pthread_create(f, slot.address("thread"), 0, worker.address(f), slot)
        with f.when(failed.compare("ne", 0)):
            slot["thread"] = 0  # other threads steal its slice
    pthread_sigmask(f, _SET_MASK, before, 0)


@routine(exported=True, pool=POOL)
def hloom_pool_stop(f: Function, pool: Fields) -> None:
    """Emit a routine that ends the worker threads of the pool, and waits until they have ended.

    The pool stays locked, so that later loops run in the thread of their caller; other threads may run
    programs meanwhile.
    """
    f.return_if(pool.atomic("stop").exchange(1, "seq_cst").compare("ne", 0))
    with repeat(f) as loop:
        loop.leave_if(pool.atomic("busy").compare_exchange(0, 1, "acquire"))
        pause(f)
    f.return_if(is_zero(pool["started"]))
    pool.atomic("generation").add(2, "seq_cst")
    futex_wake(f, pool.address("generation"))
    with f.loop(1, pool["threads"].cast("zext", I64)) as loop:
        thread = pool.nested("slots", loop.index)["thread"]
        with f.when(thread.compare("ne", 0)):
            pthread_join(f, thread, 0)
    pool["started"] = 0


# -- loops


@routine(I32, context=CONTEXT, task=PTR, arguments=PTR, iterations=I64, grain=I64)
def run_serially(
    f: Function, context: Fields, task: Value, arguments: Value, iterations: Value, grain: Value
) -> None:
    """Emit a routine that calls task(arguments, begin, end) for one part of a loop's iterations at a time.

    All calls are in the calling thread. Between them the routine polls, and returns nonzero if the program
    must end early. Parts begin at multiples of ``grain``.
    """
    last, begin = LocalVariable(f, I64, 0), LocalVariable(f, I64, 0)
    size = (iterations.unsigned_divide(_SERIAL_RANGES).unsigned_divide(grain) + 1) * grain
    with repeat(f):
        end = f.intrinsic("smin", begin.get() + size, iterations)
        f.call_pointer(VOID, task, arguments, begin.get(), end)
        f.return_if(end.compare("sge", iterations), 0)
        f.return_if(poll(f, context, last.pointer).compare("ne", 0), 1)
        begin.set(end)


@routine(pool=POOL, units=I64)
def divide(f: Function, pool: Fields, units: Value) -> None:
    """Emit a routine that divides a loop into one slice per thread of the pool, of nearly equal sizes.

    It also sets the size of the chunks of a slice. ``units`` is the loop's number of grains (iterations that
    stay together); slices and chunks consist of whole grains.
    """
    threads = pool["threads"].cast("zext", I64)
    pool["chunk"] = units.unsigned_divide(threads * _CHUNKS) + 1
    first = LocalVariable(f, I64, 0)
    with f.loop(0, threads) as loop:
        end = (units * (loop.index + 1)).unsigned_divide(threads)
        slot = pool.nested("slots", loop.index)
        slot["next"], slot["end"] = first.get(), end
        first.set(end)


@routine(pool=POOL)
def wait_for_workers(f: Function, pool: Fields) -> None:
    """Emit a routine that waits until all workers have left a parallel loop: it spins, then sleeps."""
    active, spins = pool.atomic("active"), LocalVariable(f, I32, 0)
    with repeat(f) as loop:
        f.return_if(is_zero(active.load("seq_cst")))
        loop.leave_if(spins.get().compare("uge", _CALLER_SPINS))
        pause(f)
        spins.set(spins.get() + 1)
    pool.atomic("waiting").store(1, "seq_cst")
    with repeat(f) as loop:
        workers = active.load("seq_cst")
        loop.leave_if(is_zero(workers))
        futex_wait(f, pool.address("active"), workers)
    pool.atomic("waiting").store(0, "seq_cst")


@routine(I32, exported=True, context=CONTEXT, task=PTR, arguments=PTR, iterations=I64, grain=I64)
def hloom_parallel(
    f: Function, context: Fields, task: Value, arguments: Value, iterations: Value, grain: Value
) -> Value:
    """Emit a routine that calls task(arguments, begin, end) in parallel, for parts of a loop's iterations.

    Parts begin at multiples of ``grain``. The routine returns nonzero if the program must end early. Without
    a thread pool in ``context``, or while the pool is locked, parts run one by one in the calling thread; if
    ``context`` is null, all iterations are one part.
    """
    with f.when(is_null(context.pointer)):
        f.call_pointer(VOID, task, arguments, f.constant(I64, 0), iterations)
        f.return_value(0)
    pool = Fields(POOL, context["pool"])
    units = (iterations + (grain - 1)).unsigned_divide(grain)
    with f.when(is_null(pool.pointer)):
        f.return_value(run_serially(f, context, task, arguments, iterations, grain))
    with f.when(units.compare("slt", 2)):
        f.return_value(run_serially(f, context, task, arguments, iterations, grain))
    with f.when(~pool.atomic("busy").compare_exchange(0, 1, "acquire")):
        f.return_value(run_serially(f, context, task, arguments, iterations, grain))
    with f.when(is_zero(pool["started"])):
        start(f, pool)
    pool["task"], pool["arguments"], pool["iterations"], pool["grain"] = task, arguments, iterations, grain
    divide(f, pool, units)
    pool.atomic("generation").add(1, "seq_cst")
    with f.when(pool.atomic("sleepers").load("seq_cst").compare("ne", 0)):
        futex_wake(f, pool.address("generation"))
    status = work(f, pool, f.constant(I64, 0), context)
    pool.atomic("generation").add(1, "seq_cst")
    wait_for_workers(f, pool)
    pool.atomic("busy").store(0, "release")
    return status
