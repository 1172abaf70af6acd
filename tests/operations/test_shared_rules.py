"""Rules that many operations share are broken for each: a tuple for an array, types that do not match."""

from __future__ import annotations

import pytest

from hloom.ir.operation import REGISTRY
from hloom.shape.element_type import ElementType
from tests.evaluation import refused
from tests.one_operation import refusal
from tests.reducers import binary
from tests.rule_names import UNREACHABLE, rules_of_operations

ATTRIBUTES = {
    "compare": "direction=EQ",
    "reduce-precision": "exponent_bits=4, mantissa_bits=4",
    "all-gather": "dimensions={0}, replica_groups={{0,1}}",
    "all-gather-start": "dimensions={0}, replica_groups={{0,1}}",
    "all-reduce": "replica_groups={{0,1}}, to_apply=f",
    "all-reduce-start": "replica_groups={{0,1}}, to_apply=f",
    "reduce-scatter": "dimensions={0}, replica_groups={{0,1}}, to_apply=f",
    "ragged-all-to-all": "replica_groups={{0,1}}",
}
STATED = {
    **dict.fromkeys(("convert", "bitcast-convert", "bitcast", "stochastic-convert"), "f32[2]"),
    "all-gather-start": "(f32[2], f32[4])",
}
"""The result shapes of operations for which they are stated."""


def operands_of(opcode: str, shape: str) -> list[str]:
    """One shape for every operand."""
    return [shape for _ in REGISTRY[opcode].operand_names]


def broken(what: str) -> list[str]:
    """The operations with a rule of this name."""
    found = [rule for rule in rules_of_operations() if rule.endswith("." + what) and rule not in UNREACHABLE]
    return sorted(rule.partition(".")[0] for rule in found if rule.partition(".")[0] in REGISTRY)


def accepted(opcode: str) -> list[ElementType]:
    """Element types that an elementwise operation takes, floats last."""
    types = getattr(REGISTRY[opcode], "accepts", ())
    return sorted(types, key=lambda t: (t.is_floating, t.number))


def rule(opcode: str, shapes: list[str]) -> str:
    """The rule by which an operation refuses operands."""
    return refusal(opcode, *shapes, attributes=ATTRIBUTES.get(opcode, ""), result=STATED.get(opcode, "")).rule


@pytest.mark.parametrize("opcode", [o for o in broken("operand-arrays") if not REGISTRY[o].roles])
def test_operands_are_arrays(opcode: str) -> None:
    assert rule(opcode, operands_of(opcode, "(f32[2])")) == f"{opcode}.operand-arrays"


@pytest.mark.parametrize("opcode", [o for o in broken("same-element-type") if REGISTRY[o].elementwise])
def test_operands_have_one_element_type(opcode: str) -> None:
    """Floats of two types may be mixed, so one is no float."""
    types = accepted(opcode)
    shapes = operands_of(opcode, f"{types[-1].name}[2]")
    shapes[-1] = f"{types[0].name}[2]"
    if opcode == "select":
        shapes[0] = "pred[2]"
    assert rule(opcode, shapes) == f"{opcode}.same-element-type"


@pytest.mark.parametrize("opcode", [o for o in broken("element-type") if REGISTRY[o].elementwise])
def test_operands_have_an_accepted_element_type(opcode: str) -> None:
    other = next(t for t in ElementType.all() if t.is_array and t not in accepted(opcode))
    assert rule(opcode, operands_of(opcode, f"{other.name}[2]")) == f"{opcode}.element-type"


@pytest.mark.parametrize("opcode", [o for o in broken("same-dimensions") if accepted(o)])
def test_operands_have_the_same_dimensions(opcode: str) -> None:
    kind = accepted(opcode)[0].name
    shapes = operands_of(opcode, f"{kind}[2]")
    shapes[-1] = f"{kind}[3]"
    if opcode == "select":
        shapes[0] = "pred[2]"
    assert rule(opcode, shapes) == f"{opcode}.same-dimensions"


COMPUTATION = binary("add", name="f")


@pytest.mark.parametrize(
    ("broken_rule", "text"),
    [
        ("all-reduce.operand-arrays", "x = (f32[2]) parameter(0)\n  ROOT r = all-reduce(x), to_apply=f"),
        (
            "all-reduce-start.operand-arrays",
            "x = (f32[2]) parameter(0)\n  ROOT r = f32[2] all-reduce-start(x), to_apply=f",
        ),
        (
            "reduce-scatter.operand-arrays",
            "x = (f32[2]) parameter(0)\n"
            "  ROOT r = f32[1] reduce-scatter(x), dimensions={0}, replica_groups={{0,1}}, to_apply=f",
        ),
        (
            "all-gather-start.dimension-range",
            "x = f32[2] parameter(0)\n"
            "  ROOT r = (f32[2], f32[4]) all-gather-start(x), dimensions={1}, replica_groups={{0,1}}",
        ),
        (
            "dynamic-reshape.operand-array",
            "x = (f32[2]) parameter(0)\n  n = s32[] parameter(1)\n  ROOT r = f32[<=2] dynamic-reshape(x, n)",
        ),
    ],
)
def test_operands_of_collectives_and_reshapes(broken_rule: str, text: str) -> None:
    program = f"HloModule m\n{COMPUTATION}ENTRY e {{\n  {text}\n}}"
    assert refused(program).rule == broken_rule
