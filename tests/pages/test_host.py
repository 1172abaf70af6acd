"""The page "Operation semantics" on the host and on channels: AfterAll, Infeed, Send, Recv, CustomCall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom import Literal, XlaOp, ops
from tests.arrays import f32
from tests.builder.building import built
from tests.pages.both import BACKENDS, rule_of, shape_of, value


def test_tokens_join_any_number() -> None:
    for count in (1, 2, 5):
        text = built(lambda x, n=count: ops.AfterAll([ops.Outfeed(x) for _ in range(n)]), "f32[2]").to_text()
        assert f"after-all({', '.join(['%outfeed'] + [f'%outfeed.{i}' for i in range(1, count)])})" in text
    assert shape_of(lambda b: ops.CreateToken(b)) == "token[]"
    assert rule_of(lambda x: ops.AfterAll(x), "f32[]").startswith("after-all.")


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeeds_are_read_in_their_order(backend: str) -> None:
    def program(b: Any) -> XlaOp:
        first = ops.InfeedWithToken(ops.CreateToken(b), "f32[2]")
        second = ops.InfeedWithToken(first[1], "(s32[], f32[])")
        return ops.Tuple([first[0], second[0]])

    executable = hloom.compile(built(program), backend)
    executable.devices[0].transfer_to_infeed(Literal(f32([1, 2])))
    executable.devices[0].transfer_to_infeed(Literal((np.int32(3), f32(4))))
    first, (second, third) = executable()
    assert (first.tolist(), second, third) == ([1, 2], 3, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_infeed_of_nothing_reads_nothing(backend: str) -> None:
    def program(b: Any) -> XlaOp:
        return ops.Tuple([ops.Infeed(b, "()"), ops.Constant(b, f32(1))])

    assert hloom.compile(built(program), backend)() == ((), 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_goes_from_send_to_recv_of_one_channel(backend: str) -> None:
    sender = built(
        lambda x: ops.AfterAll(ops.SendDone(ops.Send(x, 1)), ops.SendDone(ops.Send(x * 2, 2))), "f32[2]"
    )
    receiver = built(
        lambda b: ops.Tuple(
            [ops.GetTupleElement(ops.RecvDone(ops.Recv(b, "f32[2]", channel)), 0) for channel in (2, 1)]
        )
    )
    programs = [sender, receiver]
    _, (second, first) = hloom.compile(programs, backend, num_replicas=2).run([[f32([1, 2])], []])
    assert (first.tolist(), second.tolist()) == ([1, 2], [2, 4])


def test_contexts_are_tuples_of_the_data_and_a_number() -> None:
    assert shape_of(lambda b: ops.RecvDone(ops.Recv(b, "f32[2]", 1))) == "(f32[2], token[])"
    b = hloom.XlaBuilder("f")
    assert ops.Recv(b, "f32[2]", 1).shape.tuple_shapes[1] == hloom.Shape.parse("u32[]")
    sent = ops.Send(ops.Constant(b, f32(1)), 2)
    assert [str(s) for s in sent.shape.tuple_shapes] == ["f32[]", "u32[]", "token[]"]
    assert ops.SendDone(sent).shape == hloom.Shape.token()


def test_custom_calls_take_any_arguments_and_give_the_stated_shape() -> None:
    def swapped(x: Any, pair: Any) -> Any:
        return pair[1], x

    hloom.register_custom_call("pages.swapped", swapped)
    first, second = value(
        lambda x, n: ops.CustomCall("pages.swapped", x, ops.Tuple([x, n]), shape="(s32[], f32[2])"),
        f32([1, 2]), np.int32(5),
    )  # fmt: skip
    assert (first, second.tolist()) == (5, [1, 2])
    assert rule_of(lambda x: ops.CustomCall("t", x), "f32[]") == "custom-call.shape-stated"
