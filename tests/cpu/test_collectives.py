"""Collectives of the cpu backend: devices rendezvous in native code, with the evaluator's results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.cpu.runtime import rendezvous_plan as meetings
from hloom.cpu.runtime.host import HostCalls
from hloom.runtime.executable import Executable
from tests import agreement, native_runs
from tests.arrays import f32
from tests.devices import fails, program
from tests.evaluation import parse
from tests.reducers import ADD, binary

Arguments = Sequence[Sequence[Any]]
OTHER = (
    binary("subtract", name="rest")
    + binary("add", "s32", name="whole")
    + binary("multiply", "c64", name="complex")
    + binary("or", "pred", name="either")
    + binary("add", "bf16", name="short")
)


@pytest.fixture
def by_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the opcodes that the host evaluates."""
    seen: list[str] = []
    call = HostCalls.call

    def noted(self: HostCalls, number: int, pointers: int) -> None:
        seen.append(self._calls[number].instruction.opcode)
        call(self, number, pointers)

    monkeypatch.setattr(HostCalls, "call", noted)
    yield seen


def compiled(*bodies: str, **options: Any) -> Executable:
    modules = [parse(program(body, ADD + OTHER)) for body in bodies]
    exe = hloom.compile(modules[0] if len(modules) == 1 else modules, **options)
    exe.host_timeout = 0.0
    return exe


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("inner", ["f64", "bf16", "f32"])
def test_computations_of_another_precision(kind: str, inner: str, by_host: list[str]) -> None:
    """Operands are converted to the type of the computation, and the result back, each rounded once."""
    added = f"added {{ a = {inner}[] parameter(0)\n b = {inner}[] parameter(1)\n ROOT c = add(a, b) }}"
    module = parse(
        f"HloModule m, replica_count=3\n{added}\nENTRY e {{ x = {kind}[40] parameter(0)\n"
        f" ROOT r = {kind}[40] all-reduce(x), replica_groups={{{{0,1,2}}}}, to_apply=added }}"
    )
    rng = np.random.default_rng(0)
    given = [[native_runs.draw(rng, f"{kind}[40]")] for _ in range(3)]
    wanted = hloom.compile(module, backend="evaluator").run(given)
    agreement.equal(tuple(hloom.compile(module).run(given)), tuple(wanted))
    assert not by_host


def test_ids_without_a_context_are_those_of_a_single_device() -> None:
    run = native_runs.compiled("r = u32[] replica-id()\n p = u32[] partition-id()\n ROOT t = tuple(r, p)")
    assert [int(n) for n in run()] == [0, 0]


def check(body: str, arguments: Arguments, **options: Any) -> None:
    """Assert several times that both backends agree."""
    wanted = hloom.compile(parse(program(body, ADD + OTHER)), backend="evaluator", **options).run(arguments)
    exe = compiled(body, **options)
    for _ in range(3):
        for found, right in zip(exe.run(arguments), wanted, strict=True):
            agreement.same(found, right)


def drawn(count: int, *shape: int) -> Arguments:
    rng = np.random.default_rng(0)
    return [[rng.normal(size=shape).astype(np.float32)] for _ in range(count)]


@pytest.mark.parametrize("size", [0, 1, 7, 64, 200, 70_001])
@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_all_reduce(by_host: list[str], size: int, replicas: int) -> None:
    """Short and long arrays, also such as do not fall into equal parts; the order is that of the group."""
    x = f"x = f32[{size}] parameter(0)\n"
    for reducer in ("add", "rest"):
        body = x + f"ROOT r = f32[{size}] all-reduce(x), to_apply={reducer}"
        check(body, drawn(replicas, size), num_replicas=replicas)
    assert not by_host


@pytest.mark.parametrize(
    ("kind", "reducer", "value"),
    [("s32", "whole", 3), ("c64", "complex", 1 + 2j), ("pred", "either", True), ("bf16", "short", 1.01)],
)
def test_all_reduce_of_other_types(by_host: list[str], kind: str, reducer: str, value: Any) -> None:
    shape = hloom.Shape.parse(f"{kind}[37]")
    body = f"x = {kind}[37] parameter(0)\nROOT r = {kind}[37] all-reduce(x), to_apply={reducer}"
    given = [[(np.arange(37) * value + n).astype(shape.element_type.numpy_dtype)] for n in range(3)]
    check(body, given, num_replicas=3)
    assert not by_host


def test_all_reduce_in_another_precision(by_host: list[str]) -> None:
    """The reducer's type decides; results are rounded once."""
    body = "x = bf16[9] parameter(0)\nROOT r = bf16[9] all-reduce(x), to_apply=add"
    kind = hloom.Shape.parse("bf16[]").element_type.numpy_dtype
    given = [[(np.arange(9) + n / 7).astype(kind)] for n in range(4)]
    check(body, given, num_replicas=4)
    assert not by_host


def test_several_operands_and_what_follows(by_host: list[str]) -> None:
    body = """x = f32[3] parameter(0)
      y = f32[3] multiply(x, x)
      t = (f32[3], f32[3]) all-reduce(x, y), to_apply=add
      a = f32[3] get-tuple-element(t), index=0
      b = f32[3] get-tuple-element(t), index=1
      ROOT r = f32[3] subtract(a, b)"""
    check(body, drawn(2, 3), num_replicas=2)
    assert not by_host


@pytest.mark.parametrize(
    ("attributes", "replicas", "partitions"),
    [
        ("replica_groups={{0,2},{3,1}}", 4, 1),
        ("replica_groups={{1,0}}, channel_id=1", 2, 2),
        ("replica_groups={{0},{1}}, channel_id=1", 2, 2),
        ("replica_groups={{3,0},{1,2}}, channel_id=1, use_global_device_ids=true", 2, 2),
        ("replica_groups={{0,1},{2}}", 3, 1),
        ("replica_groups=[2,2]<=[4]", 4, 1),
    ],
)
def test_groups(by_host: list[str], attributes: str, replicas: int, partitions: int) -> None:
    body = f"x = f32[5] parameter(0)\nROOT r = f32[5] all-reduce(x), {attributes}, to_apply=rest"
    check(body, drawn(replicas * partitions, 5), num_replicas=replicas, num_partitions=partitions)
    assert not by_host


@pytest.mark.parametrize("d", [0, 1, 2])
def test_all_gather_and_reduce_scatter(by_host: list[str], d: int) -> None:
    sizes = [2, 4, 6]
    long = [n * (2 if k == d else 1) for k, n in enumerate(sizes)]
    small, large = ("f32[" + ",".join(map(str, s)) + "]" for s in (sizes, long))
    check(
        f"x = {small} parameter(0)\nROOT r = {large} all-gather(x), dimensions={{{d}}}",
        drawn(2, *sizes), num_replicas=2,
    )  # fmt: skip
    check(
        f"x = {large} parameter(0)\nROOT r = {small} reduce-scatter(x), dimensions={{{d}}}, to_apply=rest",
        drawn(2, *long), num_replicas=2,
    )  # fmt: skip
    assert not by_host


@pytest.mark.parametrize("d", [0, 1])
def test_all_to_all(by_host: list[str], d: int) -> None:
    check(
        f"x = f32[6,9] parameter(0)\nROOT r = f32[6,9] all-to-all(x), dimensions={{{d}}}",
        drawn(3, 6, 9), num_replicas=3,
    )  # fmt: skip
    assert not by_host


def test_all_to_all_of_tuples(by_host: list[str]) -> None:
    body = """x = f32[4] parameter(0)
      y = f32[4] negate(x)
      ROOT r = (f32[4], f32[4]) all-to-all(x, y), replica_groups={{1,0}}"""
    check(body, drawn(2, 4), num_replicas=2)
    assert not by_host


def test_collective_broadcast(by_host: list[str]) -> None:
    body = "x = f32[5] parameter(0)\nROOT r = f32[5] collective-broadcast(x), replica_groups={{2,0,1}}"
    check(body, drawn(3, 5), num_replicas=3)
    assert not by_host


def test_a_device_in_no_group_gets_zeros() -> None:
    body = "x = f32[5] parameter(0)\nROOT r = f32[5] collective-broadcast(x), replica_groups={{2,0}}"
    check(body, drawn(3, 5), num_replicas=3)


def test_ids_need_no_host(by_host: list[str]) -> None:
    body = """r = u32[] replica-id()
      p = u32[] partition-id()
      ROOT t = (u32[], u32[]) tuple(r, p)"""
    check(body, [[]] * 6, num_replicas=3, num_partitions=2)
    assert not by_host


def test_loops_meet_again_and_again(by_host: list[str]) -> None:
    computations = (
        ADD
        + """
    body { s = (s32[], f32[3]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      x = f32[3] get-tuple-element(s), index=1
      one = s32[] constant(1)
      m = s32[] add(n, one)
      half = f32[] constant(0.5)
      scale = f32[3] broadcast(half), dimensions={}
      y = f32[3] multiply(x, scale)
      z = f32[3] all-reduce(y), to_apply=add
      ROOT r = (s32[], f32[3]) tuple(m, z) }
    more { s = (s32[], f32[3]) parameter(0)
      n = s32[] get-tuple-element(s), index=0
      limit = s32[] constant(500)
      ROOT c = pred[] compare(n, limit), direction=LT }"""
    )
    text = program(
        """x = f32[3] parameter(0)
      zero = s32[] constant(0)
      s = (s32[], f32[3]) tuple(zero, x)
      w = (s32[], f32[3]) while(s), condition=more, body=body
      ROOT r = f32[3] get-tuple-element(w), index=1""",
        computations,
    )
    exe = hloom.compile(parse(text), num_replicas=2)
    first, second = exe.run([[f32([1, 2, 3])], [f32([3, 4, 5])]])
    assert first.tolist() == second.tolist() == [2, 3, 4]
    assert not by_host


# -- errors


def test_who_is_missing_is_named() -> None:
    """Every program reduces, but one of them more often."""
    once = "x = f32[2] parameter(0)\nROOT a = f32[2] all-reduce(x), to_apply=add"
    twice = once.replace("ROOT a", "a") + "\nROOT second = f32[2] all-reduce(a), to_apply=add"
    exe = compiled(once, twice)
    start = time.monotonic()
    error = fails(exe, drawn(2, 2))
    assert time.monotonic() - start < 20  # seconds, for busy machines; nothing is waited for
    assert error.rule == "devices.deadlock"
    text = str(error)
    assert "(replica 1, partition 0) waits in all-reduce %second for device (replica 0, partition 0)" in text
    assert "(replica 0, partition 0) has finished" in text
    assert fails(exe, drawn(2, 2)).rule == "devices.deadlock", "the next run begins anew"


def test_a_slow_device_is_waited_for() -> None:
    """One device waits for its infeed while the others are at the rendezvous; that is no deadlock."""
    fed = """x = f32[2] parameter(0)
      t = token[] after-all()
      i = (f32[2], token[]) infeed(t)
      v = f32[2] get-tuple-element(i), index=0
      ROOT a = f32[2] all-reduce(v), to_apply=add"""
    exe = compiled("x = f32[2] parameter(0)\nROOT a = f32[2] all-reduce(x), to_apply=add", fed)
    exe.host_timeout = 300.0
    feeder = threading.Timer(0.3, lambda: exe.devices[1].transfer_to_infeed(f32([1, 2])))
    feeder.start()
    first, second = exe.run([[f32([1, 1])], [f32([0, 0])]])
    feeder.join()
    assert first.tolist() == second.tolist() == [2, 3]


def test_arrays_of_different_sizes_are_refused() -> None:
    bodies = [f"x = f32[{n}] parameter(0)\nROOT a = f32[{n}] all-reduce(x), to_apply=add" for n in (2, 3)]
    error = fails(compiled(*bodies), [[np.ones(2, np.float32)], [np.ones(3, np.float32)]])
    assert error.rule == "collective.same-operands"


def test_an_error_on_one_device_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = """x = f32[2] parameter(0)
      y = f32[2] custom-call(x), custom_call_target="test_of_nobody"
      ROOT a = f32[2] all-reduce(y), to_apply=add"""
    exe = compiled("x = f32[2] parameter(0)\nROOT a = f32[2] all-reduce(x), to_apply=add", failing)
    assert fails(exe, drawn(2, 2)).rule.startswith("custom-call")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("ROOT r = f32[12] all-gather(x), dimensions={0}", "collective.group-size"),
        ("ROOT r = f32[1] reduce-scatter(x), dimensions={0}, to_apply=add", "collective.group-size"),
    ],
)
def test_groups_that_do_not_fit_are_left_to_the_host(body: str, rule: str) -> None:
    """The host reports the error, as the evaluator does."""
    assert fails(compiled("x = f32[4] parameter(0)\n" + body, num_replicas=2), drawn(2, 4)).rule == rule


def test_start_and_plain_forms_meet_by_the_host(by_host: list[str]) -> None:
    plain = "x = f32[2] parameter(0)\nROOT a = f32[2] all-reduce(x), to_apply=add"
    begun = """x = f32[2] parameter(0)
      s = f32[2] all-reduce-start(x), to_apply=add
      between = f32[2] negate(x), control-predecessors={s}
      ROOT a = f32[2] all-reduce-done(s), control-predecessors={between}"""
    first, second = compiled(plain, begun).run([[f32([1, 2])], [f32([3, 4])]])
    assert first.tolist() == second.tolist() == [4, 6]
    assert "all-reduce" in by_host


def test_more_devices_than_cores_do_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "available_cores", lambda: 1)
    body = "x = f32[2] parameter(0)\nROOT a = f32[2] all-reduce(x), to_apply=add"
    check(body, drawn(8, 2), num_replicas=8)
