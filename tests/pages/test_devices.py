"""XLA's page "Operation semantics", example by example, with its names and numbers.

Operations across devices and with the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom import DeadlockError, XlaOp, ops
from tests.arrays import f32, s32
from tests.builder.building import ADD, built
from tests.pages.both import on_replicas, rule_of

# -- collectives, whose examples have two replicas with [1.0, 2.5] and [3.0, 5.25]


def test_all_gather() -> None:
    results = on_replicas(lambda x: ops.AllGather(x, 0, 2), f32([1, 2.5]), f32([3, 5.25]))
    assert [r.tolist() for r in results] == [[1.0, 2.5, 3.0, 5.25]] * 2


def test_all_gather_in_groups_keeps_their_order() -> None:
    inputs = [f32([10 * replica]) for replica in range(4)]
    results = on_replicas(lambda x: ops.AllGather(x, 0, 2, [[0, 2], [3, 1]]), *inputs)
    assert [r.tolist() for r in results] == [[0, 20], [30, 10], [0, 20], [30, 10]]


def test_all_reduce() -> None:
    for function in (lambda x: ops.AllReduce(x, ADD), ops.CrossReplicaSum):
        results = on_replicas(function, f32([1, 2.5]), f32([3, 5.25]))
        assert [r.tolist() for r in results] == [[4.0, 7.75]] * 2


def test_all_reduce_of_a_tuple() -> None:
    results = on_replicas(lambda x: ops.AllReduce(ops.Tuple([x, x * 2]), ADD), f32([1, 2.5]), f32([3, 5.25]))
    assert [[e.tolist() for e in r] for r in results] == [[[4, 7.75], [8, 15.5]]] * 2


def test_a_replica_that_reduces_more_often_than_another_waits_for_ever() -> None:
    def reduce_so_often(times: XlaOp) -> XlaOp:
        more = built(lambda state: state[0] > 0, "(s32[], f32[])")
        body = built(lambda state: ops.Tuple([state[0] - 1, ops.AllReduce(state[1], ADD)]), "(s32[], f32[])")
        return ops.While(more, body, ops.Tuple([times, ops.Constant(times.builder, f32(1))]))

    with pytest.raises(DeadlockError) as caught:  # of the first backend
        on_replicas(reduce_so_often, s32(2), s32(3))
    assert "(replica 1, partition 0) waits in all-reduce %all-reduce for device (replica 0" in str(
        caught.value
    )


def test_all_to_all() -> None:
    inputs = [np.arange(64, dtype=f32).reshape(4, 16) + 100 * core for core in range(4)]
    results = on_replicas(
        lambda x: ops.AllToAll(x, split_dimension=1, concat_dimension=0, split_count=4), *inputs
    )
    for core, result in enumerate(results):
        assert result.shape == (16, 4)
        assert (result == np.concatenate([np.split(x, 4, 1)[core] for x in inputs], 0)).all()


def test_collective_permute_leaves_zeros_where_nothing_arrives() -> None:
    results = on_replicas(lambda x: ops.CollectivePermute(x, [(0, 1), (1, 2)]), f32([5]), f32([6]), f32([7]))
    assert [r.tolist() for r in results] == [[0], [5], [6]]
    twice = "collective-permute"
    assert rule_of(lambda x: ops.CollectivePermute(x, [(0, 1), (2, 1)]), "f32[]").startswith(twice)
    assert rule_of(lambda x: ops.CollectivePermute(x, [(0, 1), (0, 2)]), "f32[]").startswith(twice)


def test_reduce_scatter() -> None:
    results = on_replicas(lambda x: ops.ReduceScatter(x, ADD, 0, 2), f32([1, 2.25]), f32([3, 5.25]))
    assert [r.tolist() for r in results] == [[4.0], [7.5]]


def test_replica_id() -> None:
    results = on_replicas(lambda x: ops.ReplicaId(x.builder), *([f32(0)] * 3))
    assert [(r.tolist(), r.dtype) for r in results] == [(0, np.uint32), (1, np.uint32), (2, np.uint32)]


# -- host exchange


def test_infeeds_of_two_loops_have_an_order() -> None:
    state = "(s32[], f32[])"
    condition = built(lambda s: s[0] < 2, state)
    body = built(lambda s: ops.Tuple([s[0] + 1, s[1] * 10 + ops.Infeed(s.builder, "f32[]")]), state)
    again = built(lambda s: s[0] < 4, state)

    def program(b: Any) -> XlaOp:
        start = ops.Tuple([ops.Constant(b, s32(0)), ops.Constant(b, f32(0))])
        return ops.While(again, body, ops.While(condition, body, start))

    executable = hloom.compile(built(program))
    for number in (1, 2, 3, 4):
        executable.devices[0].transfer_to_infeed(hloom.Literal(f32(number)))
    assert [e.tolist() for e in executable()] == [4, 1234]


def test_send_and_receive_between_programs() -> None:
    sender = built(lambda x: ops.SendDone(ops.Send(x, 7)), "f32[2]")
    receiver = built(lambda b: ops.GetTupleElement(ops.RecvDone(ops.Recv(b, "f32[2]", 7)), 0))
    _, received = hloom.compile([sender, receiver], num_replicas=2).run([[f32([1, 2])], []])
    assert received.tolist() == [1, 2]
