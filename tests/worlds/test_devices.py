"""Virtual devices: waiting for each other, and the detection of deadlocks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hloom.errors import DeadlockError, HloError
from tests.devices import executable, fails, lists, on_devices, program
from tests.reducers import ADD, binary


def test_a_collective_that_only_one_program_reaches() -> None:
    one = program("p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), to_apply=add", ADD)
    other = program("ROOT p = f32[] parameter(0)")
    error = fails(executable(one, other), [[np.float32(1)]] * 2)
    assert isinstance(error, DeadlockError)
    assert str(error).splitlines()[1:3] == [
        "  device (replica 0, partition 0) waits in all-reduce %r for device (replica 1, partition 0)",
        "  device (replica 1, partition 0) has finished [devices.deadlock]",
    ]


def test_different_collectives_do_not_meet() -> None:
    one = program("p = f32[2] parameter(0)\n ROOT r = f32[2] all-reduce(p), to_apply=add", ADD)
    other = program("p = f32[2] parameter(0)\n ROOT g = f32[4] all-gather(p), dimensions={0}")
    error = fails(executable(one, other), [[np.zeros(2, np.float32)]] * 2)
    assert error.rule == "devices.deadlock"
    assert "waits in all-reduce %r for device (replica 1, partition 0)" in str(error)
    assert "waits in all-gather %g for device (replica 0, partition 0)" in str(error)


def test_channels_that_do_not_match() -> None:
    texts = [
        program(
            f"p = f32[] parameter(0)\n"
            f"ROOT r = f32[] all-reduce(p), channel_id={n}, replica_groups={{{{0,1}}}}, to_apply=add",
            ADD,
        )
        for n in (1, 2)
    ]
    assert fails(executable(*texts), [[np.float32(1)]] * 2).rule == "devices.deadlock"


RECEIVE = """
  t = token[] after-all()
  r = (s32[], u32[], token[]) recv(t), channel_id=4
  ROOT d = (s32[], token[]) recv-done(r), channel_id=4
"""


def test_a_sender_that_is_missing() -> None:
    error = fails(executable(program(RECEIVE)), [[]])
    assert error.rule == "devices.deadlock"
    assert "waits in recv %r for a send on channel 4" in str(error)


def test_a_sender_named_by_pairs_that_is_missing() -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{1,0}}"}'
    receive = RECEIVE.replace("channel_id=4", pairs)
    error = fails(executable(program(receive), program("ROOT c = s32[] constant(0)")), [[], []])
    assert "waits in recv %r for device (replica 1, partition 0)" in str(error)


def test_devices_that_wait_for_each_other_in_a_ring() -> None:
    """Everybody receives before it sends."""
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,0}}"}'
    text = program(f"""
      x = s32[] parameter(0)
      t = token[] after-all()
      r = (s32[], u32[], token[]) recv(t), {pairs}
      rd = (s32[], token[]) recv-done(r)
      got = token[] get-tuple-element(rd), index=1
      s = (s32[], u32[], token[]) send(x, got), {pairs}
      ROOT sd = token[] send-done(s)""")
    error = fails(executable(text, replicas=3), [[np.int32(n)] for n in range(3)])
    assert [line.strip() for line in str(error).splitlines()[1:4]] == [
        "device (replica 0, partition 0) waits in recv %r for device (replica 2, partition 0)",
        "device (replica 1, partition 0) waits in recv %r for device (replica 0, partition 0)",
        "device (replica 2, partition 0) waits in recv %r for device (replica 1, partition 0) "
        "[devices.deadlock]",
    ]


LOOP = (
    binary("maximum", "s32", name="larger")
    + """
body { i = s32[] parameter(0)
  meeting = s32[] all-reduce(i), to_apply=larger
  one = s32[] constant(1)
  ROOT next = s32[] add(meeting, one) }
condition { i = s32[] parameter(0)
  id = u32[] replica-id()
  n = s32[] convert(id)
  limit = s32[] constant(LIMIT)
  last = s32[] add(n, limit)
  ROOT more = pred[] compare(i, last), direction=LT }
"""
)


def test_a_loop_that_one_replica_runs_more_often_than_the_other() -> None:
    text = program("p = s32[] parameter(0)\n ROOT w = s32[] while(p), condition=condition, body=body", LOOP)
    error = fails(executable(text.replace("LIMIT", "5"), replicas=2), [[np.int32(0)]] * 2)
    assert error.rule == "devices.deadlock"
    assert (
        "device (replica 1, partition 0) waits in all-reduce %meeting for device (replica 0, partition 0)"
        in str(error)
    )
    assert "device (replica 0, partition 0) has finished" in str(error)


def test_a_deadlock_is_noticed_at_once_and_leaves_the_executable_usable() -> None:
    text = program(
        """
      which = pred[] parameter(0)
      x = f32[] parameter(1)
      ROOT r = f32[] conditional(which, x, x), true_computation=meet, false_computation=alone""",
        ADD
        + """
    meet { x = f32[] parameter(0)
      ROOT r = f32[] all-reduce(x), to_apply=add }
    alone { ROOT x = f32[] parameter(0) }""",
    )
    exe = executable(text, replicas=2)
    start = time.monotonic()
    error = fails(exe, [[np.True_, np.float32(1)], [np.False_, np.float32(2)]])
    assert time.monotonic() - start < 20  # seconds, for busy machines; nothing is waited for
    assert error.rule == "devices.deadlock"
    assert lists(exe.run([[np.True_, np.float32(1)], [np.True_, np.float32(2)]])) == [3, 3]


def test_an_error_on_one_device_ends_the_run_of_all() -> None:
    good = program("p = f32[2] parameter(0)\n ROOT r = f32[2] all-reduce(p), to_apply=add", ADD)
    bad = program('p = f32[2] parameter(0)\n ROOT c = f32[2] custom-call(p), custom_call_target="unheard-of"')
    error = fails(executable(good, bad), [[np.zeros(2, np.float32)]] * 2)
    assert (error.rule, error.instruction) == ("custom-call.target-registered", "c")


def test_many_devices_meet_many_times() -> None:
    text = program("p = s32[] parameter(0)\n ROOT w = s32[] while(p), condition=condition, body=body", LOOP)
    text = text.replace("LIMIT", "200").replace("last = s32[] add(n, limit)", "last = s32[] add(limit, zero)")
    text = text.replace("n = s32[] convert(id)", "zero = s32[] constant(0)")
    assert lists(on_devices(text, [[np.int32(0)]] * 16, replicas=8, partitions=2)) == [200] * 16


def test_concurrent_callers_run_one_after_the_other() -> None:
    text = program("p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), to_apply=add", ADD)
    exe = executable(text, replicas=2)
    results: list[list[float]] = []

    def call(n: int) -> None:
        results.append(lists(exe.run([[np.float32(n)], [np.float32(n)]])))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [[2.0 * n] * 2 for n in range(8)]


def test_a_patient_infeed_waits_for_another_thread_and_gives_up() -> None:
    exe = executable(program("t = token[] after-all()\n ROOT i = (f32[], token[]) infeed(t)"))
    exe.host_timeout = 0.3
    release = threading.Event()
    feeder = threading.Thread(target=release.wait)
    feeder.start()
    start = time.monotonic()
    with pytest.raises(HloError, match="the infeed is empty"):
        exe()
    assert time.monotonic() - start >= exe.host_timeout
    release.set()
    feeder.join()


FINISHED = "return device.id"
INTERRUPTED = """
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    while True:
        time.sleep(0.001)"""
THEN_TRACE = """
import contextlib, signal, sys, threading, time
from hloom.devices.world import World

def work(device):
    BODY

def traced():
    return "traced"

world = World(2, 1)
for _ in range(3):
    with contextlib.suppress(KeyboardInterrupt):
        world.run(work)
sys.settrace(lambda *_: None)
print(traced())
"""


@pytest.mark.parametrize("body", [FINISHED, INTERRUPTED], ids=["finished", "interrupted"])
def test_a_traced_function_runs_after_devices(body: str) -> None:
    """Devices leave no exception pending: CPython 3.11 would never start a traced function."""
    code = THEN_TRACE.replace("BODY", body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "traced\n", done.stderr
