"""async-start, async-update and async-done; copy-start and copy-done."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import f32
from tests.devices import executable, lists, on_devices, program
from tests.evaluation import evaluate, refused
from tests.reducers import ADD

COMPUTATIONS = """
double { x = f32[2] parameter(0)
  ROOT r = f32[2] add(x, x) }
scalar { x = f32[2] parameter(0)
  ROOT c = f32[] constant(1) }
"""
P = "p = f32[2] parameter(0)\n"
FORM = "((f32[2]), f32[2], s32[])"


def test_start_update_done() -> None:
    text = program(
        P
        + f"""
      s = {FORM} call-start(p), to_apply=double
      u = {FORM} call-update(s)
      ROOT d = f32[2] call-done(u)""",
        COMPUTATIONS,
    )
    assert evaluate(text, f32([1, 2])).tolist() == [2, 4]


def test_the_operands_and_contexts_are_there_too() -> None:
    text = program(
        P
        + f"""
      s = {FORM} async-start(p), calls=double
      operands = (f32[2]) get-tuple-element(s), index=0
      context = s32[] get-tuple-element(s), index=2
      d = f32[2] async-done(s)
      ROOT t = ((f32[2]), s32[], f32[2]) tuple(operands, context, d)""",
        COMPUTATIONS,
    )
    assert lists(evaluate(text, f32([1, 2]))) == [[[1, 2]], 0, [2, 4]]


def test_a_wrapped_collective_waits_only_at_its_end() -> None:
    """Replica 0 starts the reduction and then receives; replica 1 sends before it starts: no deadlock."""
    wrapped = ADD + "reduce { x = f32[] parameter(0)\n ROOT r = f32[] all-reduce(x), to_apply=add }"
    form = "((f32[]), f32[], s32[])"
    first = f"""
      x = f32[] parameter(0)
      s = {form} async-start(x), calls=reduce
      t = token[] after-all(), control-predecessors={{s}}
      r = (f32[], u32[], token[]) recv(t), channel_id=1
      got = (f32[], token[]) recv-done(r), channel_id=1
      done = f32[] async-done(s), control-predecessors={{got}}
      ROOT all = (f32[], (f32[], token[])) tuple(done, got)"""
    second = f"""
      x = f32[] parameter(0)
      t = token[] after-all()
      send = (f32[], u32[], token[]) send(x, t), channel_id=1
      sent = token[] send-done(send), channel_id=1
      s = {form} async-start(x), calls=reduce, control-predecessors={{sent}}
      ROOT done = f32[] async-done(s)"""
    exe = executable(program(first, wrapped), program(second, wrapped))
    assert lists(exe.run([[np.float32(1)], [np.float32(2)]])) == [[3, [2, None]], 3]


def test_a_collective_in_the_short_form() -> None:
    text = program(
        """
      p = f32[4] parameter(0)
      s = ((f32[4]), f32[2]) reduce-scatter-start(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add
      ROOT d = f32[2] reduce-scatter-done(s)""",
        ADD,
    )
    arguments = [[f32([1, 2, 3, 4])], [f32([10, 20, 30, 40])]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[11, 22], [33, 44]]


@pytest.mark.parametrize("index", ["", ", cross_program_prefetch_index=0"])
def test_copy_start_and_done(index: str) -> None:
    text = program(
        P
        + f"""
      s = (f32[2]{{0:S(1)}}, f32[2]{{0}}, u32[]) copy-start(p){index}
      ROOT d = f32[2] copy-done(s)"""
    )
    assert evaluate(text, f32([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("ROOT s = (f32[2], f32[2]) async-start(p), calls=double", "async-start.shape-form"),
        ("ROOT s = ((f32[2]), f32[]) async-start(p), calls=double", "async-start.result"),
        ("ROOT s = ((f32[3]), f32[2]) async-start(p), calls=double", "async-start.operands"),
        ("ROOT s = ((f32[2], f32[2]), f32[2]) async-start(p, p), calls=double", "async-start.arguments"),
        (
            f"s = {FORM} async-start(p), calls=double\n ROOT d = f32[] async-done(s)",
            "instruction.shape-matches",
        ),
        (
            f"s = {FORM} async-start(p), calls=double\n ROOT d = ((f32[2]), f32[2]) async-update(s)",
            "async-update.shape",
        ),
        ("ROOT s = (f32[2], f32[3], u32[]) copy-start(p)", "copy-start.shape-form"),
        ("ROOT s = f32[2] copy-start(p)", "copy-start.shape-form"),
        ("ROOT d = f32[2] copy-done(p)", "copy-done.operand-form"),
    ],
)
def test_what_is_refused(body: str, rule: str) -> None:
    assert refused(program(P + body, COMPUTATIONS)).rule == rule


@pytest.mark.parametrize("opcode", ["async-update", "async-done"])
def test_something_that_no_async_start_gives(opcode: str) -> None:
    from hloom.errors import ShapeError
    from hloom.ir.operation import REGISTRY
    from hloom.shape.shape import Shape

    with pytest.raises(ShapeError) as caught:
        REGISTRY[opcode]().infer(Shape.parse("f32[2]"))
    assert caught.value.rule == f"{opcode}.shape-form"
