"""Kernel plans: kind, hero, epilogue, space, in-place operands, without generating code."""

from __future__ import annotations

import pytest

from hloom.codegen.elements import element_rule, leaf_rule
from hloom.codegen.elementwise.registry import lowering
from hloom.codegen.target import host
from hloom.cpu import emitters  # noqa: F401  (registers the kernels)
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import KERNELS
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.plan.kernel import KernelKind, KernelPlan, plan_kernel, plan_program, plan_report
from hloom.plan.registry import Kernels
from tests.evaluation import parse
from tests.reducers import ADD


def plan_of_root(body: str, *, optimize: bool = False) -> KernelPlan:
    module = parse(f"HloModule m\n{ADD}\nENTRY e {{\n{body}\n}}")
    if optimize:
        CPU_PIPELINE.run(module)
    return plan_kernel(module.entry.root, KERNELS, host())


@pytest.mark.parametrize(
    ("body", "kind", "hero"),
    [
        ("x = f32[8] parameter(0)\n ROOT r = f32[8] tanh(x)", KernelKind.LOOP, "tanh"),
        ("x = f32[8] parameter(0)\n ROOT r = f32[2,4] reshape(x)", KernelKind.NONE, "reshape"),
        ("x = f32[] parameter(0)\n ROOT r = f32[] tanh(x)", KernelKind.SCALAR, "tanh"),
        (
            "x = f32[4,4] parameter(0)\n ROOT r = f32[4,4] dot(x, x), lhs_contracting_dims={1}, "
            "rhs_contracting_dims={0}",
            KernelKind.KERNEL,
            "dot",
        ),
        (
            "x = f32[4] parameter(0)\n z = f32[] constant(0)\n "
            "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add",
            KernelKind.KERNEL,
            "reduce",
        ),
    ],
)
def test_the_kind_of_a_kernel(body: str, kind: KernelKind, hero: str) -> None:
    plan = plan_of_root(body)
    assert (plan.kind, plan.hero.opcode) == (kind, hero)


def test_what_is_fused_behind_a_product_is_its_epilogue() -> None:
    plan = plan_of_root(
        "x = f32[64,64] parameter(0)\n w = f32[64,64] parameter(1)\n b = f32[64] parameter(2)\n"
        "d = f32[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "s = f32[64,64] broadcast(b), dimensions={1}\n ROOT r = f32[64,64] add(d, s)",
        optimize=True,
    )
    assert plan.hero.opcode == "dot"
    assert [m.opcode for m in plan.epilogue] == ["add"]
    assert "hero dot; epilogue add" in str(plan)


def test_an_elementwise_kernel_may_overwrite_what_it_reads_where_it_writes() -> None:
    plan = plan_of_root(
        "x = f32[4,4] parameter(0)\n y = f32[4,4] parameter(1)\n"
        "t = f32[4,4] transpose(y), dimensions={1,0}\n"
        "n = f32[4,4] negate(x)\n ROOT r = f32[4,4] add(n, t)",
        optimize=True,
    )
    names = [plan.instruction.operands[n].name for n in plan.in_place]
    assert names == ["x"]


def test_a_program_is_planned_with_its_loops() -> None:
    module = parse(
        "HloModule m\n"
        "more { s = (s32[], f32[4]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " n = s32[] constant(3)\n ROOT l = pred[] compare(i, n), direction=LT }\n"
        "step { s = (s32[], f32[4]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n"
        " x = f32[4] get-tuple-element(s), index=1\n one = s32[] constant(1)\n j = s32[] add(i, one)\n"
        " y = f32[4] sine(x)\n ROOT t = (s32[], f32[4]) tuple(j, y) }\n"
        "ENTRY e { z = s32[] constant(0)\n x = f32[4] parameter(0)\n t = (s32[], f32[4]) tuple(z, x)\n"
        " ROOT w = (s32[], f32[4]) while(t), condition=more, body=step }"
    )
    plans = plan_program(module, KERNELS, host())
    assert set(plans) == set(module.instructions())
    assert plan_report(list(plans.values())).splitlines() == [
        "w: control flow",
        "l: scalar code",
        "j: scalar code",
        "y: loop; space 4; in place 0",
    ]


def test_a_second_kernel_for_an_operation_is_refused() -> None:
    kernels: Kernels[HloModule, str] = Kernels("toy")
    kernels.register("dot")(lambda program, plan: None)
    with pytest.raises(HloError) as caught:
        kernels.register("dot")(lambda program, plan: None)
    assert caught.value.rule == "plan.kernel-registered-twice"


def test_a_second_lowering_or_element_rule_is_refused() -> None:
    for register in (lowering("add"), element_rule("dot"), leaf_rule("reduce")):
        with pytest.raises(HloError) as caught:
            register(lambda *arguments: None)  # type: ignore[arg-type,return-value]
        assert caught.value.rule == "codegen.registered-twice"


def test_an_element_rule_for_a_declared_operation_is_refused() -> None:
    with pytest.raises(HloError) as caught:
        element_rule("pad")
    assert caught.value.rule == "codegen.registered-twice"
