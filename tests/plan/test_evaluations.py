"""The elements that kernels evaluate: counted, bounded by fusion, shown by plans."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

import hloom
from hloom.codegen.target import host
from hloom.cpu import emitters  # noqa: F401  (registers the kernels)
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import KERNELS, emit_program
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Fusion as FusionOperation
from hloom.passes.fusion.fusion import InstructionFusion
from hloom.passes.fusion.fusion_limiter import FusionLimiter
from hloom.plan.evaluations import evaluated_elements
from hloom.plan.kernel import plan_program
from hloom.plan.parts import kernel_parts
from tests.evaluation import parse

N = 48
FUSION = InstructionFusion()


def _program(lines: list[str], result: str) -> str:
    head = [f"v0 = f32[{N}] parameter(0)", "z = f32[] constant(0)", "h = f32[] constant(0.125)"]
    head.append(f"hb = f32[{N}] broadcast(h), dimensions={{}}")
    return (
        "HloModule m\nENTRY e {\n" + "\n".join([*head, *lines, f"ROOT r = f32[{N}] copy({result})"]) + "\n}"
    )


def _shifted(number: int, source: str, draw: random.Random) -> tuple[list[str], list[str]]:
    """Return instructions that read a value at other places, and their results."""
    low = draw.randrange(1, 4)
    inner, name = N - 2 * low, f"k{number}_"
    match draw.choice(["pads", "rolls", "reverse", "dynamic", "windows"]):
        case "pads":
            lines = [f"{name}c = f32[{inner}] slice({source}), slice={{[{low}:{N - low}]}}"]
            names = [f"{name}{q}" for q in range(3)]
            pads = (f"0_{2 * low}", f"{2 * low}_0", f"{low}_{low}")
            pairs = zip(names, pads, strict=True)
            return [*lines, *(f"{n} = f32[{N}] pad({name}c, z), padding={p}" for n, p in pairs)], names
        case "rolls":
            lines = [
                f"{name}a = f32[{low}] slice({source}), slice={{[0:{low}]}}",
                f"{name}b = f32[{N - low}] slice({source}), slice={{[{low}:{N}]}}",
                f"{name}0 = f32[{N}] concatenate({name}b, {name}a), dimensions={{0}}",
                f"{name}1 = f32[{N}] pad({name}b, z), padding={low}_0",
            ]
            return lines, [f"{name}0", f"{name}1"]
        case "reverse":
            return [f"{name}0 = f32[{N}] reverse({source}), dimensions={{0}}"], [f"{name}0"]
        case "dynamic":
            lines = [
                f"{name}s = s32[] constant({low})",
                f"{name}d = f32[{inner}] dynamic-slice({source}, {name}s), dynamic_slice_sizes={{{inner}}}",
                f"{name}0 = f32[{N}] pad({name}d, z), padding=0_{2 * low}",
                f"{name}1 = f32[{N}] pad({name}d, z), padding={low}_{low}",
            ]
            return lines, [f"{name}0", f"{name}1"]
        case _:
            lines = [f"{name}w = f32[{inner}] slice({source}), slice={{[{low}:{N - low}]}}"]
            lines += [f"{name}{q} = f32[{N}] pad({name}w, z), padding={q}_{2 * low - q}" for q in range(2)]
            return lines, [f"{name}0", f"{name}1"]


def stepper(steps: int, seed: int) -> str:
    """Return a time stepper, written out: each step reads the last one at several offsets."""
    draw = random.Random(seed)
    lines: list[str] = []
    for k in range(steps):
        more, names = _shifted(k, f"v{k}", draw)
        lines += more
        total = f"v{k}"
        for q, name in enumerate(names):
            lines.append(f"t{k}_{q} = f32[{N}] {draw.choice(['add', 'subtract'])}({total}, {name})")
            total = f"t{k}_{q}"
        lines.append(f"v{k + 1} = f32[{N}] {draw.choice(['multiply', 'maximum'])}({total}, hb)")
    return _program(lines, f"v{steps}")


def optimized(text: str) -> HloModule:
    """A module after all passes."""
    module = parse(text)
    CPU_PIPELINE.run(module)
    return module


def evaluated(module: HloModule) -> list[int]:
    """Return the number of elements that each kernel evaluates for a result."""
    parts = [kernel_parts(i) for i in module.entry.instructions if isinstance(i.operation, FusionOperation)]
    return [sum(evaluated_elements(p.roots, p.members).values()) for p in parts]


def emitted(module: HloModule) -> int:
    """Return the number of LLVM instructions of a program."""
    functions = emit_program(module, host()).module.functions.values()
    return sum(len(block.instructions) for function in functions for block in function.blocks)


@pytest.mark.parametrize("seed", range(6))
def test_written_out_time_steppers_have_code_proportional_to_their_steps(seed: int) -> None:
    counts = [emitted(optimized(stepper(steps, seed))) for steps in (10, 20, 40)]
    assert counts[2] - counts[1] <= 2.5 * (counts[1] - counts[0]) + 100, counts
    assert max(evaluated(optimized(stepper(40, seed)))) <= FUSION.most_evaluated


@pytest.mark.parametrize("seed", range(4))
def test_written_out_time_steppers_have_the_evaluators_values(seed: int) -> None:
    module = parse(stepper(6, seed))
    x = np.random.default_rng(seed).integers(-8, 8, N).astype(np.float32)
    assert np.array_equal(
        hloom.compile(module, backend="cpu")(x), hloom.compile(module, backend="evaluator")(x)
    )


def test_plans_stay_below_the_limit_of_work() -> None:
    for seed in range(4):
        module = optimized(stepper(12, seed))
        for plan in plan_program(module, KERNELS, host()).values():
            assert plan.recomputation <= FUSION.most_work, str(plan)


@pytest.mark.parametrize(("operations", "kernels"), [(2, 1), (24, 2)])
def test_a_value_read_twice_is_computed_twice_if_that_costs_less_than_storing_it(
    operations: int, kernels: int
) -> None:
    lines = [f"v{k + 1} = f32[{N}] add(v{k}, hb)" for k in range(operations)]
    lines.append(f"a = f32[{N}] reverse(v{operations}), dimensions={{0}}")
    lines.append(f"b = f32[{N}] subtract(v{operations}, a)")
    module = parse(_program(lines, "b"))
    InstructionFusion().run(module)
    assert sum(isinstance(i.operation, FusionOperation) for i in module.entry.instructions) == kernels


def test_the_text_of_a_plan_shows_how_often_values_are_computed() -> None:
    lines = [f"n = f32[{N}] multiply(v0, v0)", f"a = f32[{N}] reverse(n), dimensions={{0}}"]
    lines.append(f"b = f32[{N}] add(n, a)")
    module = optimized(_program(lines, "b"))
    texts = [str(plan) for plan in plan_program(module, KERNELS, host()).values()]
    assert any(text.endswith("recomputation 1.5") for text in texts), texts


@pytest.mark.parametrize("operation", ["multiply", "divide"])
def test_a_long_chain_is_divided_where_one_value_lives(operation: str) -> None:
    lines = [f"v{k + 1} = f32[{N}] {operation}(v{k}, v0)" for k in range(1000)]
    module = optimized(_program(lines, "v1000"))
    counts = evaluated(module)
    assert 4 <= len(counts) <= 8 and max(counts) <= FUSION.most_evaluated
    assert all(i.shape.is_array for i in module.entry.instructions)  # one result each


def test_deep_expressions_need_no_deep_stack() -> None:
    lines = [f"v{k + 1} = f32[{N}] add(v{k}, v0)" for k in range(3000)]
    for k in range(3000, 3400, 2):
        lines.append(f"v{k + 1} = f32[{N - 1}] slice(v{k}), slice={{[1:{N}]}}")
        lines.append(f"v{k + 2} = f32[{N}] pad(v{k + 1}, z), padding=0_1")
    limit = sys.getrecursionlimit()
    program = hloom.compile(parse(_program(lines, "v3400")), backend="cpu")
    assert sys.getrecursionlimit() == limit
    assert program(np.ones(N, np.float32))[0] == 0


def test_a_fusion_that_evaluates_too_many_elements_is_divided() -> None:
    module = parse(stepper(6, 1))
    InstructionFusion(most_repeated=1e9, most_work=1e9, most_evaluated=10**6).run(module)
    before = evaluated(module)
    assert not FusionLimiter(most_evaluated=max(before)).run(module)
    assert FusionLimiter(most_evaluated=max(before) - 1).run(module)
    module.verify()
    assert len(evaluated(module)) < len(before)


def test_loops_inside_each_other_have_a_limit() -> None:
    depth = 150
    lines = ["HloModule m", "branch0 { x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x) }"]
    for k in range(depth):
        lines.append(
            f"other{k + 1} {{ x = f32[4] parameter(0)\n ROOT r = f32[4] abs(x) }}\n"
            f"branch{k + 1} {{ x = f32[4] parameter(0)\n p = pred[] constant(false)\n"
            f" ROOT r = f32[4] conditional(p, x, x), true_computation=branch{k}, "
            f"false_computation=other{k + 1} }}"
        )
    lines.append(f"ENTRY e {{ x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=branch{depth} }}")
    with pytest.raises(HloError, match="129 loops and branches") as caught:
        plan_program(parse("\n".join(lines)), KERNELS, host())
    assert caught.value.rule == "cpu.nesting-depth"
