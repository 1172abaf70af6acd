"""A session finds planted faults, reduces and attributes them, writes pages, and continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from hloom import HloError, HloModule
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.bounded import parts_of
from hloom.fuzzing import causes, limits, pages, reproduction
from hloom.fuzzing.campaign import Campaign, Finding, FindingKind, Passes
from hloom.fuzzing.causes import cause_of, explained_finding, message, nature, reduced, signature
from hloom.fuzzing.child import Answer, Child, Request
from hloom.fuzzing.coverage import Coverage
from hloom.fuzzing.flushing import FlushingEvaluator
from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.families import FAMILY_NAMES, draw_case, round_robin
from hloom.fuzzing.generators.shardings import sharded
from hloom.fuzzing.known import DIFFERENCES
from hloom.fuzzing.rounding import RoundingAnalysis
from hloom.fuzzing.session import Recorded, Session, SessionState
from hloom.tools.cli import main
from hloom.tools.commands.fuzz import report
from tests.arrays import c64, f32
from tests.fuzzing.known_examples import EXAMPLES
from tests.planted_bugs.planting import rule


@pytest.fixture(scope="module")
def xla() -> Iterator[Child]:
    pytest.importorskip("jax")
    with Child() as child:
        yield child


def case_of(text: str, *arguments: np.ndarray) -> Case:
    """Return lines from parameters @p0 … of f32[4] to the result @r as a case."""
    shapes = tuple("f32[4]" for _ in arguments)
    return Case("expressions/0", "expression", shapes, arguments, tuple(text.split("\n")), ("@r",))


NEGATED = case_of(
    "@a = add(@p0, @p1)\n@b = negate(@p0)\n@c = subtract(@a, @b)\n@d = maximum(@c, @p1)\n@r = sine(@d)",
    f32([1, 2, 3, 4]),
    f32([5, 6, 7, 8]),
)


# -- a planted fault


def test_a_wrong_rewrite_is_found_reduced_and_attributed() -> None:
    with rule("subtract_negated")():
        campaign = Campaign(Passes())
        campaign.check([NEGATED])
        (finding,) = campaign.report.findings
        assert finding.kind is FindingKind.VALUES
        cause = cause_of(finding, Passes())
    assert cause.where == "algsimp"
    assert pages.instructions(cause.finding.case) <= 4
    assert "negate" in cause.key
    text = pages.page(cause, "passes")
    assert all(part in text for part in ("## Program", "## Arguments", "## Results", "algsimp", "hloom 0."))


def test_right_passes_have_no_findings() -> None:
    campaign = Campaign(Passes("algsimp,cse"))
    campaign.check([NEGATED])
    assert not campaign.report.findings
    assert campaign.report.cases == {"expressions": 1}


def test_an_unknown_pass_is_a_refusal() -> None:
    campaign = Campaign(Passes("absent"))
    campaign.check([NEGATED])
    (finding,) = campaign.report.findings
    assert finding.kind is FindingKind.REFUSED


# -- XLA


def test_a_difference_of_xla_is_reduced_and_its_pass_named(xla: Child, tmp_path: Path) -> None:
    """XLA folds the convolution of constants with saturating integers; JAX alone reproduces the page."""
    campaign = Campaign(xla)
    campaign.check([EXAMPLES["integer convolutions of constants"]])
    ((difference, known),) = campaign.report.explained
    cause = cause_of(explained_finding(difference, known, xla), xla)
    assert cause.where == "constant_folding"
    assert cause.finding.explanation is known
    assert pages.instructions(cause.finding.case) <= 10
    page = pages.page(cause, "xla")
    assert page.count(known.reason) == 1
    assert "of 2 elements of result 0 differ" in page
    script = tmp_path / "reproduce.py"
    script.write_text(reproduction.script(cause))
    assert "hloom" not in "".join(line for line in script.read_text().splitlines() if "import" in line)
    assert reproduction.outcome(script, cause.finding) == "reproduced; with XLA's default flags too"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "result 0, elements [1]: differs" in done.stdout


def test_a_program_that_ends_xla_is_a_finding(xla: Child) -> None:
    case = Case(
        "corners/0", "concatenate", ("u2[1,3]",),
        (np.zeros((1, 3), ml_dtypes.uint2),),
        ("@r = concatenate(@p0, @p0), dimensions={1}",), ("@r",),
    )  # fmt: skip
    campaign = Campaign(xla)
    campaign.check([case])
    (finding,) = campaign.report.findings
    assert finding.kind is FindingKind.CRASHED
    assert signature(finding).startswith("crash: ")
    smallest = reduced(finding, xla)
    assert smallest.kind is FindingKind.CRASHED


def test_a_pass_that_writes_an_invalid_program_is_named(xla: Child) -> None:
    """XLA's simplification of scatters multiplies a scalar by all updates at once."""
    case = Case(
        "corners/0", "scatter", ("f32[]", "s8[2,1,0]", "f32[2,1]"),
        (f32(1), np.zeros((2, 1, 0), np.int8), f32([[2], [3]])),
        ("@r = f32[] scatter(@p0, @p1, @p2), update_window_dims={}, inserted_window_dims={}, "
         "scatter_dims_to_operand_dims={}, index_vector_dim=2, to_apply=@f",), ("@r",),
        ("@f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] multiply(a, b)\n}\n",),
    )  # fmt: skip
    campaign = Campaign(xla)
    campaign.check([case])
    (finding,) = campaign.report.findings
    assert finding.kind is FindingKind.REFUSED
    assert cause_of(finding, xla).where == "scatter_simplifier"


def test_a_result_of_another_type_is_a_finding(xla: Child) -> None:
    case = Case(
        "corners/0", "rng-bit-generator", ("u64[2]",), (np.ones(2, np.uint64),),
        ("@g = (u64[2], s16[1]) rng-bit-generator(@p0), algorithm=rng_philox",
         "@r = get-tuple-element(@g), index=1"), ("@r",),
    )  # fmt: skip
    campaign = Campaign(xla)
    campaign.check([case])
    (finding,) = campaign.report.findings
    assert finding.kind is FindingKind.FORM
    assert cause_of(finding, xla).where == "StableHLO passes of the client"


def test_differences_in_the_signs_of_zeros(xla: Child) -> None:
    zero = "@z = f32[] constant(0)\n@b = f32[4] broadcast(@z), dimensions={}\n@r = add(@p0, @b)"
    campaign = Campaign(xla)
    campaign.check([case_of(zero, f32([-0.0, 0, 1, 2]))])
    (finding,) = campaign.report.findings
    assert finding.difference is not None
    assert nature(finding.difference) == "signs of zeros"
    assert cause_of(finding, xla).where == "StableHLO passes of the client"


# -- scripts and their outcomes


def finding_of(kind: FindingKind, what: str) -> Finding:
    return Finding(NEGATED, kind, what)


@pytest.mark.parametrize(
    ("kind", "what", "code", "outcome"),
    [
        (FindingKind.VALUES, "", "print('result 0: differs')", "reproduced; with XLA's default flags too"),
        (
            FindingKind.VALUES,
            "",
            "import os; print('result 0: differs' if 'precision' in os.environ['XLA_FLAGS'] else 'equal')",
            "reproduced; with XLA's default flags not: the results are as expected",
        ),
        (
            FindingKind.VALUES,
            "",
            "import os; print('result 0: differs'); os.kill(os.getpid(), 6)",
            "reproduced; with XLA's default flags too",
        ),
        (
            FindingKind.FORM,
            "",
            "print('result 0: as expected')",
            "not reproduced with JAX alone: the results are as expected",
        ),
        (
            FindingKind.REFUSED,
            "JaxRuntimeError: INTERNAL: no such shape as f32[2]: %x",
            "raise ValueError('INTERNAL: no such shape as s4[9]: %y')",
            "reproduced; with XLA's default flags too",
        ),
        (
            FindingKind.REFUSED,
            "JaxRuntimeError: INTERNAL: no such shape",
            "raise ValueError('another error')",
            "not reproduced with JAX alone: refused: another error",
        ),
        (FindingKind.REFUSED, "", "pass", "not reproduced with JAX alone: the program runs"),
        (
            FindingKind.CRASHED,
            "the process ends with status -8",
            "import os; os.kill(os.getpid(), 8)",
            "reproduced; with XLA's default flags too",
        ),
        (FindingKind.CRASHED, "", "pass", "not reproduced with JAX alone: the program runs"),
    ],
)
def test_the_outcome_of_a_script(
    kind: FindingKind, what: str, code: str, outcome: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    assert reproduction.outcome(script, finding_of(kind, what)) == outcome


def test_a_script_that_never_ends_is_not_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 1)
    script = tmp_path / "script.py"
    script.write_text("while True: pass")
    outcome = reproduction.outcome(script, finding_of(FindingKind.VALUES, ""))
    assert outcome.startswith("not reproduced with JAX alone: no end in")


def test_causes_that_are_not_reproduced_are_listed_apart(tmp_path: Path) -> None:
    session = Session(Passes(), "evaluator", tmp_path, 5)
    outcomes = {
        "one": "reproduced; with XLA's default flags too",
        "other": "not reproduced with JAX alone: ...",
    }
    for name, outcome in outcomes.items():
        session.state.causes[name] = Recorded(
            f"XLA:CPU (dce): numbers: {name}", "dce", "", 2, outcome, 1, "a/0"
        )
    causes, apart = click.unstyle(report(session)).split("not reproduced with JAX alone\n")
    assert "numbers: one" in causes
    assert "numbers: other" not in causes
    assert "numbers: other" in apart


def test_refusals_of_other_types_and_names_have_one_cause() -> None:
    one, other = (
        "JaxRuntimeError: INTERNAL: Expected instruction to have shape equal to pred[2,1], not pred[]:"
        "\n%r.0 = pred[] multiply(%p0.1, %p2.1)",
        "JaxRuntimeError: INTERNAL: Expected instruction to have shape equal to f32[3], not f32[]:"
        "\n%v = f32[] convert(%p2.1)",
    )
    assert message(one) == message(other)
    assert message(one) != message("JaxRuntimeError: INTERNAL: Expected a layout")


# -- choices


def test_subnormals_inside_of_a_program_are_set_aside(xla: Child) -> None:
    small = f32([1e-30, 1, 1, 1])
    case = case_of("@a = multiply(@p0, @p0)\n@r = divide(@a, @p0)", f32([1e-20, 1, 2, 3]))
    results: Any = FlushingEvaluator().run(case.module.entry, [small])
    assert results[0][0] == 0
    campaign = Campaign(xla)
    campaign.check([case])
    assert not campaign.report.findings


def test_a_fused_product_is_within_the_bounds_of_more_roundings() -> None:
    case = case_of("@a = multiply(@p0, @p0)\n@r = subtract(@a, @p1)", f32([1 + 2**-12] * 4), f32([1] * 4))
    _, bounds = RoundingAnalysis(case.module).run(case.arguments)
    (bound,) = parts_of(bounds)
    assert 0 < bound[0] < 1e-6


def test_both_parts_of_a_fused_complex_product_may_be_rounded_otherwise() -> None:
    """Both are one unit of 13 away, and so is their distance 1.4 units."""
    parameters = "x = c64[1] parameter(0)  y = c64[1] parameter(1)"
    text = f"HloModule m\nENTRY e {{ {parameters}  ROOT r = c64[1] multiply(x, y) }}"
    bounds: Any = RoundingAnalysis(HloModule.from_text(text)).run([c64([13 + 13j]), c64([1])])[1]
    assert bounds[0] >= abs(c64(2**-20 + 2**-20 * 1j))


def test_products_of_arrays_and_numbers_have_bounds() -> None:
    """Only elements whose operands are finite count as overflows."""
    text = (
        "HloModule m\nf { a = f32[] parameter(0)  t = f32[] constant(2)  ROOT b = f32[] multiply(a, t) }\n"
        "ENTRY e { x = f32[3] parameter(0)  ROOT r = f32[3] map(x), dimensions={0}, to_apply=f }"
    )
    bounds: Any = RoundingAnalysis(HloModule.from_text(text)).run([f32([1, 3e38, np.inf])])[1]
    assert np.isinf(bounds).tolist() == [False, True, False]


def test_a_failure_of_the_evaluator_is_a_finding_of_hloom() -> None:
    cause = cause_of(finding_of(FindingKind.EVALUATOR, "hloom breaks"), Passes())
    assert "JAX alone" not in pages.page(cause, "xla")
    assert "# hloom: the evaluator fails" in pages.page(cause, "xla")


def test_partial_sums_may_be_rounded_to_a_narrow_type() -> None:
    """1 + 2^-9 is 1 in bf16, and so is 1 + 2^-9 + ... + 2^-9 from left to right; the sum is 1.5."""
    text = (
        "HloModule m\nadd { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] add(a, b) }\n"
        "ENTRY e { x = bf16[257] parameter(0)  z = bf16[] constant(0)\n"
        "  ROOT r = bf16[] reduce(x, z), dimensions={0}, to_apply=add }"
    )
    x = np.array([1] + [2**-9] * 256, ml_dtypes.bfloat16)
    module = HloModule.from_text(text)
    exact: Any = ErrorAnalysis(module).run([x])[1]
    rounded: Any = RoundingAnalysis(module).run([x])[1]
    assert exact < 0.5 <= rounded


def test_defects_and_choices_are_told_apart() -> None:
    assert 5 <= sum(known.defect for known in DIFFERENCES) < len(DIFFERENCES)


# -- coverage, shardings, sessions


def test_coverage_counts_operations_types_and_attributes() -> None:
    coverage = Coverage()
    module = NEGATED.module
    assert coverage.add(module)
    assert not coverage.add(module)
    assert coverage.types["negate f32"] == 2
    assert "negate" not in coverage.undrawn
    assert "convolution" in coverage.undrawn
    rows = {row[0]: row for row in coverage.table()}
    assert rows["add"][1] == "f32: 2"


def test_most_operations_are_drawn() -> None:
    coverage = Coverage()
    for family, number in round_robin(FAMILY_NAMES, 400):
        coverage.add(draw_case(family, number, 3).module)
    assert len(coverage.undrawn) < 60, coverage.undrawn
    assert len(coverage.types) > 500


def test_sharded_modules_have_whole_arguments_and_results() -> None:
    cases = [sharded(draw_case("modules", number, 0, fusions=False), 0) for number in range(4)]
    for case in cases:
        module = case.module
        module.verify()
        assert case.partitions > 1
        assert all(p.sharding is None for p in module.entry.parameters)
        assert all(o.sharding or o.opcode == "parameter" for o in module.entry.root.operands)
    assert any(i.sharding is not None for c in cases for i in c.module.instructions())


def test_a_session_continues(tmp_path: Path) -> None:
    first = Session(Passes("algsimp"), "evaluator algsimp", tmp_path, 5)
    first.step(8)
    first.save()
    assert list((tmp_path / "corpus").glob("*.hlo"))
    assert "| add |" in (tmp_path / "coverage.md").read_text() or first.state.coverage.types
    second = Session(Passes("algsimp"), "evaluator algsimp", tmp_path)
    assert vars(second.state) == vars(SessionState.read(tmp_path / "state.json"))
    assert (second.state.next, second.state.seed) == (8, 5)
    second.step(4)
    assert second.state.next == 12
    assert sum(second.state.cases.values()) >= sum(first.state.cases.values())


def test_a_folder_has_one_comparison(tmp_path: Path) -> None:
    Session(Passes(), "evaluator", tmp_path, 5).save()
    for name, seed in (("xla", None), ("evaluator", 6)):
        with pytest.raises(HloError) as refusal:
            Session(Passes(), name, tmp_path, seed)
        assert refusal.value.rule == "fuzz.folder"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"seed": 1}',
        '{"format": 1, "seed": 5, "subject": "evaluator", "causes": {"a": {"known": 1}}}',
    ],
)
def test_a_state_of_another_version_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(HloError, match="state another folder by --out, or remove the file") as refusal:
        Session(Passes(), "evaluator", tmp_path, 5)
    assert refusal.value.rule == "fuzz.folder"


def test_a_state_with_another_field_is_refused(tmp_path: Path) -> None:
    Session(Passes(), "evaluator", tmp_path, 5).save()
    path = tmp_path / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"known": 1}))
    with pytest.raises(HloError, match="known"):
        Session(Passes(), "evaluator", tmp_path, 5)


def test_an_interrupted_run_continues_with_the_same_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(Passes("dce"), "evaluator dce", tmp_path, 5)
    session.step(4)
    session.save()

    def interrupted(subject: Passes, request: Request) -> Answer:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "run", interrupted)
        session.run(1.0)
    assert session.interrupted
    assert session.state.next == 4
    session.step(4)
    assert session.state.next == 8


def test_findings_of_one_cause_have_one_page(tmp_path: Path) -> None:
    session = Session(Passes("algsimp"), "evaluator algsimp", tmp_path)
    with rule("subtract_negated")():
        campaign = Campaign(Passes("algsimp"))
        campaign.check([NEGATED, replace(NEGATED, name="expressions/1")])
        for finding in campaign.report.findings:
            session.record(finding)
    (recorded,) = session.state.causes.values()
    assert (recorded.count, recorded.where) == (2, "algsimp")
    assert len(list((tmp_path / "findings").glob("*.md"))) == 1


def test_the_command(tmp_path: Path) -> None:
    options = ["fuzz", "--against", "evaluator", "--passes", "algsimp", "--minutes", "0.001"]
    result = CliRunner().invoke(main, [*options, "--out", str(tmp_path / "out"), "--seed", "2"])
    assert result.exit_code == 0, result.output
    assert "of operation and attribute" in result.output
    assert json.loads((tmp_path / "out" / "state.json").read_text())["seed"] == 2


@pytest.mark.parametrize("options", [["--passes", "cse"], ["--against", "evaluator", "--sharded"]])
def test_options_that_exclude_each_other(options: list[str], tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["fuzz", *options, "--out", str(tmp_path)]).exit_code == 2


class OneMore:
    """A subject whose reductions are off by 1."""

    backend = "cpu"
    seconds = 0.0

    def run(self, request: Request) -> Answer:
        answer = Passes("dce").run(request)
        return Answer([[r + r.dtype.type("reduce(" in request.text) for r in row] for row in answer.results])


def end_the_process(*_: object) -> None:
    os.abort()


def test_native_code_may_end_the_search_of_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_of(FindingKind.VALUES, "")
    assert cause_of(finding, OneMore()).where == ""  # hloom's own code is right
    monkeypatch.setattr(causes, "_bisect", end_the_process)
    assert cause_of(finding, OneMore()).where == "code generation"


def test_reduced_programs_combine_elements_in_any_order() -> None:
    """A reduction by `parameter(1)` would be smaller, but its result is a matter of the implementation."""
    case = replace(
        case_of("@z = f32[] constant(0)\n@a = negate(@p0)\n@r = reduce(@a, @z), dimensions={0}, to_apply=@f",
                f32([1, 2, 3, 4])),
        computations=("@f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = add(a, b)\n}\n",),
    )  # fmt: skip
    campaign = Campaign(OneMore())
    campaign.check([case])
    smallest = reduced(campaign.report.findings[0], OneMore()).case.module
    assert "negate" not in smallest.to_text()
    assert [c.root.opcode for c in smallest.computations if c is not smallest.entry] == ["add"]
