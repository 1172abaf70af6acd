"""Keys of kernel plans: what equal plans emit, and what makes plans differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloom.codegen.target import Target
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import KERNELS, emit_program
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Call
from hloom.operations.structure import Parameter, Tuple
from hloom.plan.kernel import KernelKind, KernelPlan, plan_program
from hloom.shape.shape import Shape
from tests import hlo_file
from tests.evaluation import parse

FILES = sorted((Path(__file__).parents[1] / "hlo/kernels").glob("*.hlo"))
TARGET = Target.named("x86_64-linux-gnu", "x86-64-v4")


def twice(module: HloModule) -> HloModule:
    """Let the entry run the program on two sets of arguments."""
    once = module.entry
    entry = HloComputation("twice")
    calls: list[HloInstruction] = []
    for _ in range(2):
        operands: list[HloInstruction] = []
        for p in once.parameters:
            number = len(entry.instructions)
            operands.append(
                entry.add(HloInstruction(f"p{number}", Parameter(parameter_number=number), p.shape))
            )
        calls.append(HloInstruction(f"call{len(calls)}", Call(), once.root.shape, operands, [once]))
    for call in calls:
        entry.add(call)
    shape = Shape.tuple_([call.shape for call in calls])
    entry.root = entry.add(HloInstruction("both", Tuple(), shape, calls))
    module.add(entry, entry=True)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_equal_plans_emit_equal_kernels(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reused = 0
    for section in hlo_file.sections(path.read_text()):
        module = optimize(twice(section.module()))
        got = emit_program(module, TARGET)
        with monkeypatch.context() as patched:
            patched.setattr(KernelPlan, "key", property(lambda plan: plan))
            wanted = emit_program(module, TARGET)
        assert got.text == wanted.text, section.text
        plans = [p for p in plan_program(module, KERNELS, TARGET).values() if p.kind is KernelKind.KERNEL]
        reused += len(plans) - len({p.key for p in plans})
    assert reused


def key(text: str) -> object:
    *_, plan = (
        p for p in plan_program(parse(text), KERNELS, TARGET).values() if p.kind is not KernelKind.NONE
    )
    return plan.key


SUM = "ENTRY e { x = f32[8] parameter(0)\n y = f32[8] parameter(1)\n ROOT r = f32[8] add(x, y) }"


def test_names_are_no_part_of_a_key() -> None:
    assert key(SUM) == key(SUM.replace("x", "a").replace("ROOT r", "ROOT total"))


@pytest.mark.parametrize(
    ("old", "new"),
    [("add", "subtract"), ("f32", "f64"), ("[8]", "[4,2]"), ("add(x, y)", "add(x, x)"),
     ("y = f32[8] parameter(1)", "y = f32[8] constant({1,2,3,4,5,6,7,8})")],
)  # fmt: skip
def test_operations_shapes_and_equal_operands_are_part_of_a_key(old: str, new: str) -> None:
    assert key(SUM) != key(SUM.replace(old, new))


SORT = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  sorted = (f32[8], f32[8]) sort(x, y), dimensions={0}, to_apply=less
  ROOT r = f32[8] get-tuple-element(sorted), index=0
}"""


def test_the_results_that_are_used_are_part_of_a_key() -> None:
    """A kernel stores no others."""
    assert key(SORT) != key(SORT.replace("index=0", "index=1"))


@pytest.mark.parametrize("computed", ["iota(), iota_dimension=0", "constant({1, 2, 3, 4, 5, 6, 7, 8})"])
def test_operands_whose_values_a_kernel_computes_are_part_of_a_key(computed: str) -> None:
    assert key(SORT) != key(SORT.replace("y = f32[8] parameter(1)", f"y = f32[8] {computed}"))


CALL = 'ENTRY e { x = f32[8] parameter(0)\n ROOT r = f32[8] custom-call(x), custom_call_target="f"%s }'


@pytest.mark.parametrize("stated", [', backend_config="%s"', ', frontend_attributes={a="%s"}'])
def test_the_configuration_of_a_custom_call_is_part_of_its_key(stated: str) -> None:
    assert key(CALL % (stated % "b")) == key(CALL % (stated % "b"))
    assert key(CALL % (stated % "b")) != key(CALL % (stated % "c"))


def test_the_configuration_of_other_operations_is_no_part_of_a_key() -> None:
    assert key(SUM) == key(SUM.replace("add(x, y)", 'add(x, y), backend_config="b"'))
