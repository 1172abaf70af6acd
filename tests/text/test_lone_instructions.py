"""A single instruction as a whole text: operands and callees that are only named."""

from __future__ import annotations

import pytest

from hloom import HloError, HloModule

ADD = """add.936 = bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)}
          add(exponential.183, broadcast.3115)"""
FUSION = """%fusion.3 = bf16[32,32,4096]{2,1,0:T(8,128)(2,1)S(1)}
            fusion(bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)} %fusion.32),
            kind=kCustom, calls=%all-reduce-scatter.3"""


@pytest.mark.parametrize(
    "text",
    [
        ADD,
        FUSION,
        "r = f32[2] sine(a)",
        "f32[2,3]{0,1} multiply(a, b)",
        "r = f32[2] add(a, a)",
        "r = f32[3] call(f32[4] a, s32[] n), to_apply=f",
        "r = (f32[3], s32[]) fusion(f32[4] a), kind=kLoop, calls=%fused",
    ],
)
def test_it_is_a_module_that_can_be_printed_and_read(text: str) -> None:
    module = HloModule.from_text(text)
    module.verify()
    assert HloModule.from_text(module.to_text()).to_text() == module.to_text()


def test_operands_have_the_shape_of_the_result() -> None:
    root = HloModule.from_text(ADD).entry.root
    assert [operand.name for operand in root.operands] == ["exponential.183", "broadcast.3115"]
    assert [str(operand.shape) for operand in root.operands] == [str(root.shape)] * 2


def test_a_callee_that_is_not_there_is_a_custom_call_of_its_name() -> None:
    module = HloModule.from_text(FUSION)
    (callee,) = module.entry.root.called_computations
    assert callee.name == "all-reduce-scatter.3"
    assert str(callee.program_shape.parameters[0]) == "bf16[32,32,8192]{2,1,0:T(8,128)(2,1)S(1)}"
    assert 'custom_call_target="all-reduce-scatter.3"' in module.to_text()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("r = pred[2] compare(a, b), direction=LT", "text.operand"),  # operands of any element type
        ("r = pred[2] is-finite(a)", "text.operand"),
        ("r = f32[2] convert(a)", "text.operand"),
        ("r = f32[2] abs(a)", "text.operand"),  # of a real or a complex operand
        ("r = f32[2] clamp(a, b, c)", "text.operand"),  # bounds may be scalars
        ("r = f32[2] select(p, a, b)", "text.operand"),
        ("r = f32[2] reverse(a), dimensions={0}", "text.operand"),
        ("r = add(a, b)", "text.operand"),
        ("r = f32[2] add(a, sine(b))", "text.operand"),
        ("r = f32[3] reduce(f32[3,4] a, f32[] b), dimensions={1}, to_apply=sum", "text.computation"),
        ("r = call(f32[4] a), to_apply=f", "text.computation"),
        ("HloModule m\nENTRY e { ROOT r = f32[2] add(a, b) }", "text.operand"),
        ("HloModule m\nENTRY e { a = f32[2] parameter(0)\nROOT r = f32[2] fusion(a), kind=kLoop, calls=x }",
         "text.computation"),
    ],
)  # fmt: skip
def test_what_does_not_follow_is_refused(text: str, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        HloModule.from_text(text)
    assert caught.value.rule == rule
