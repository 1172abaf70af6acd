"""Pipelines: order by facts, running until nothing changes; and the cpu pipeline on whole programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloom.cpu.pipeline import CPU_PIPELINE, EXPANSION
from hloom.debug.error_analysis import widened
from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.facts import FACTS, FLAT
from hloom.passes.loops.while_loop_simplifier import WhileLoopSimplifier
from hloom.passes.pipeline import Pass, Pipeline
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.dead_code import DeadCodeElimination
from tests import agreement, hlo_file
from tests.evaluation import parse
from tests.pass_checks import run_truly

WORKLOADS = Path(__file__).parents[2] / "examples" / "workloads"
QUICK = (
    "argmax", "argsort_rows", "black_scholes", "cholesky_solve", "cumsum", "gather_rows", "layernorm",
        "lstm_scan",
    "mlp_train_step", "random_normal", "scatter_add", "softmax", "transformer_block", "top_k",
)  # fmt: skip
"""Workloads that the evaluator runs in little time."""
ROWS = {"black_scholes": (1048576, 4096), "layernorm": (4096, 128), "softmax": (2048, 64)}
"""A first dimension, and the one with which values are compared."""
DEEP = ("lstm_scan", "mlp_train_step", "transformer_block")
"""Workloads through which errors grow so much that in f32 the order of sums may hide a wrong one."""


class Breaks(Pass):
    """Undoes what flatten-call-graph does."""

    name = "breaks"
    breaks = frozenset((FLAT,))

    def run(self, module: HloModule) -> bool:
        return False


class Counts(Pass):
    """A pass that reports a change a given number of times."""

    name = "counts"
    times: int
    runs: list[int]

    def run(self, module: HloModule) -> bool:
        self.runs.append(1)
        return len(self.runs) <= self.times


class Settles(Counts):
    """The same; it finds nothing more after itself."""

    settles = True


def test_a_pass_stands_behind_what_it_needs() -> None:
    with pytest.raises(HloError, match="flat-call-graph") as caught:
        Pipeline([WhileLoopSimplifier()])
    assert caught.value.rule == "pipeline.needs"
    Pipeline([FlattenCallGraph(), AlgebraicSimplifier(), WhileLoopSimplifier()])
    Pipeline([WhileLoopSimplifier()], assumes=frozenset((FLAT,)))
    with pytest.raises(HloError):
        Pipeline([FlattenCallGraph(), Pipeline([Breaks()]), WhileLoopSimplifier()])


def test_a_pipeline_runs_until_nothing_changes() -> None:
    module = parse("x = f32[] parameter(0)\nROOT r = f32[] negate(x)")
    restless, settled = Counts(3, []), Settles(1, [])
    assert Pipeline([restless, settled], until_stable=True).run(module)
    assert (len(restless.runs), len(settled.runs)) == (4, 3)
    for alone, runs in ((Settles(1, []), 1), (Counts(1, []), 2)):
        Pipeline([alone], until_stable=True).run(module)
        assert len(alone.runs) == runs


ONE_ELEMENT = """
ENTRY e {
  x = f32[1] parameter(0)
  c = f32[] constant(2)
  b = f32[1] broadcast(c), dimensions={}
  ROOT r = f32[1] add(x, b)
}"""


def texts() -> Iterator[str]:
    """Programs of the tests, and one with an array of one element."""
    yield ONE_ELEMENT
    for path in sorted((Path(__file__).parents[1] / "hlo").rglob("*.hlo")):
        yield from (section.text for section in hlo_file.sections(path.read_text()))


def test_passes_change_only_what_they_declare() -> None:
    """Nothing without one of their operations, and nothing in a second run if they settle."""
    tried = skipped = 0
    for text in texts():
        try:
            module = HloModule.from_text(text)
            module.verify()
            EXPANSION.run(module)
        except HloError:
            continue
        for item in CPU_PIPELINE.flat():
            present = {type(i.operation) for i in module.instructions()}
            changed = item.run(module)
            if not any(issubclass(operation, item.of) for operation in present):
                skipped += 1
                assert not changed, (item.name, text)
            if getattr(item, "settles", False):
                tried += 1
                assert not item.run(module), (item.name, text)
    assert tried > 1000 and skipped > 1000


def test_who_looks_sees_every_change() -> None:
    seen: list[str] = []
    module = parse("x = f32[] parameter(0)\na = f32[] copy(x)\nROOT r = f32[] negate(a)")
    Pipeline([DeadCodeElimination(), AlgebraicSimplifier()]).run(
        module, lambda item, _: seen.append(item.name)
    )
    assert seen == ["algsimp"]


FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
"""Operations that no code is emitted for."""


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.hlo")), ids=lambda p: p.stem)
def test_rules_come_to_an_end(path: Path) -> None:
    module = HloModule.from_text(path.read_text())
    CallInliner().run(module)
    AlgebraicSimplifier().run(module)
    assert not AlgebraicSimplifier().run(module)


@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide", "maximum", "power"])
@pytest.mark.parametrize("kind", ["f32", "s32", "u8"])
def test_rules_come_to_an_end_among_constants(opcode: str, kind: str) -> None:
    a, b = f"a = {kind}[] constant(3)", f"b = {kind}[] constant(5)"
    lines = [a, b, f"n = {kind}[] negate(a)", f"m = {kind}[] negate(b)", f"x = {kind}[] parameter(0)"]
    values = ["a", "b", "n", "m", "x"]
    for number in range(12):
        left, right = values[-1 - number % 5], values[-2 - number % 3]
        values.append(f"w{number}")
        lines.append(f"w{number} = {kind}[] {opcode}({left}, {right})")
    module = parse("\n".join(lines) + f"\nROOT r = {kind}[] negate(w11)")
    AlgebraicSimplifier().run(module)
    assert not AlgebraicSimplifier().run(module)


def arguments(name: str) -> list[Any]:
    """The arguments of a workload."""
    found: list[Any] = []
    for seed, spec in enumerate(json.loads((WORKLOADS / "inputs.json").read_text())[name]):
        rng = np.random.default_rng(seed)
        if spec["kind"] == "int":
            values = rng.integers(spec["lo"], spec["hi"], spec["shape"])
        else:
            values = rng.normal(spec["mean"], spec["scale"], spec["shape"])
            if abs(spec["mean"]) > 2 * spec["scale"]:
                values = np.abs(values)
        found.append(np.asarray(values).astype(spec["dtype"]))
    return found


def every_pass_verified(module: HloModule) -> HloModule:
    """A copy of a module after the cpu pipeline; after each pass it is verified, and has the pass's facts."""

    def look(item: Pass, seen: HloModule) -> None:
        seen.verify()
        for fact in item.establishes:
            assert FACTS[fact](seen), f"{item.name} does not establish {fact}"

    optimized = clone_module(module)
    CPU_PIPELINE.run(optimized, look)
    return optimized


FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
"""Operations that no code is emitted for."""


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.hlo")), ids=lambda p: p.stem)
def test_programs_stay_well_formed_and_shrink(path: Path) -> None:
    module = HloModule.from_text(path.read_text())
    optimized = every_pass_verified(module)
    assert steps(optimized.entry) <= max(2, 0.6 * steps(module.entry))


def steps(computation: HloComputation) -> int:
    """The operations that run one after the other: a fusion or reduction is one, a loop is its body's."""
    here = [i for i in computation.instructions if i.opcode not in FREE]
    nested = [c for i in here if i.opcode in ("while", "conditional", "call") for c in i.called_computations]
    return len(here) + sum(map(steps, nested))


@pytest.mark.parametrize("name", ["argmax", "cholesky_solve", "lstm_scan", "scatter_add", "top_k"])
def test_passes_return_whether_they_change_a_program(name: str) -> None:
    """Pipelines repeat the passes that follow one that returns true."""
    module = HloModule.from_text((WORKLOADS / f"{name}.hlo").read_text())
    for item in CPU_PIPELINE.flat():
        run_truly(item, module)


@pytest.mark.parametrize("name", QUICK)
def test_programs_keep_their_values(name: str) -> None:
    text = (WORKLOADS / f"{name}.hlo").read_text()
    if name == "lstm_scan":
        text = text.replace("constant(100)", "constant(5)")  # steps, each of which multiplies errors
    size, smaller = ROWS.get(name, (0, 0))
    module = HloModule.from_text(text.replace(str(size), str(smaller)) if size else text)
    optimized = every_pass_verified(module)
    given = [a[:smaller] if size and a.shape[:1] == (size,) else a for a in arguments(name)]
    if name in DEEP:
        module, optimized = widened(module), widened(optimized)
        given = [a.astype(p.shape.element_type.numpy_dtype) for a, p in zip(given, module.entry.parameters)]
    agreement.computed(Evaluator().run(optimized.entry, given), module, given)


def test_a_training_step_is_optimized_in_no_time() -> None:
    module = HloModule.from_text((WORKLOADS / "gpt_train_step.hlo").read_text())
    best = 1e9
    for _ in range(3):
        copy = clone_module(module)
        begin = time.process_time()
        CPU_PIPELINE.run(copy)
        best = min(best, time.process_time() - begin)
    assert best < 3  # twenty times what a quiet machine needs: only what grows out of bounds fails here
