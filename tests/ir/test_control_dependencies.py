"""Control dependencies of instructions that go, or that others take the place of."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from tests.evaluation import parse

TEXT = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  a = f32[] negate(x)
  b = f32[] abs(x), control-predecessors={a}
  c = f32[] exponential(x), control-predecessors={b}
  ROOT t = (f32[], f32[], f32[]) tuple(a, b, c)
}"""


def named() -> dict[str, HloInstruction]:
    return {i.name: i for i in parse(TEXT).entry.instructions}


def test_what_an_instruction_stood_between_keeps_its_order() -> None:
    i = named()
    i["b"].bypass_control_dependencies()
    assert i["c"].control_predecessors == (i["a"],)
    assert i["a"].control_successors == (i["c"],)
    assert not i["b"].control_predecessors
    assert not i["b"].control_successors


def test_a_new_instruction_takes_over_the_order() -> None:
    i = named()
    i["b"].hand_over_control_dependencies(i["t"])
    assert i["t"].control_predecessors == (i["a"],)
    assert set(i["c"].control_predecessors) == {i["a"]}  # t uses c, and cannot come before it


def test_an_older_instruction_does_not_come_after_what_uses_it() -> None:
    i = named()
    i["b"].hand_over_control_dependencies(i["x"])
    assert not i["x"].control_predecessors
    assert i["x"].control_successors == (i["c"],)


def test_dependence_by_data_and_by_control() -> None:
    i = named()
    assert i["c"].depends_on(i["a"])
    assert i["t"].depends_on(i["x"])
    assert not i["a"].depends_on(i["b"])
    assert not i["a"].depends_on(i["a"])


def test_dependence_is_found_without_walking_every_path() -> None:
    """The paths from the end to the start are 2**200; each instruction is visited once."""
    steps = "\n".join(f"a{n} = f32[] add(a{n - 1}, a{n - 1})" for n in range(1, 201))
    text = f"a0 = f32[] parameter(0)\nb = f32[] parameter(1)\n{steps}\nROOT r = f32[] add(a200, b)"
    i = {i.name: i for i in parse(text).entry.instructions}
    assert i["a200"].depends_on(i["a0"])
    assert not i["a200"].depends_on(i["b"])
