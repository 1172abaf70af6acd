"""Devices divided among processes: the same bits for every division, and errors in all of them."""

from __future__ import annotations

import math
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.devices import peers
from hloom.errors import HloError
from hloom.runtime import mpi
from hloom.runtime.custom_call import unregister_custom_call
from hloom.runtime.executable import Executable
from tests import agreement
from tests.reducers import ADD
from tests.runtime.threads_transport import Group, ThreadsTransport, in_processes

PROGRAM = (Path(__file__).parent / "collectives.hlo").read_text()
ALL_REDUCE = (
    "all-reduce({}), channel_id={}, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add"
)
BOTH = pytest.mark.parametrize("backend", ["evaluator", "cpu"])


def arguments(devices: int) -> list[list[Any]]:
    rng = np.random.default_rng(3)
    return [[rng.normal(size=8).astype(np.float32)] for _ in range(devices)]


def compiled(transport: ThreadsTransport, backend: str = "evaluator", text: str = PROGRAM) -> Executable:
    return hloom.compile(hloom.HloModule.from_text(text), backend=backend, processes=transport)


def impatient(transport: ThreadsTransport, text: str = PROGRAM) -> Executable:
    """Compile a program that gives up after a second without a message."""
    exe = compiled(transport, text=text)
    assert exe.process_timeout == 60
    exe.process_timeout = 1.0
    return exe


def run(transport: ThreadsTransport, backend: str, times: int = 1) -> list[Any]:
    exe = compiled(transport, backend)
    given = [arguments(4)[device.partition] for device in exe.devices]
    for _ in range(times - 1):
        exe.run(given)
    return exe.run(given)


@BOTH
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_every_division_gives_the_same_bits(backend: str, processes: int) -> None:
    whole = hloom.compile(hloom.HloModule.from_text(PROGRAM), backend=backend).run(arguments(4))
    divided = in_processes(processes, lambda transport: run(transport, backend, times=3))
    assert all(isinstance(part, list) for part in divided), divided
    agreement.equal(tuple(result for part in divided for result in part), tuple(whole))


def test_an_error_ends_the_run_in_all_processes() -> None:
    def work(transport: ThreadsTransport) -> Any:
        exe = compiled(transport)
        wrong = np.zeros(3, np.float32)
        with pytest.raises(HloError) as first:
            exe.run([[wrong if transport.rank == 1 else np.zeros(8, np.float32)]] * len(exe.devices))
        with pytest.raises(HloError) as second:
            exe.run([[np.zeros(8, np.float32)]] * len(exe.devices))
        return first.value.rule, second.value.rule

    assert in_processes(2, work) == [
        ("processes.failed", "processes.broken"),
        ("run.argument", "processes.broken"),
    ]


def test_a_process_that_does_not_run_is_named_after_a_while() -> None:
    def work(transport: ThreadsTransport) -> str:
        exe = impatient(transport)
        if transport.rank == 1:
            return ""
        with pytest.raises(HloError) as caught:
            exe.run([[np.zeros(8, np.float32)]] * len(exe.devices))
        assert caught.value.rule == "devices.deadlock"
        return str(caught.value)

    message = in_processes(2, work)[0]
    assert "process 0 on host0 has heard nothing for 1 s" in message
    assert "device (replica 0, partition 3) of process 1 on host1" in message


SPEEDS = """slow {
  x = f32[] parameter(0)
  ROOT y = f32[] custom-call(x), custom_call_target="tests.slow"
}
quick {
  ROOT x = f32[] parameter(0)
}"""
"""Two computations that return their argument, one by a function that the test registers."""


def test_a_process_that_computes_is_waited_for() -> None:
    """It takes longer than the time-out, but tells that it computes."""
    text = f"""HloModule m, num_partitions=2
{ADD}
{SPEEDS}
ENTRY e {{
  x = f32[] parameter(0)
  id = u32[] partition-id()
  n = s32[] convert(id)
  y = f32[] conditional(n, x, x), branch_computations={{quick, slow}}
  ROOT r = f32[] {ALL_REDUCE.format("y", 1)}
}}"""

    def slow(x: Any) -> Any:
        time.sleep(3)
        return np.asarray(x)

    def work(transport: ThreadsTransport) -> Any:
        exe = compiled(transport, text=text)
        exe.process_timeout = 2.0
        return exe.run([[np.float32(1)]])

    hloom.register_custom_call("tests.slow", slow)
    try:
        found = in_processes(2, work)
    finally:
        unregister_custom_call("tests.slow")
    agreement.equal(found, [[np.float32(2)]] * 2)


def test_what_a_device_sends_before_it_ends_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 0 waits for 2, and 2 for 1, which computes longer than the time-out and ends its run."""
    text = f"""HloModule m, num_partitions=4
{ADD}
{SPEEDS}
ENTRY e {{
  x = f32[] parameter(0)
  id = u32[] partition-id()
  n = s32[] convert(id)
  y = f32[] conditional(n, x, x, x), branch_computations={{quick, slow, quick}}
  z = f32[] collective-permute(y), channel_id=1, source_target_pairs={{{{1,2}}}}
  ROOT r = f32[] all-reduce(z), channel_id=2, replica_groups={{{{0,2}},{{1}},{{3}}}},
    use_global_device_ids=true, to_apply=add
}}"""
    later, waiting = [0.0], []
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + later[0], sleep=time.sleep)
    monkeypatch.setattr(peers, "time", clock)

    def slow(x: Any) -> Any:
        while not waiting[0].is_silent:
            later[0] += 100
            time.sleep(0.001)
        return np.asarray(x)

    def work(transport: ThreadsTransport) -> Any:
        exe = compiled(transport, text=text)
        if transport.rank == 0:
            waiting.append(exe._world.peers)
        else:
            exe.process_timeout = 1e9
        return exe.run([[np.float32(1)]] * 2)

    hloom.register_custom_call("tests.slow", slow)
    try:
        found = in_processes(2, work)
    finally:
        unregister_custom_call("tests.slow")
    agreement.equal(tuple(found), ([np.float32(1), np.float32(0)], [np.float32(1), np.float32(0)]))


def test_a_process_that_was_stopped_hears_the_others_before_it_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = types.SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(peers, "time", clock)
    found = peers.Peers(ThreadsTransport(Group(1), 0), [(0, 0)])
    clock.now += 1000
    found.pause()
    assert not found.is_silent
    for _ in range(200):
        clock.now += found.timeout / 100
        found.pause()
    assert found.is_silent
    found.hear()
    assert not found.is_silent


def test_all_processes_name_their_devices_that_wait() -> None:
    """Each of two devices waits for the other one, in different instructions."""
    branches = [
        f"branch{n} {{\n x = f32[] parameter(0)\n ROOT wait{n} = f32[] {ALL_REDUCE.format('x', n)}\n}}\n"
        for n in (1, 2)
    ]
    entry = """ENTRY e {
  x = f32[] parameter(0)
  id = u32[] partition-id()
  n = s32[] convert(id)
  ROOT y = f32[] conditional(n, x, x), branch_computations={branch1, branch2}
}"""
    text = f"HloModule m, num_partitions=2\n{ADD}{''.join(branches)}{entry}"

    def work(transport: ThreadsTransport) -> str:
        with pytest.raises(HloError) as caught:
            impatient(transport, text=text).run([[np.float32(1)]])
        return str(caught.value)

    for rank, message in enumerate(in_processes(2, work)):
        assert f"process {rank} on host{rank}" in message
        assert f"partition {rank}) waits in all-reduce %wait{rank + 1} for device" in message
        assert f"partition {1 - rank}) of process {1 - rank} on host{1 - rank}" in message


def test_a_run_that_one_process_leaves_early() -> None:
    idle = f"HloModule m, num_partitions=2\n{ADD}\nENTRY e {{\n" + (
        "p = f32[] parameter(0)\n"
        "ROOT r = f32[] collective-permute(p), channel_id=1, source_target_pairs={{0,0},{1,1}}\n}"
    )

    def work(transport: ThreadsTransport) -> str:
        exe = impatient(transport, text=idle)
        if transport.rank == 1:
            return ""
        with pytest.raises(HloError) as caught:
            exe.run([[np.float32(1)]])
        assert caught.value.rule == "devices.deadlock"
        return str(caught.value)

    assert "process 0 on host0 has ended the run, others have not" in in_processes(2, work)[0]


def test_processes_compile_the_same_program() -> None:
    def work(transport: ThreadsTransport) -> tuple[str, bool]:
        text = PROGRAM if transport.rank != 2 else PROGRAM.replace("{3,2,1,0}", "{0,1,2,3}")
        with pytest.raises(HloError) as caught:
            compiled(transport, text=text)
        return caught.value.rule, "2 on host2" in str(caught.value)

    assert in_processes(3, work) == [("processes.same-program", True)] * 3


def test_one_process_has_no_time_out() -> None:
    exe = hloom.compile(hloom.HloModule.from_text(PROGRAM))
    exe.process_timeout = 1.0
    assert exe.process_timeout == math.inf


def test_every_process_has_a_device() -> None:
    def work(transport: ThreadsTransport) -> str:
        with pytest.raises(HloError) as caught:
            compiled(transport)
        return caught.value.rule

    assert set(in_processes(5, work)) == {"processes.device-count"}


def test_mpi_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(HloError) as caught:
        mpi.world()
    assert caught.value.rule == "mpi.missing"


def test_mpi_for_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.SimpleNamespace(Query_thread=lambda: 2, THREAD_MULTIPLE=3, COMM_WORLD=None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", library)
    with pytest.raises(HloError) as caught:
        mpi.world()
    assert caught.value.rule == "mpi.threads"
