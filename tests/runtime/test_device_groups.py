"""Compiling refuses groups of collectives that do not fit the devices of the program."""

from __future__ import annotations

import pytest

import hloom
from hloom import HloError, HloModule
from tests.reducers import with_reducers

PROGRAM = """HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  ROOT r = f32[4] {0}
}}"""


def module(collective: str) -> HloModule:
    return HloModule.from_text(PROGRAM.format(collective))


def reduce_in(groups: str, attributes: str = "") -> HloModule:
    collective = f"all-reduce(x), replica_groups={groups}, to_apply=add{attributes}"
    return HloModule.from_text(with_reducers(PROGRAM.format(collective)))


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
@pytest.mark.parametrize(
    ("groups", "attributes", "replicas", "partitions", "rule"),
    [
        ("{{0}}", "", 2, 1, "collective.device-in-group"),
        ("{{0,1}}", "", 4, 2, "collective.device-in-group"),
        ("{{0,1}}", ", channel_id=1", 4, 2, "collective.device-in-group"),
        ("{{0,1},{2,3}}", ", channel_id=1, use_global_device_ids=true", 2, 4, "collective.device-in-group"),
        ("{{0,2}}", "", 2, 1, "collective.device-range"),
        ("{{0,2}}", ", channel_id=1, use_global_device_ids=true", 1, 2, "collective.device-range"),
    ],
)
def test_refused(
    backend: str, groups: str, attributes: str, replicas: int, partitions: int, rule: str
) -> None:
    program = reduce_in(groups, attributes)
    with pytest.raises(HloError) as error:
        hloom.compile(program, backend=backend, num_replicas=replicas, num_partitions=partitions)
    assert (error.value.rule, error.value.instruction) == (rule, "r")
    assert error.value.line == 9


@pytest.mark.parametrize(
    ("groups", "attributes", "replicas", "partitions"),
    [
        ("{}", "", 2, 3),
        ("{{0,1}}", "", 2, 3),
        ("{{0,1,2}}", ", channel_id=1, use_global_device_ids=false", 3, 2),
        ("{{0,1},{2,3}}", ", channel_id=1, use_global_device_ids=true", 2, 2),
    ],
)
def test_accepted(groups: str, attributes: str, replicas: int, partitions: int) -> None:
    program = reduce_in(groups, attributes)
    hloom.compile(program, backend="evaluator", num_replicas=replicas, num_partitions=partitions)


def test_a_program_needs_groups_for_its_own_devices_only() -> None:
    both = [reduce_in("{{0}}"), module("negate(x)")]
    hloom.compile(both, backend="evaluator", num_replicas=2)
    with pytest.raises(HloError, match="1 of 2 in mode cross_replica is in no replica group"):
        hloom.compile(both[::-1], backend="evaluator", num_replicas=2)


def test_a_device_in_no_group_of_a_broadcast_gets_zeros() -> None:
    program = module("collective-broadcast(x), replica_groups={{1}}")
    hloom.compile(program, backend="evaluator", num_replicas=2)
