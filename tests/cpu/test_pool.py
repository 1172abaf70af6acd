"""The thread pool: every round runs once, whoever calls it and however many threads there are."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hloom.codegen.target import host
from hloom.cpu.jit.llvm import generate
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.runtime.pool import ThreadPool
from hloom.cpu.runtime.structs import CONTEXT
from hloom.cpu.runtime.support import support

COUNTING = """
declare i32 @hloom_parallel(ptr, ptr, ptr, i64, i64)

; one more in every place of [begin, end)
define void @count(ptr %places, i64 %begin, i64 %end) {
entry:
  br label %round
round:
  %i = phi i64 [ %begin, %entry ], [ %next, %round ]
  %place = getelementptr i32, ptr %places, i64 %i
  %old = load i32, ptr %place
  %new = add i32 %old, 1
  store i32 %new, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %round, label %done
done:
  ret void
}

; a region of 64 rounds in every round: (context, places)
define void @nested(ptr %pair, i64 %begin, i64 %end) {
entry:
  %context = load ptr, ptr %pair
  %places.at = getelementptr ptr, ptr %pair, i64 1
  %places = load ptr, ptr %places.at
  br label %round
round:
  %i = phi i64 [ %begin, %entry ], [ %next, %round ]
  %offset = mul i64 %i, 256
  %mine = getelementptr i8, ptr %places, i64 %offset
  %s = call i32 @hloom_parallel(ptr %context, ptr @count, ptr %mine, i64 64, i64 1)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %round, label %done
done:
  ret void
}

define void @repeat(ptr %context, ptr %task, ptr %arguments, i64 %rounds, i64 %grain, i64 %times) {
entry:
  br label %again
again:
  %k = phi i64 [ 0, %entry ], [ %next, %again ]
  %s = call i32 @hloom_parallel(ptr %context, ptr %task, ptr %arguments, i64 %rounds, i64 %grain)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %again, label %done
done:
  ret void
}
"""
_LOADED = LoadedObject([generate(COUNTING, host())], support().symbols.get)
_POINTERS = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_REPEAT = ctypes.CFUNCTYPE(None, *_POINTERS, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
    _LOADED.symbols["repeat"]
)


def run(
    pool: ThreadPool | None, places: np.ndarray, grain: int = 1, times: int = 1, rounds: int | None = None
) -> None:
    """Increment every element a given number of times."""
    context = CONTEXT.allocate(pool=0 if pool is None else pool.address)
    task = _LOADED.symbols["count"]
    count = len(places) if rounds is None else rounds
    _REPEAT(context.address, task, places.ctypes.data, count, grain, times)


@pytest.fixture(params=[2, 3, 8])
def pool(request: pytest.FixtureRequest) -> Iterator[ThreadPool]:
    made = ThreadPool(request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, 64, 1000, 12345])
@pytest.mark.parametrize("grain", [1, 16, 100])
def test_every_round_runs_once(pool: ThreadPool, rounds: int, grain: int) -> None:
    places = np.zeros(rounds, np.int32)
    run(pool, places, grain, times=50)
    assert (places == 50).all()


def test_without_a_pool_the_caller_does_it_all() -> None:
    places = np.zeros(1000, np.int32)
    run(None, places)
    _REPEAT(None, _LOADED.symbols["count"], places.ctypes.data, 1000, 1, 1)
    assert (places == 2).all()


def test_threads_start_when_they_are_needed() -> None:
    pool = ThreadPool(3)
    run(pool, np.zeros(1, np.int32))
    assert not pool.started
    before = threads()
    run(pool, np.zeros(100, np.int32))
    assert pool.started
    own = threads() - before
    assert len(own) == 2
    pool.stop()
    assert are_gone(own)


def threads() -> set[str]:
    """Return the numbers of this process's threads, those included that are joined and about to go."""
    return set(os.listdir("/proc/self/task"))


def are_gone(joined: set[str]) -> bool:
    """Wait up to a minute for the kernel to remove joined threads: it wakes the joining thread first."""
    deadline = time.monotonic() + 60
    while joined & threads() and time.monotonic() < deadline:
        time.sleep(0.001)
    return not joined & threads()


def test_a_stopped_pool_still_works() -> None:
    pool = ThreadPool(2)
    places = np.zeros(100, np.int32)
    run(pool, places)
    pool.stop()
    run(pool, places)
    assert (places == 2).all()
    assert not pool.started


@pytest.mark.parametrize("threads", [2, 3])
def test_a_pool_stops_while_programs_run(threads: int) -> None:
    for _ in range(20):
        pool = ThreadPool(threads)
        places = np.zeros(5000, np.int32)
        program = threading.Thread(target=lambda p=pool, to=places: run(p, to, 16, times=2000))
        program.start()
        while not places[-1]:
            pass
        pool.stop()
        pool.stop()
        program.join()
        assert (places == 2000).all()
        assert not pool.started


def test_a_region_in_a_region(pool: ThreadPool) -> None:
    places = np.zeros((100, 64), np.int32)
    context = CONTEXT.allocate(pool=pool.address)
    pair = (ctypes.c_void_p * 2)(context.address, places.ctypes.data)
    _REPEAT(context.address, _LOADED.symbols["nested"], pair, 100, 1, 20)
    assert (places == 20).all()


def together(*tasks: Callable[[], None]) -> None:
    """Run functions in Python threads at the same time."""
    running = [threading.Thread(target=task) for task in tasks]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def test_several_callers_at_once(pool: ThreadPool) -> None:
    places = [np.zeros(5000, np.int32) for _ in range(4)]
    together(*[lambda p=p: run(pool, p, 16, times=300) for p in places])
    assert all((p == 300).all() for p in places)


def test_threads_sleep_between_regions(pool: ThreadPool) -> None:
    places = np.zeros(5000, np.int32)
    for _ in range(5):
        run(pool, places, 8, times=3)
        threading.Event().wait(0.005)
    assert (places == 15).all()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX warns, if loaded
def test_a_child_process_starts_threads_of_its_own() -> None:
    pool = ThreadPool(2)
    run(pool, np.zeros(1000, np.int32), times=10)
    child = os.fork()
    if not child:
        status = 1
        try:
            pool.forget()
            places = np.zeros(10000, np.int32)
            run(pool, places, times=20)
            status = 0 if (places == 20).all() and pool.started else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.stop()


def test_the_threads_end_before_what_was_loaded_earlier() -> None:
    code = """
import atexit, os, time
def threads():
    return len(os.listdir("/proc/self/task"))
def becomes(count):  # threads that compile take a moment to end
    return any(threads() == count or time.sleep(0.001) for _ in range(60_000))
atexit.register(lambda: print(becomes(before)))
import numpy as np, hloom
from hloom.cpu.runtime.pool import shared_pool
before = threads()
text = "ENTRY e { x = f32[1000000] parameter(0) ROOT y = f32[1000000] exponential(x) }"
hloom.compile(hloom.HloModule.from_text(text))(np.zeros(1000000, np.float32))
assert shared_pool().started
print(becomes(before + 2))
"""
    environment = {**os.environ, "HLOOM_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "True\nTrue\n", done.stderr


def test_the_process_ends_with_threads_running() -> None:
    code = """
import numpy as np, hloom, os
from hloom.cpu.runtime.pool import shared_pool
exe = hloom.compile(hloom.HloModule.from_text('''HloModule big
ENTRY entry {
  p = f32[512,512] parameter(0)
  ROOT s = f32[512,512] add(p, p)
}'''), backend="cpu")
exe(np.ones((512, 512), np.float32))
pool = shared_pool()
if os.fork() == 0:
    exe(np.ones((512, 512), np.float32))
    raise SystemExit(0)
print(os.wait()[1], pool.started)
"""
    environment = {**os.environ, "HLOOM_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("0 True\n", 0), done.stderr
