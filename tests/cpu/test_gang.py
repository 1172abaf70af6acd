"""Gangs: devices that one thread runs in turns give the bits of threads, and wait for nobody outside."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.cpu.runtime.gang import Gang
from hloom.errors import DeadlockError, HloError
from hloom.runtime.executable import Executable
from tests.agreement import same
from tests.reducers import ADD

MEAN = f"""HloModule mean
{ADD}
ENTRY main {{
  p = f32[64] parameter(0)
  r = f32[64] all-reduce(p), replica_groups={{}}, to_apply=add
  n = f32[64] negate(r)
  ROOT t = (f32[64], f32[64]) tuple(n, r)
}}"""
STEPS = f"""HloModule steps
{ADD}
body {{
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sum = f32[64] all-reduce(x), replica_groups={{{{0,1}},{{2,3}}}}, to_apply=add
  half = f32[] constant(0.375)
  halves = f32[64] broadcast(half), dimensions={{}}
  y = f32[64] multiply(sum, halves)
  ROOT t = (s32[], f32[64]) tuple(next, y)
}}
condition {{
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(25)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  p = f32[64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[64]) tuple(zero, p)
  w = (s32[], f32[64]) while(t), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(w), index=1
}}"""
ALONE = f"""HloModule alone
{ADD}
meet {{ x = f32[8] parameter(0) ROOT r = f32[8] all-reduce(x), replica_groups={{}}, to_apply=add }}
skip {{ x = f32[8] parameter(0) ROOT n = f32[8] negate(x) }}
ENTRY main {{
  p = f32[8] parameter(0)
  i = u32[] replica-id()
  z = u32[] constant(0)
  c = pred[] compare(i, z), direction=EQ
  ROOT q = f32[8] conditional(c, p, p), true_computation=meet, false_computation=skip
}}"""
LONG = """HloModule long
body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[] sine(x)
  ROOT t = (s32[], f32[]) tuple(next, y)
}
condition {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100000)
  ROOT c = pred[] compare(i, n), direction=LT
}
ADD
ENTRY main {
  p = f32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, p)
  w = (s32[], f32[]) while(t), condition=condition, body=body
  x = f32[] get-tuple-element(w), index=1
  ROOT r = f32[] MEET
}"""
MEETING = LONG.replace("ADD", ADD).replace("MEET", "all-reduce(x), replica_groups={}, to_apply=add")
APART = LONG.replace("ADD", "").replace("MEET", "negate(x)")


def compiled(text: str, devices: int) -> Executable:
    return hloom.compile(hloom.HloModule.from_text(text), num_replicas=devices)


def gang_of(executable: Executable) -> Gang:
    gang = executable.gang()
    assert isinstance(gang, Gang)
    return gang


def rows(devices: int, size: int = 64) -> list[list[np.ndarray]]:
    return [[np.arange(size, dtype=np.float32) / (n + 3)] for n in range(devices)]


def run(executable: Executable, gang: Gang, arguments: list[list[Any]]) -> list[Any]:
    assert gang.take()
    try:
        return gang.call(arguments)
    finally:
        gang.leave()


@pytest.mark.parametrize(("text", "devices"), [(MEAN, 2), (MEAN, 8), (STEPS, 4)])
def test_a_gang_gives_the_bits_of_threads(text: str, devices: int) -> None:
    executable = compiled(text, devices)
    gang = gang_of(executable)
    values = rows(devices)
    found = [run(executable, gang, values) for _ in range(3)]
    wanted = executable._run_together(lambda program, bound: program.run(bound), values)
    for results in found:
        same(results, wanted)


def test_a_device_leaves_the_processor_once_for_each_wait() -> None:
    executable = compiled(MEAN, 2)
    gang = gang_of(executable)
    run(executable, gang, rows(2))
    assert gang.resumptions == 2 + 2, "two begin; each meeting is waited for by one of them"


def test_runs_wait_for_no_other_thread() -> None:
    executable = compiled(STEPS, 4)
    gang = gang_of(executable)
    values = rows(4)
    run(executable, gang, values)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(20):
        run(executable, gang, values)
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
    assert waits < 20, "threads would wait some thousand times"


def test_executables_run_their_devices_as_a_gang() -> None:
    executable = compiled(MEAN, 8)
    executable.run(rows(8))
    gang = executable._gang
    assert isinstance(gang, Gang)
    assert gang.resumptions > 8


def test_a_deadlock_is_reported_as_that_of_threads() -> None:
    executable = compiled(ALONE, 3)
    gang = gang_of(executable)
    values = rows(3, 8)
    with pytest.raises(DeadlockError) as found:
        run(executable, gang, values)
    with pytest.raises(DeadlockError) as wanted:
        executable._run_together(lambda program, bound: program.run(bound), values)
    assert found.value.message == wanted.value.message
    assert "(replica 0, partition 0) waits in all-reduce" in found.value.message
    with pytest.raises(DeadlockError):
        run(executable, gang, values)


def test_operands_that_differ_are_reported() -> None:
    modules = [hloom.HloModule.from_text(MEAN.replace("[64]", f"[{size}]")) for size in (64, 32)]
    executable = hloom.compile(modules)
    gang = gang_of(executable)
    with pytest.raises(HloError, match="devices contribute different arrays") as found:
        run(executable, gang, [*rows(1), *rows(1, 32)])
    assert found.value.rule == "collective.same-operands"


def test_a_gang_runs_in_one_thread_at_a_time() -> None:
    executable = compiled(STEPS, 4)
    values = rows(4)
    (wanted, *_) = [executable.run(values) for _ in range(2)]
    gang = executable._gang
    assert gang is not None
    assert gang.take()
    assert not gang.take()
    same(executable.run(values), wanted)  # by threads
    gang.leave()
    results: list[object] = []
    threads = [
        threading.Thread(target=lambda: results.extend(executable.run(values) for _ in range(20)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    for result in results:
        same(result, wanted)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX warns, if loaded
def test_a_forked_child_may_take_a_gang_that_ran() -> None:
    gang = gang_of(compiled(MEAN, 2))
    assert gang.take()
    child = os.fork()
    if not child:
        os._exit(0 if gang.take() else 1)
    assert os.waitpid(child, 0)[1] == 0
    gang.leave()


def test_devices_that_compute_for_long_between_meetings_get_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.cpu.runtime.gang.available_cores", lambda: 2)
    executable = compiled(MEETING, 2)
    gang = gang_of(executable)
    values = [[np.float32(1)], [np.float32(2)]]
    results = [run(executable, gang, values) for _ in range(3)]
    assert not gang.take()
    same(executable.run(values), results[0])


@pytest.mark.parametrize("cores", [1, 2])
def test_devices_that_never_meet_run_on_the_pool(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("hloom.cpu.runtime.gang.available_cores", lambda: cores)
    executable = compiled(APART, 3)
    gang = gang_of(executable)
    values = [[np.float32(n)] for n in range(3)]
    found = [run(executable, gang, values) for _ in range(4)]
    for results in found:
        same(results, executable.run(values))


@pytest.mark.parametrize("text", [STEPS, APART])
def test_the_stop_word_ends_all_devices(text: str) -> None:
    for count in ("constant(25)", "constant(100000)"):
        text = text.replace(count, "constant(2000000000)")
    executable = compiled(text, 4)
    gang = executable.gang(ctypes.c_uint64(1))
    assert isinstance(gang, Gang)
    values = rows(4) if "all-reduce" in text else [[np.float32(n)] for n in range(4)]
    with pytest.raises(HloError, match="ended by a signal") as found:
        run(executable, gang, values)
    assert found.value.rule == "devices.ended"


def test_devices_without_address_space_for_stacks_have_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.cpu.runtime.gang._STACK_BYTES", 1 << 60)
    executable = compiled(MEAN, 2)
    assert executable.gang() is None
    values = rows(2)
    results = executable.run(values)
    monkeypatch.undo()
    same(run(executable, gang_of(executable), values), results)


def test_programs_that_call_the_host_are_no_gang() -> None:
    text = MEAN.replace("n = f32[64] negate(r)", "k = token[] after-all()\n  n = f32[64] negate(r)").replace(
        "ROOT t", "o = token[] outfeed(n, k), outfeed_shape=f32[64]\n  ROOT t"
    )
    assert compiled(text, 2).gang() is None
