"""Schedules of protos: they name the computations that have an order of execution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom import HloModule
from hloom.proto.schema.hlo_pb2 import HloModuleProto
from hloom.proto.writer import module_message
from tests import oracle
from tests.reducers import with_reducers

SCHEDULED = with_reducers("""HloModule scheduled, is_scheduled=true

fused {
  a = f32[4] parameter(0)
  b = f32[4] negate(a)
  ROOT c = f32[4] exponential(b)
}

ENTRY main {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  f = f32[4] fusion(p), kind=kLoop, calls=fused
  n = f32[4] negate(p)
  r = f32[] reduce(f, zero), dimensions={0}, to_apply=add
  ROOT t = (f32[], f32[4]) tuple(r, n)
}
""")


def renumbered(*, scheduled: tuple[str, ...]) -> HloModuleProto:
    """The program with its ids in the opposite order; the schedule names the given computations."""
    message = module_message(HloModule.from_text(SCHEDULED))
    for computation in message.computations:
        order = {i.id: (computation.id << 32) + 90 - (i.id & 0xFF) for i in computation.instructions}
        for instruction in computation.instructions:
            instruction.id = order[instruction.id]
            instruction.operand_ids[:] = [order[number] for number in instruction.operand_ids]
        computation.root_id = order[computation.root_id]
        sequence = message.schedule.sequences.get(computation.id)
        if sequence is not None and computation.name in scheduled:
            sequence.instruction_ids[:] = [order[number] for number in sequence.instruction_ids]
        elif sequence is not None:
            del message.schedule.sequences[computation.id]
    return message


@pytest.mark.parametrize("scheduled", [("main", "sum"), ("main",)])
def test_computations_without_a_schedule_have_the_order_of_their_operands(scheduled: tuple[str, ...]) -> None:
    message = renumbered(scheduled=scheduled)
    module = HloModule.from_proto(message.SerializeToString())
    module.verify()
    # The ids decide which callee is printed first.
    original = HloModule.from_text(SCHEDULED).to_text()
    assert sorted(module.to_text().split("\n\n")) == sorted(original.split("\n\n"))
    HloModule.from_text(module.to_text()).verify()
    assert HloModuleProto.FromString(module.to_proto()).schedule == message.schedule
    assert HloModule.from_proto(module.to_proto()).to_text() == module.to_text()
    assert module.clone().to_proto() == module.to_proto()
    total, negated = hloom.compile(module)(np.zeros(4, np.float32))
    assert (total, list(negated)) == (4, [0, 0, 0, 0])


def test_a_schedule_that_is_named_must_be_possible() -> None:
    message = renumbered(scheduled=("main",))
    sequence = next(iter(message.schedule.sequences.values()))
    sequence.instruction_ids[:] = list(sequence.instruction_ids)[::-1]
    with pytest.raises(Exception, match="too early") as caught:
        HloModule.from_proto(message.SerializeToString())
    assert getattr(caught.value, "rule", "") == "proto.schedule"


def optimized_programs() -> list[Any]:
    """XLA's optimized modules of a few JAX programs: fusions, loops, sorts, branches."""
    jax = pytest.importorskip("jax")
    jnp, lax = jax.numpy, jax.lax
    x = jnp.ones((4, 4), jnp.float32)
    programs = [
        (lambda a: (a.T * 2).sum(0), (x,)),
        (lambda a: jax.grad(lambda b: jnp.tanh(b @ b).sum())(a), (x,)),
        (lambda a: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), a[0], a), (x,)),
        (lambda a: (jnp.sort(a), jnp.argsort(a, 0), jnp.argmax(a, 1)), (x,)),
        (lambda a, i: lax.switch(i, [jnp.sin, jnp.cos], a).at[i].add(1.0), (x, jnp.int32(1))),
        (lambda a: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] @ a), (0, a)), (x,)),
    ]
    modules: list[Any] = []
    for function, arguments in programs:
        compiled = jax.jit(function).lower(*arguments).compile()
        modules += compiled.runtime_executable().hlo_modules()
    return modules


def test_what_xla_optimized_is_read_verified_and_printed_as_xla_prints_it() -> None:
    _hlo = pytest.importorskip("jaxlib._hlo")

    for theirs in optimized_programs():
        data = theirs.as_serialized_hlo_module_proto()
        theirs = _hlo.HloModule.from_serialized_hlo_module_proto(data)
        module = HloModule.from_proto(data)
        module.verify()
        text = theirs.to_string()
        assert oracle.as_read_by_xla(module) == text
        assert oracle.as_read_by_xla(HloModule.from_text(text)) == _hlo.hlo_module_from_text(text).to_string()
        written = HloModuleProto.FromString(module.to_proto())
        assert written.schedule == HloModuleProto.FromString(data).schedule
        assert [c.name for c in written.computations] == [c.name for c in theirs.computations()]
