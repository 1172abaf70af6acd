"""Programs of very many instructions: the compiler's work is proportional to their size."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom
from benchmarks.large_programs.kinds import program_text
from hloom.analysis.cost import module_cost
from hloom.codegen.target import host
from hloom.cpu import emitters  # noqa: F401  (registers emitters)
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import ENTRY, LONGEST_BLOCK, emit_program
from hloom.debug.inputs import random_arguments
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from tests.evaluation import parse
from tests.work import growth

LINEAR = 2.25
"""Growth by a factor of 2 with room for logarithms; a quadratic step doubles it at the sizes below."""


def chain(n: int) -> str:
    """A chain of additions, all of which are results."""
    lines = ["x0 = f32[4] parameter(0)", *(f"x{k + 1} = f32[4] add(x{k}, x0)" for k in range(n))]
    return _with_tuple(lines, [f"x{k + 1}" for k in range(n)])


def parameters(n: int) -> str:
    """A tuple of parameters, every one of which is copied into a result."""
    return _with_tuple([f"x{k} = f32[4] parameter({k})" for k in range(n)], [f"x{k}" for k in range(n)])


def elements(n: int) -> str:
    """The elements of one large tuple, each negated."""
    whole = f"({', '.join(['f32[4]'] * n)})"
    lines = [f"t = {whole} parameter(0)"]
    lines += [f"x{k} = f32[4] get-tuple-element(t), index={k}" for k in range(n)]
    return _with_tuple(
        [*lines, *(f"y{k} = f32[4] negate(x{k})" for k in range(n))], [f"y{k}" for k in range(n)]
    )


def _with_tuple(lines: list[str], results: list[str]) -> str:
    root = f"ROOT r = ({', '.join(['f32[4]'] * len(results))}) tuple({', '.join(results)})"
    return "HloModule large\nENTRY e {\n" + "\n".join([*lines, root]) + "\n}\n"


def optimized(text: str) -> HloModule:
    """A module after all passes."""
    module = clone_module(parse(text))
    CPU_PIPELINE.run(module)
    return module


PROGRAMS = {"chain": chain, "parameters": parameters, "elements": elements}


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_take_work_proportional_to_the_size(name: str) -> None:
    def task(n: int) -> Callable[[], Any]:
        module = clone_module(parse(PROGRAMS[name](n)))
        return lambda: CPU_PIPELINE.run(module)

    assert growth(task, 300) < LINEAR


@pytest.mark.parametrize("name", PROGRAMS)
def test_assignment_and_emission_take_work_proportional_to_the_size(name: str) -> None:
    def task(n: int) -> Callable[[], Any]:
        module = optimized(PROGRAMS[name](n))
        return lambda: emit_program(module, host())

    assert growth(task, 300) < LINEAR


WRITTEN_OUT = [
    "small-dots",
    "residual-layers",
    "slice-tree",
    "loops",
    "conditionals",
    "wide-results",
    "training-loop",
]


def compiling(kind: str) -> Callable[[int], Callable[[], Any]]:
    """Everything before LLVM, for a program of a kind and a size."""

    def task(n: int) -> Callable[[], Any]:
        module = parse(program_text(kind, n))

        def compiled() -> None:
            module.verify()
            emit_program(optimize(module), host())

        return compiled

    return task


@pytest.mark.parametrize("kind", WRITTEN_OUT)
def test_compiling_takes_work_proportional_to_the_size(kind: str) -> None:
    """Programs that tracing writes out."""
    assert growth(compiling(kind), 200) < LINEAR


def test_compiling_a_loop_takes_work_proportional_to_its_state() -> None:
    """A loop over training steps: at 1,000 instructions its state has 102 arrays."""
    assert growth(compiling("training-loop"), 1000) < LINEAR


def scalars(n: int) -> str:
    """A chain of functions of a scalar, each of which arrays of many shapes are multiplied by."""
    lines, results = ["x0 = f32[] parameter(0)"], list[tuple[str, str]]()
    for k in range(n):
        shape = f"f32[{5 + k % 7}]"
        lines += [
            f"x{k + 1} = f32[] {('sine', 'negate', 'cosine')[k % 3]}(x{k})",
            f"b{k} = {shape} broadcast(x{k + 1}), dimensions={{}}",
            f"p{k} = {shape} parameter({k + 1})",
            f"y{k} = {shape} multiply(b{k}, p{k})",
        ]
        results.append((shape, f"y{k}"))
    shapes, names = zip(*results, strict=True)
    root = f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})"
    return "HloModule large\nENTRY e {\n" + "\n".join([*lines, root]) + "\n}\n"


def elements_of_steps(n: int) -> str:
    """An element of each step of a chain of functions of an array."""
    lines, names = ["x0 = f32[64] parameter(0)"], list[str]()
    for k in range(n):
        lines.append(f"x{k + 1} = f32[64] {('sine', 'negate', 'cosine')[k % 3]}(x{k})")
        lines.append(f"y{k} = f32[1] slice(x{k + 1}), slice={{[{k % 64}:{k % 64 + 1}]}}")
        lines.append(f"z{k} = f32[1] tanh(y{k})")
        names.append(f"z{k}")
    root = f"ROOT r = ({', '.join(['f32[1]'] * n)}) tuple({', '.join(names)})"
    return "HloModule large\nENTRY e {\n" + "\n".join([*lines, root]) + "\n}\n"


def updates(n: int) -> str:
    """Rows of a table changed at places that follow from each other."""
    return program_text("updates", 7 * n)


@pytest.mark.parametrize("text", [scalars, updates, elements_of_steps])
def test_kernels_do_not_compute_everything_before_them(text: Callable[[int], str]) -> None:
    """A value that many kernels need is computed once: the code is proportional to the program."""

    def size(n: int) -> int:
        return sum(f.size for f in emit_program(optimized(text(n)), host()).module.functions.values())

    assert size(160) / size(80) < LINEAR


@pytest.mark.parametrize("kind", ["elementwise-chain", "nested-calls", "deep-tuples"])
def test_nothing_recurses_over_the_depth_of_a_program(kind: str) -> None:
    """The stack stays short while a deep program is read, printed, converted, verified, copied, evaluated."""
    depth = len(inspect.stack(0))
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)  # lower than usual
    try:
        module = HloModule.from_text(program_text(kind, 4000))
        module.verify()
        assert HloModule.from_text(module.to_text()).instruction_count == module.instruction_count
        assert HloModule.from_proto(module.to_proto()).instruction_count == module.instruction_count
        hloom.compile(module.clone(), backend="evaluator")(*random_arguments(module, 0))
        module_cost(module)
    finally:
        sys.setrecursionlimit(before)


def test_blocks_of_the_entry_have_a_limited_length() -> None:
    program = emit_program(optimized(parameters(3 * LONGEST_BLOCK)), host())
    lengths = [len(block.instructions) for block in program.module.functions[ENTRY].blocks]
    assert sum(lengths) > 3 * LONGEST_BLOCK
    assert max(lengths) < LONGEST_BLOCK + 16


def test_programs_of_many_blocks_give_every_result() -> None:
    count = LONGEST_BLOCK
    run = hloom.compile(parse(parameters(count)), backend="cpu")
    x = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    assert np.array_equal(np.stack(run(*x)), x)
