"""send and recv between devices and with the host, infeed and outfeed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import DeadlockError, EvaluationError, ShapeError
from hloom.ir.operation import Operation
from hloom.operations.transfer import Infeed, Recv, RecvDone, Send
from hloom.shape.shape import Shape
from tests.arrays import f32, f64, s32
from tests.devices import executable, fails, lists, on_devices, program
from tests.evaluation import refused

SENDER = """
  x = s32[2] parameter(0)
  t = token[] after-all()
  s = (s32[2], u32[], token[]) send(x, t), channel_id=7
  ROOT d = token[] send-done(s), channel_id=7
"""
RECEIVER = """
  t = token[] after-all()
  r = (s32[2], u32[], token[]) recv(t), channel_id=7
  ROOT d = (s32[2], token[]) recv-done(r), channel_id=7
"""


def test_one_program_sends_to_another() -> None:
    exe = executable(program(SENDER), program(RECEIVER))
    assert lists(exe.run([[s32([1, 2])], []])) == [None, [[1, 2], None]]


def test_pairs_say_who_sends_to_whom() -> None:
    """A ring: replica 2 is no target of anybody and gets zeros."""
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    text = program(f"""
      x = s32[] parameter(0)
      t = token[] after-all()
      r = (s32[], u32[], token[]) recv(t), {pairs}
      s = (s32[], u32[], token[]) send(x, t), {pairs}
      rd = (s32[], token[]) recv-done(r)
      sd = token[] send-done(s)
      ROOT g = s32[] get-tuple-element(rd), index=0""")
    assert lists(on_devices(text, [[np.int32(n)] for n in (10, 20, 30)], replicas=3)) == [20, 10, 0]


def test_a_channel_keeps_the_order() -> None:
    sender = """
      x = s32[] parameter(0)
      y = s32[] parameter(1)
      t = token[] after-all()
      s = (s32[], u32[], token[]) send(x, t), channel_id=1
      d = token[] send-done(s), channel_id=1
      other = (s32[], u32[], token[]) send(y, d), channel_id=1
      ROOT d2 = token[] send-done(other), channel_id=1"""
    receiver = """
      t = token[] after-all()
      r = (s32[], u32[], token[]) recv(t), channel_id=1
      after = token[] get-tuple-element(r), index=2
      r2 = (s32[], u32[], token[]) recv(after), channel_id=1
      d2 = (s32[], token[]) recv-done(r2), channel_id=1
      d = (s32[], token[]) recv-done(r), channel_id=1
      ROOT all = ((s32[], token[]), (s32[], token[])) tuple(d, d2)"""
    exe = executable(program(sender), program(receiver))
    assert lists(exe.run([[np.int32(1), np.int32(2)], []]))[1] == [[1, None], [2, None]]


def test_a_receive_may_travel_through_a_loop() -> None:
    """The send of each iteration is received by the recv that the iteration before has posted."""
    pairs = 'channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,0}}"}'
    text = program(
        f"""
      zero = s32[] constant(0)
      t = token[] after-all()
      first = (s32[], u32[], token[]) recv(t), {pairs}
      init = (s32[], s32[], (s32[], u32[], token[])) tuple(zero, zero, first)
      end = (s32[], s32[], (s32[], u32[], token[])) while(init), condition=condition, body=body
      ROOT sum = s32[] get-tuple-element(end), index=1""",
        f"""
    body {{
      state = (s32[], s32[], (s32[], u32[], token[])) parameter(0)
      i = s32[] get-tuple-element(state), index=0
      sum = s32[] get-tuple-element(state), index=1
      pending = (s32[], u32[], token[]) get-tuple-element(state), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      t = token[] after-all()
      s = (s32[], u32[], token[]) send(j, t), {pairs}
      sd = token[] send-done(s), channel_id=1
      d = (s32[], token[]) recv-done(pending), channel_id=1, control-predecessors={{sd}}
      got = s32[] get-tuple-element(d), index=0
      total = s32[] add(sum, got)
      after = token[] get-tuple-element(d), index=1
      next = (s32[], u32[], token[]) recv(after), {pairs}
      ROOT state2 = (s32[], s32[], (s32[], u32[], token[])) tuple(j, total, next)
    }}
    condition {{
      state = (s32[], s32[], (s32[], u32[], token[])) parameter(0)
      i = s32[] get-tuple-element(state), index=0
      limit = s32[] constant(10)
      ROOT more = pred[] compare(i, limit), direction=LT
    }}""",
    )
    assert lists(on_devices(text, [[]])) == [55]


# -- the host


HOST = """
  t = token[] parameter(0)
  r = (s32[2], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true
  rd = (s32[2], token[]) recv-done(r), channel_id=1, is_host_transfer=true
  x = s32[2] get-tuple-element(rd), index=0
  t2 = token[] get-tuple-element(rd), index=1
  y = s32[2] add(x, x)
  s = (s32[2], u32[], token[]) send(y, t2), channel_id=2, is_host_transfer=true
  ROOT sd = token[] send-done(s), channel_id=2, is_host_transfer=true
"""


def test_channels_to_the_host() -> None:
    exe = executable(program(HOST), replicas=2)
    for number, device in enumerate(exe.devices):
        device.transfer_to_channel(1, s32([number, 10]))
    assert exe.run([[None], [None]]) == [None, None]
    assert [device.transfer_from_channel(2).tolist() for device in exe.devices] == [[0, 20], [2, 20]]


def test_the_host_passes_on_what_one_device_sends_to_another() -> None:
    to_host = SENDER.replace("channel_id=7", "channel_id=7, is_host_transfer=true")
    from_host = RECEIVER.replace("channel_id=7", "channel_id=7, is_host_transfer=true")
    exe = executable(program(to_host), program(from_host))
    assert lists(exe.run([[s32([1, 2])], []])) == [None, [[1, 2], None]]


def test_the_host_does_not_guess_between_two_senders() -> None:
    """The receiver listens again after the first message, so that it meets the second sender in any order."""
    to_host = SENDER.replace("channel_id=7", "channel_id=7, is_host_transfer=true")
    from_host = """
      t = token[] after-all()
      r = (s32[2], u32[], token[]) recv(t), channel_id=7, is_host_transfer=true
      d = (s32[2], token[]) recv-done(r), channel_id=7, is_host_transfer=true
      after = token[] get-tuple-element(d), index=1
      again = (s32[2], u32[], token[]) recv(after), channel_id=7, is_host_transfer=true
      ROOT d2 = (s32[2], token[]) recv-done(again), channel_id=7, is_host_transfer=true"""
    exe = executable(program(to_host), program(from_host), program(to_host))
    error = fails(exe, [[s32([1, 2])], [], [s32([3, 4])]])
    assert error.rule == "devices.channel-ambiguous"


@pytest.mark.parametrize("texts", [(SENDER, SENDER, RECEIVER), (SENDER, RECEIVER, RECEIVER)])
def test_a_channel_has_one_sender_and_one_receiver(texts: tuple[str, ...]) -> None:
    exe = executable(*map(program, texts))
    error = fails(exe, [[s32([1, 2])] if text is SENDER else [] for text in texts])
    assert error.rule == "devices.channel-ambiguous"


# -- infeed and outfeed


FEED = """
  t = token[] parameter(0)
  a = ((f32[2], s32[]), token[]) infeed(t)
  x = (f32[2], s32[]) get-tuple-element(a), index=0
  t2 = token[] get-tuple-element(a), index=1
  v = f32[2] get-tuple-element(x), index=0
  w = f32[2] add(v, v)
  ROOT o = token[] outfeed(w, t2), outfeed_shape=f32[2]{0}
"""


def test_what_is_fed_in_and_out() -> None:
    exe = executable(program(FEED))
    for n in range(3):
        exe.devices[0].transfer_to_infeed((f32([n, n + 1]), hloom.Literal(np.int32(7))))
    for _ in range(3):
        exe(None)
    taken = [exe.devices[0].transfer_from_outfeed() for _ in range(3)]
    assert lists(taken) == [[0, 2], [2, 4], [4, 6]]


def test_every_device_has_its_own_feeds() -> None:
    exe = executable(program(FEED), replicas=2)
    for number, device in enumerate(exe.devices):
        device.transfer_to_infeed((f32([number, 5]), np.int32(0)))
    exe.run([[None], [None]])
    assert [device.transfer_from_outfeed().tolist() for device in exe.devices] == [[0, 10], [2, 10]]


def test_an_infeed_of_an_empty_tuple_reads_nothing() -> None:
    exe = executable(program("t = token[] after-all()\n ROOT i = ((), token[]) infeed(t)"))
    assert exe() == ((), None)


def test_another_thread_feeds_while_the_program_runs() -> None:
    exe = executable(program(FEED))
    exe.host_timeout = 300.0
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(exe(None)))
    thread.start()
    exe.devices[0].transfer_to_infeed((f32([1, 2]), np.int32(0)))
    assert exe.devices[0].transfer_from_outfeed().tolist() == [2, 4]
    thread.join()
    assert results == [None]


def test_an_empty_infeed_is_a_deadlock() -> None:
    error = fails(executable(program(FEED)), [[None]])
    assert isinstance(error, DeadlockError)
    assert "device (replica 0, partition 0) waits in infeed %a for the host: the infeed is empty" in str(
        error
    )


def test_an_empty_outfeed() -> None:
    exe = executable(program(FEED))
    with pytest.raises(EvaluationError) as caught:
        exe.devices[0].transfer_from_outfeed()
    assert caught.value.rule == "devices.nothing-to-take"
    with pytest.raises(EvaluationError, match="channel 3"):
        exe.devices[0].transfer_from_channel(3)


@pytest.mark.parametrize("value", [f32([1, 2]), (f64([1, 2]), np.int32(1)), (f32([1]), np.int32(1))])
def test_an_infeed_of_another_shape(value: Any) -> None:
    exe = executable(program(FEED))
    exe.devices[0].transfer_to_infeed(value)
    assert fails(exe, [[None]]).rule == "infeed.value"


def test_what_arrives_has_another_shape() -> None:
    exe = executable(program(SENDER.replace("s32[2]", "s32[3]")), program(RECEIVER))
    error = fails(exe, [[s32([1, 2, 3])], []])
    assert error.rule == "recv.value"


# -- what is refused


T = "p = f32[2] parameter(0)\n t = token[] after-all()\n"
START = T + "s = (f32[2], u32[], token[]) send(p, t), channel_id=1\n"
RECV = T + "s = (f32[2], u32[], token[]) recv(t), channel_id=1\n"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (T + "ROOT s = (f32[2], u32[], token[]) send(p, p), channel_id=1", "send.token"),
        (T + "ROOT s = token[] send-done(p), channel_id=1", "send-done.operand-form"),
        (START + "ROOT d = token[] send-done(s), channel_id=2", "send-done.channel"),
        (START + "ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true", "send-done.channel"),
        (T + "ROOT s = (f32[2], u32[], token[]) recv(p), channel_id=1", "recv.token"),
        (RECV + "ROOT d = (f32[2], token[]) recv-done(s), channel_id=2", "recv-done.channel"),
        (T + "ROOT i = (f32[2], token[]) infeed(p)", "infeed.token"),
        (T + "ROOT o = token[] outfeed(p, p)", "outfeed.token"),
        (T + "ROOT o = token[] outfeed(p, t), outfeed_shape=f32[3]", "outfeed.shape"),
    ],
)
def test_what_is_refused(body: str, rule: str) -> None:
    assert refused(program(body)).rule == rule


@pytest.mark.parametrize(
    ("operation", "shape", "operands", "rule"),
    [
        (
            Send(channel_id=1, is_host_transfer=False),
            "(f32[2], u32[])",
            ["f32[2]", "token[]"],
            "instruction.shape-matches",
        ),
        (Recv(channel_id=1, is_host_transfer=False), "(f32[2], token[])", ["token[]"], "recv.shape-form"),
        (Recv(channel_id=1, is_host_transfer=False), "f32[2]", ["token[]"], "recv.shape-form"),
        (
            RecvDone(channel_id=1, is_host_transfer=False),
            "(f32[2], token[])",
            ["f32[2]"],
            "recv-done.operand-form",
        ),
        (Infeed(), "f32[2]", ["token[]"], "infeed.shape-form"),
        (Infeed(), "(f32[2], f32[])", ["token[]"], "infeed.shape-form"),
    ],
)
def test_shapes_that_text_derives_and_programs_may_get_wrong(
    operation: Operation, shape: str, operands: list[str], rule: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        operation.check(Shape.parse(shape), *map(Shape.parse, operands))
    assert caught.value.rule == rule
