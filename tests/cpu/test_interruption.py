"""Signals and failures of other devices end native code, and long loops release the GIL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import emit_program
from hloom.cpu.runtime.interruption import POLL_FUNCTION
from hloom.devices.threads import Stopped
from hloom.runtime.custom_call import unregister_custom_call
from tests.aarch64.environment import is_native
from tests.evaluation import parse
from tests.interruption import SOON, Alarm, computed, interrupted
from tests.reducers import MAXIMUM

ENDLESS_SCALAR = """
always { s = (s32[], f32[64]) parameter(0)
         ROOT t = pred[] constant(true) }
step { s = (s32[], f32[64]) parameter(0)
       i = s32[] get-tuple-element(s), index=0
       x = f32[64] get-tuple-element(s), index=1
       one = s32[] constant(1)
       n = s32[] add(i, one)
       ROOT r = (s32[], f32[64]) tuple(n, x) }
ENTRY e { x = f32[64] parameter(0)
          zero = s32[] constant(0)
          start = (s32[], f32[64]) tuple(zero, x)
          end = (s32[], f32[64]) while(start), condition=always, body=step
          x2 = f32[64] get-tuple-element(end), index=1
          n = s32[] get-tuple-element(end), index=0
          f = f32[] convert(n)
          b = f32[64] broadcast(f), dimensions={}
          ROOT y = f32[64] add(b, x2) }
"""
ENDLESS_ARRAY = ENDLESS_SCALAR.replace("tuple(n, x)", "tuple(n, y)").replace(
    "       ROOT r =", "       y = f32[64] tanh(x)\n       ROOT r ="
)
ENDLESS_PRODUCTS = ENDLESS_ARRAY.replace("f32[64]", "f32[256,256]").replace(
    "tanh(x)", "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
)
ENDLESS_CALLS = ENDLESS_ARRAY.replace("tanh(x)", 'custom-call(x), custom_call_target="interruption-test"')
ENDLESS_COLLECTIVES = MAXIMUM + ENDLESS_ARRAY.replace("tanh(x)", "all-reduce(x), to_apply=maximum")
NESTED = """
below { s = (s32[], s32[], f32[]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        k = s32[] get-tuple-element(s), index=1
        ROOT r = pred[] compare(i, k), direction=LT }
inner { s = (s32[], s32[], f32[]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        k = s32[] get-tuple-element(s), index=1
        v = f32[] get-tuple-element(s), index=2
        one = s32[] constant(1)
        j = s32[] add(i, one)
        w = f32[] sine(v)
        ROOT r = (s32[], s32[], f32[]) tuple(j, k, w) }
outer { s = (s32[], s32[], f32[]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        k = s32[] get-tuple-element(s), index=1
        v = f32[] get-tuple-element(s), index=2
        one = s32[] constant(1)
        j = s32[] add(i, one)
        zero = s32[] constant(0)
        start = (s32[], s32[], f32[]) tuple(zero, k, v)
        end = (s32[], s32[], f32[]) while(start), condition=below, body=inner
        w = f32[] get-tuple-element(end), index=2
        ROOT r = (s32[], s32[], f32[]) tuple(j, k, w) }
ENTRY e { k = s32[] parameter(0)
          v = f32[] parameter(1)
          zero = s32[] constant(0)
          start = (s32[], s32[], f32[]) tuple(zero, k, v)
          end = (s32[], s32[], f32[]) while(start), condition=below, body=outer
          ROOT w = f32[] get-tuple-element(end), index=2 }
"""
ONE_STEP = "ENTRY e { x = f32[64] parameter(0)\n ROOT y = f32[64] add(x, x) }"

STRAIGHT = """
import signal, threading, time, os, numpy as np, hloom
exe = hloom.compile(hloom.HloModule.from_text('''HloModule m
ENTRY e { x0 = f32[2048,2048] parameter(0)
LINES
 ROOT y = f32[2048,2048] copy(x200) }'''))
rang = []
def ring():
    begin = time.process_time()
    while time.process_time() < begin + 0.5:
        time.sleep(0.01)
    rang.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=ring).start()
    exe(np.zeros((2048, 2048), np.float32))
    print("returned")
except KeyboardInterrupt:
    print(time.process_time() - rang[0])
small = hloom.compile(hloom.HloModule.from_text('''HloModule m
ENTRY e { x = f32[1024,1024] parameter(0)
 ROOT y = f32[1024,1024] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }'''))
assert (small(np.ones((1024, 1024), np.float32)) == 1024).all()
"""


@pytest.mark.parametrize(
    ("text", "shape"),
    [(ENDLESS_SCALAR, 64), (ENDLESS_ARRAY, 64), (ENDLESS_PRODUCTS, (256, 256)), (ENDLESS_CALLS, 64)],
    ids=["scalar", "array", "products", "calls"],
)
@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_ctrl_c_ends_a_loop(text: str, shape: Any, backend: str) -> None:
    """KeyboardInterrupt arrives soon, more than once, and the next run is right."""
    hloom.register_custom_call("interruption-test", lambda x: x)
    exe = hloom.compile(parse(text), backend=backend)
    x = np.ones(shape, np.float32)
    for _ in range(2):
        assert interrupted(exe, x) < SOON
    unregister_custom_call("interruption-test")
    assert (hloom.compile(parse(ONE_STEP), backend=backend)(np.ones(64, np.float32)) == 2).all()


@pytest.mark.parametrize("text", [ENDLESS_SCALAR, ENDLESS_COLLECTIVES], ids=["alone", "collectives"])
@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_ctrl_c_ends_all_devices(text: str, backend: str) -> None:
    """The devices' threads are gone afterwards."""
    exe = hloom.compile(parse(text), backend=backend, num_replicas=3)
    if "all-reduce" not in text and backend == "cpu":
        exe._one_by_one = False
    assert interrupted(exe, np.ones(64, np.float32)) < SOON
    assert not [t for t in threading.enumerate() if t.name.startswith("hloom device")]


def test_python_handlers_of_other_signals_run() -> None:
    """A handler that raises nothing does not end the program; its time is part of the run."""
    exe = hloom.compile(parse(ENDLESS_ARRAY))
    rung: list[float] = []
    before = signal.signal(signal.SIGVTALRM, lambda *_: rung.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.15)
        with pytest.raises(KeyboardInterrupt), Alarm(lambda: bool(rung)) as alarm:
            exe(np.ones(64, np.float32))
        assert rung and rung[0] <= alarm.rang_at
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_another_thread_is_not_interrupted() -> None:
    """Ctrl-C interrupts the main thread; a loop in another one continues to its end."""
    exe = hloom.compile(parse(NESTED))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(exe(np.int32(5000), np.float32(1))))
    begun = computed(0.02)
    thread.start()
    with pytest.raises(KeyboardInterrupt), Alarm(begun):
        time.sleep(30)
    thread.join()
    assert results and abs(float(results[0])) < 1


def test_other_threads_run_beside_a_loop_of_unknown_length() -> None:
    """The loop is scalar and its module needs no arena, but it may take long: it releases the GIL."""
    exe = hloom.compile(parse(NESTED))
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    def ticks_during(iterations: int) -> int:
        begin = time.monotonic()
        exe(np.int32(iterations), np.float32(1))
        end = time.monotonic()
        return sum(begin + 0.02 < t < end for t in list(ticks))

    thread = threading.Thread(target=tick)
    thread.start()
    # A busy machine may keep the other thread waiting during a short loop, not during all the longer ones.
    found = any(ticks_during(6000 << doubled) >= 3 for doubled in range(5))
    done.set()
    thread.join()
    assert found


def test_a_device_that_fails_ends_loops_of_the_others() -> None:
    """One device raises an error while another one computes without end."""
    text = ENDLESS_ARRAY.replace("HloModule", "").replace(
        "ENTRY e {", "fails { x = f32[64] parameter(0)\n"
        ' ROOT y = f32[64] custom-call(x), custom_call_target="interruption-failure" }\n'
        "spins { x = f32[64] parameter(0)\n zero = s32[] constant(0)\n"
        " start = (s32[], f32[64]) tuple(zero, x)\n"
        " end = (s32[], f32[64]) while(start), condition=always, body=step\n"
        " ROOT y = f32[64] get-tuple-element(end), index=1 }\nENTRY e {"
    )  # fmt: skip
    head, _, _ = text.rpartition("ENTRY e {")
    text = (
        head
        + """ENTRY e { x = f32[64] parameter(0)
      id = u32[] replica-id()
      zero = u32[] constant(0)
      first = pred[] compare(id, zero), direction=EQ
      ROOT y = f32[64] conditional(first, x, x), true_computation=fails, false_computation=spins }"""
    )

    def fail(x: Any) -> Any:
        time.sleep(0.2)
        raise ValueError("on purpose")

    hloom.register_custom_call("interruption-failure", fail)
    try:
        exe = hloom.compile(parse(text), num_replicas=2)
        with pytest.raises(hloom.HloError, match="on purpose"):
            exe.run([[np.ones(64, np.float32)]] * 2)
    finally:
        unregister_custom_call("interruption-failure")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_ctrl_c_between_the_ranges_of_a_kernel(threads: str) -> None:
    """A straight line of large kernels ends within a few CPU seconds, with a pool and without."""
    lines = "\n".join(
        f" x{n + 1} = f32[2048,2048] dot(x{n}, x{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for n in range(200)
    )
    environment = {**os.environ, "HLOOM_NUM_THREADS": threads}
    code = STRAIGHT.replace("LINES", lines)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    # all kernels together take more than 10 s, on an emulated processor half an hour
    assert float(done.stdout) < (SOON if is_native() else 20 * SOON)


def test_exit_during_a_loop_in_a_daemon_thread() -> None:
    """The process ends although a thread is in native code without end."""
    code = f"""
import threading, time, numpy as np, hloom
exe = hloom.compile(hloom.HloModule.from_text('''HloModule m\n{ENDLESS_ARRAY}'''))
begin = time.process_time()
threading.Thread(target=lambda: exe(np.ones(64, np.float32)), daemon=True).start()
while time.process_time() < begin + 0.3:
    time.sleep(0.01)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")


def test_short_loops_do_not_poll() -> None:
    """A loop of known trip count and little work ends soon anyway."""
    bounded = ENDLESS_PRODUCTS.replace("256", "16").replace("ROOT t = pred[] constant(true)", """
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(1000)
      ROOT t = pred[] compare(i, n), direction=LT""")  # fmt: skip
    optimized = optimize(parse(bounded))
    program = emit_program(optimized)
    assert program.is_bounded and POLL_FUNCTION not in program.text
    endless = emit_program(optimize(parse(ENDLESS_PRODUCTS)))
    assert not endless.is_bounded and POLL_FUNCTION in endless.text
    assert POLL_FUNCTION not in emit_program(optimized, interruptible=False).text


def test_long_elementwise_loops_are_interrupted() -> None:
    """A loop of known trip count and elementwise: with fewer iterations it would become a kernel."""
    counted = ENDLESS_ARRAY.replace("ROOT t = pred[] constant(true)", """
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(2000000000)
      ROOT t = pred[] compare(i, n), direction=LT""")  # fmt: skip
    assert interrupted(hloom.compile(parse(counted)), np.ones(64, np.float32)) < SOON


# The exception is raised wherever the device's thread runs, now and then in a callback of the garbage
# collector (jax.monitoring has one), which reports it as unraisable.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_devices_that_cannot_be_ended_are_left_behind(backend: str) -> None:
    """The first Ctrl-C waits for a custom call that sleeps, a second one does not."""
    text = """ENTRY e { x = f32[64] parameter(0)
      ROOT y = f32[64] custom-call(x), custom_call_target="interruption-sleep" }"""
    begun, woken = threading.Event(), threading.Event()

    def sleep(x: Any) -> Any:
        while not woken.is_set():
            try:
                begun.set()
                woken.wait(300)
            except Stopped:
                pass  # raised here if the first interrupt arrives before this thread sleeps
        return x

    def ends_devices() -> bool:
        """Tell whether the first interrupt has arrived where the caller waits for its devices."""
        return bool(exe._world.waiting.stop_word.value)

    hloom.register_custom_call("interruption-sleep", sleep)
    exe = hloom.compile(parse(text.replace("ROOT", "s = u64[2] rng-get-and-update-state(), delta=1\n ROOT")),
                        backend=backend, num_replicas=2)  # fmt: skip
    arguments = [[np.ones(64, np.float32)]] * 2
    with pytest.raises(KeyboardInterrupt), Alarm(begun.is_set), Alarm(ends_devices):
        exe.run(arguments)
    with pytest.raises(hloom.EvaluationError) as caught:
        exe.run(arguments)
    assert caught.value.rule == "devices.still-running"
    woken.set()
    deadline = time.monotonic() + 60
    while [t for t in threading.enumerate() if t.name.startswith("hloom device")]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert all((y == 1).all() for y in exe.run(arguments))
    unregister_custom_call("interruption-sleep")
