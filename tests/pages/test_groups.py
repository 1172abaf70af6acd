"""The page "Operation semantics" on groups of replicas: who works with whom, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom import HloError, ops
from tests.arrays import f32
from tests.builder.building import ADD, MAX, built
from tests.pages.both import BACKENDS, on_replicas, rule_of

INPUTS = [f32([1, 10, 100, 1000, 2, 20, 200, 2000]) * (replica + 1) for replica in range(4)]


@pytest.mark.parametrize(
    "groups", [None, [[0, 1, 2, 3]], [[0, 2], [1, 3]], [[3, 0], [1, 2]], [[0], [1], [2], [3]]]
)
def test_groups_and_their_order(groups: Any) -> None:
    listed = groups or [[0, 1, 2, 3]]
    size = len(listed[0])
    gathered = on_replicas(lambda x: ops.AllGather(x, 0, size, groups), *INPUTS)
    reduced = on_replicas(lambda x: ops.AllReduce(x, ADD, groups), *INPUTS)
    scattered = on_replicas(lambda x: ops.ReduceScatter(x, ADD, 0, size, groups), *INPUTS)
    exchanged = on_replicas(lambda x: ops.AllToAll(x, 0, 0, size, groups), *INPUTS)
    summed = on_replicas(lambda x: ops.CrossReplicaSum(x, groups), *INPUTS)
    for group in listed:
        members = [INPUTS[replica] for replica in group]
        for place, replica in enumerate(group):
            assert (gathered[replica] == np.concatenate(members)).all()
            assert (reduced[replica] == sum(members)).all()
            assert (summed[replica] == sum(members)).all()
            assert (scattered[replica] == np.split(sum(members), size)[place]).all()
            parts = [np.split(member, size)[place] for member in members]
            assert (exchanged[replica] == np.concatenate(parts)).all()


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2)])
def test_all_to_all_splits_and_joins_along_any_dimensions(split: int, concat: int) -> None:
    inputs = [np.arange(4 * 8 * 4, dtype=f32).reshape(4, 8, 4) + 1000 * replica for replica in range(4)]
    groups = [[1, 2], [3, 0]]
    for replica, found in enumerate(
        on_replicas(lambda x: ops.AllToAll(x, split, concat, 2, groups), *inputs)
    ):
        group = next(g for g in groups if replica in g)
        parts = [np.split(inputs[member], 2, split)[group.index(replica)] for member in group]
        assert (found == np.concatenate(parts, concat)).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_the_split_count_is_the_number_of_replicas(backend: str, replicas: int) -> None:
    module = built(lambda x: ops.AllToAll(x, 0, 1, 4), "f32[8,2]")
    with pytest.raises(HloError):
        hloom.compile(module, backend, num_replicas=replicas).run([[np.zeros((8, 2), f32)]] * replicas)


def test_any_computation_reduces() -> None:
    found = on_replicas(lambda x: ops.AllReduce(x, MAX), *INPUTS)
    assert all((f == INPUTS[3]).all() for f in found)
    found = on_replicas(lambda x: ops.ReduceScatter(x, MAX, 0, 4), *INPUTS)
    assert np.concatenate(found).tolist() == INPUTS[3].tolist()


def test_tuples_are_reduced_element_by_element() -> None:
    both = on_replicas(lambda x: ops.ReduceScatter(ops.Tuple([x, x * 2]), ADD, 0, 4), *INPUTS)
    for replica, (first, second) in enumerate(both):
        part = np.split(sum(INPUTS), 4)[replica]
        assert (first == part).all()
        assert (second == 2 * part).all()
    one = on_replicas(lambda x: ops.AllReduce(ops.Tuple([x]), ADD), *INPUTS)
    assert all(len(result) == 1 and (result[0] == sum(INPUTS)).all() for result in one)


def test_permutes_send_to_one_target_each() -> None:
    found = on_replicas(lambda x: ops.CollectivePermute(x, [(3, 0), (0, 2), (2, 2 - 1)]), *INPUTS)
    wanted = [INPUTS[3], INPUTS[2], INPUTS[0], 0 * INPUTS[0]]
    assert all((f == w).all() for f, w in zip(found, wanted, strict=True))
    swapped = on_replicas(lambda x: ops.CollectivePermute(x, []), *INPUTS)
    assert not np.any(swapped)


def test_each_replica_has_its_own_number() -> None:
    found = on_replicas(lambda x: ops.Tuple([ops.ReplicaId(x.builder), x]), *INPUTS)
    assert [int(number) for number, _ in found] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.AllGather(x, 0, 2, [[0, 1], [1, 2]]),
        lambda x: ops.AllGather(x, 0, 2, [[0, 1], [2]]),
        lambda x: ops.ReduceScatter(x, ADD, 0, 3),
        lambda x: ops.ReduceScatter(x, ADD, 0, 2, [[0, 1], [2]]),
        lambda x: ops.AllToAll(x, 0, 0, 3),
        lambda x: ops.AllReduce(x, ADD, [[0, 0]]),
        lambda x: ops.CollectivePermute(x, [(0, 1), (0, 2)]),
        lambda x: ops.CollectivePermute(x, [(0, 1), (2, 1)]),
    ],
)
def test_rules_of_groups(function: Any) -> None:
    assert "." in rule_of(function, "f32[8]")
