"""collective-reduce, and roots that are chosen at run time."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from tests.agreement import equal
from tests.reducers import ADD

BACKENDS = ("evaluator", "cpu")


def results(body: str, backend: str, devices: int = 3) -> list[list[np.ndarray]]:
    """Run on replicas whose parameter x is 1, 10, 100, and k the root 2, 2, 2; return their results."""
    text = (
        f"HloModule m, replica_count={devices}\n{ADD}ENTRY e {{ x = f32[2] parameter(0)\n"
        f"k = s32[1] parameter(1)\n{body} }}"
    )
    module = HloModule.from_text(text)
    module.verify()
    executable = hloom.compile(module, backend, num_replicas=devices)
    found = executable.run(
        [[np.full(2, 10.0**n, np.float32), np.full(1, 2, np.int32)] for n in range(devices)]
    )
    return [list(r) if isinstance(r, tuple) else [r] for r in found]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_device_of_each_group_gets_the_sum(backend: str) -> None:
    body = "ROOT r = f32[2] collective-reduce(x), replica_groups={{1,0},{2}}, to_apply=add"
    found = results(body, backend)
    for (got,), wanted in zip(found, (0, 11, 100), strict=True):
        equal(got, np.full(2, wanted, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_device_in_no_group_gets_zeros(backend: str) -> None:
    body = "ROOT r = f32[2] collective-reduce(x), replica_groups={{2,1}}, to_apply=add"
    for (got,), wanted in zip(results(body, backend), (0, 0, 110), strict=True):
        equal(got, np.full(2, wanted, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_root_is_a_place_in_the_group(backend: str) -> None:
    body = (
        "r = f32[2] collective-reduce(x, k), replica_groups={{1,2,0}}, has_dynamic_root=true, to_apply=add\n"
        "b = f32[2] collective-broadcast(x, k), replica_groups={{2,0,1}}, has_dynamic_root=true\n"
        "ROOT t = (f32[2], f32[2]) tuple(r, b)"
    )
    for (sum_, sent), wanted in zip(results(body, backend), (111, 0, 0), strict=True):
        equal(sum_, np.full(2, wanted, np.float32))
        equal(sent, np.full(2, 10, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_operand_has_its_root(backend: str) -> None:
    body = (
        "y = f32[2] negate(x)\n roots = s32[2] constant({1, 2})\n"
        "ROOT r = (f32[2], f32[2]) collective-reduce(x, y, roots), replica_groups={{0,1,2}}, to_apply=add,"
        " has_dynamic_root=true"
    )
    found = results(body, backend)
    for (first, second), wanted in zip(found, ((0, 0), (111, 0), (0, -111)), strict=True):
        equal(first, np.full(2, wanted[0], np.float32))
        equal(second, np.full(2, wanted[1], np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("roots", "groups", "rule"),
    [("k", "{{0,1},{2}}", "collective.root-range"), ("other", "{{0,1,2}}", "collective.same-root")],
)
def test_roots_are_checked_at_run_time(backend: str, roots: str, groups: str, rule: str) -> None:
    body = (
        "i = u32[] replica-id()\n j = s32[] convert(i)\n other = s32[1] reshape(j)\n"
        f"ROOT r = f32[2] collective-broadcast(x, {roots}), replica_groups={groups}, "
        "has_dynamic_root=true"
    )
    with pytest.raises(HloError) as caught:
        results(body, backend)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("collective-reduce(x, x), has_dynamic_root=true, to_apply=add", "collective-reduce.roots"),
        ("collective-broadcast(x, x), has_dynamic_root=true", "collective-broadcast.roots"),
        ("collective-broadcast(k), has_dynamic_root=true", "collective-broadcast.roots"),
        ("collective-reduce(t), to_apply=add", "collective-reduce.operand-arrays"),
        ("collective-reduce(k), to_apply=add", "collective-reduce.reducer"),
        (
            "collective-reduce(x), replica_groups={{0,0}}, to_apply=add",
            "collective-reduce.replica-groups-distinct",
        ),
        (
            "collective-reduce(x), replica_groups={{},{0}}, to_apply=add",
            "collective-reduce.replica-groups-filled",
        ),
        (
            "collective-reduce(x), replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add",
            "collective-reduce.global-ids-channel",
        ),
        (
            "collective-reduce(x), channel_id=1, use_global_device_ids=true, to_apply=add",
            "collective-reduce.global-ids-groups",
        ),
    ],
)  # fmt: skip
def test_rules(line: str, rule: str) -> None:
    text = f"{ADD}ENTRY e {{ x = f32[2] parameter(0)\n k = s32[1] parameter(1)\n t = token[] after-all()\nROOT r = f32[2] {line} }}"  # noqa: E501
    with pytest.raises(HloError) as caught:
        HloModule.from_text(text).verify()
    assert caught.value.rule == rule


def test_text_states_the_root_since_0_11() -> None:
    body = "x = f32[2] parameter(0)\n ROOT r = f32[2] collective-broadcast(x), replica_groups={}"
    module = HloModule.from_text(f"ENTRY e {{ {body} }}")
    assert "replica_groups={}\n" in module.to_text(xla_version="0.10")
    assert "replica_groups={}, has_dynamic_root=false\n" in module.to_text(xla_version="0.11")
