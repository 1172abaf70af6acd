"""Rules that many operations share, broken for each of them."""

from __future__ import annotations

import pytest

import hloom.operations  # noqa: F401
from evaluation import refused
from hloom.builder.builder import make_operation
from hloom.errors import HloError
from hloom.ir.cursor import Cursor
from hloom.ir.operation import REGISTRY, Operation, ProgramShape
from hloom.shape.shape import Shape

STATED = [
    opcode for opcode, cls in sorted(REGISTRY.items()) if not cls.infers and cls.infer is Operation.infer
]  # fmt: skip


@pytest.mark.parametrize("opcode", STATED)
def test_a_shape_that_does_not_follow_must_be_stated(opcode: str) -> None:
    cls = REGISTRY[opcode]
    operation = object.__new__(cls)
    scalar = Shape.parse("f32[]")
    operands = [scalar] * (cls.arity() or 1)
    programs = {"computations": (ProgramShape((scalar,), scalar),)} if cls.roles else {}
    with pytest.raises(HloError) as caught:
        operation.infer(*operands, **programs)
    assert caught.value.rule == f"{opcode}.shape-stated"


ADD = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"
GROUPED = {
    "all-gather": "f32[4] all-gather(x), dimensions={0}",
    "all-gather-start": "(f32[2], f32[4]) all-gather-start(x), dimensions={0}",
    "all-reduce": "f32[2] all-reduce(x), to_apply=add",
    "all-reduce-start": "f32[2] all-reduce-start(x), to_apply=add",
    "all-to-all": "f32[2] all-to-all(x), dimensions={0}",
    "collective-broadcast": "f32[2] collective-broadcast(x)",
    "ragged-all-to-all": "f32[2] ragged-all-to-all(x, x, i, i, i, i)",
    "reduce-scatter": "f32[1] reduce-scatter(x), dimensions={0}, to_apply=add",
}
WITH_GLOBAL_IDS = [opcode for opcode in GROUPED if hasattr(REGISTRY[opcode], "use_global_device_ids")]
WITH_EQUAL_GROUPS = [opcode for opcode in GROUPED if getattr(REGISTRY[opcode], "equal_groups", True)]


def rule_of(opcode: str, groups: str, more: str = "") -> str:
    body = f"x = f32[2] parameter(0)\ni = s64[2] parameter(1)\nROOT y = {GROUPED[opcode]}, {groups}{more}"
    return refused(f"{ADD}ENTRY e {{\n{body}\n}}").rule


@pytest.mark.parametrize("opcode", GROUPED)
@pytest.mark.parametrize("groups", ["{{0,0}}", "{{0,1},{1,2}}", "{{-1,0}}"])
def test_a_device_is_in_one_group(opcode: str, groups: str) -> None:
    assert rule_of(opcode, f"replica_groups={groups}") == f"{opcode}.replica-groups-distinct"


@pytest.mark.parametrize("opcode", WITH_EQUAL_GROUPS)
def test_groups_have_one_size(opcode: str) -> None:
    assert rule_of(opcode, "replica_groups={{0,1},{2}}") == f"{opcode}.replica-groups-equal"


@pytest.mark.parametrize("opcode", WITH_GLOBAL_IDS)
def test_global_ids_need_a_channel_and_groups(opcode: str) -> None:
    flag = ", use_global_device_ids=true"
    assert rule_of(opcode, "replica_groups={{0,1}}", flag) == f"{opcode}.global-ids-channel"
    assert rule_of(opcode, "replica_groups={}, channel_id=1", flag) == f"{opcode}.global-ids-groups"


@pytest.mark.parametrize(
    ("opcode", "text"),
    [
        ("all-gather-start", "(f32[2], f32[6]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}"),
        ("all-gather", "f32[6] all-gather(x), dimensions={0}, replica_groups={{0,1}}"),
    ],
)
def test_groups_have_the_size_that_the_shapes_want(opcode: str, text: str) -> None:
    assert refused(f"x = f32[2] parameter(0)\nROOT y = {text}").rule == f"{opcode}.group-size"


@pytest.mark.parametrize("opcode", ["all-reduce", "all-reduce-start"])
def test_a_reducer_takes_two_scalars(opcode: str) -> None:
    one = "neg {\n a = f32[] parameter(0)\n ROOT s = f32[] negate(a)\n}\n"
    body = f"x = f32[2] parameter(0)\nROOT y = f32[2] {opcode}(x), replica_groups={{}}, to_apply=neg"
    assert refused(f"{one}ENTRY e {{\n{body}\n}}").rule == f"{opcode}.reducer"


def test_a_parameter_without_an_argument_and_an_operation_without_a_value() -> None:
    with pytest.raises(HloError) as caught:
        make_operation("parameter", {"parameter_number": 0}).evaluate(None)  # type: ignore[arg-type]
    assert caught.value.rule == "evaluate.argument-missing"
    with pytest.raises(HloError) as caught:
        Operation.evaluate(make_operation("add", {}), None)  # type: ignore[arg-type]
    assert caught.value.rule == "evaluate.no-value"


def test_the_value_of_a_constant_is_no_attribute() -> None:
    text = "ROOT c = f32[] constant(1), literal=2"
    assert refused(text).rule.startswith("text.")
    (attribute,) = REGISTRY["constant"].attributes
    with pytest.raises(HloError) as caught:
        attribute.codec.parse(Cursor("1"))
    assert caught.value.rule == "constant.literal-place"
