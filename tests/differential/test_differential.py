"""Random programs give the same results on hloom and XLA:CPU, and are parsed and printed alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from tests import oracle
from tests.differential import module_runs
from tests.differential.campaign import Campaign, Report
from tests.differential.case import EXACT, Case, Tolerance, program
from tests.differential.comparison import differs
from tests.differential.explanations import Difference
from tests.differential.families import FAMILIES, draw_case, round_robin
from tests.differential.known import DIFFERENCES
from tests.differential.known_examples import EXAMPLES
from tests.differential.modules import Module, draw_module
from tests.differential.shrinking import smaller
from tests.differential.xla import Xla, XlaCrashed

CASES = 300
COMPILED = 120
MODULES = 40
SEED = 0


@pytest.fixture(scope="module")
def xla() -> Iterator[Xla]:
    pytest.importorskip("jax")
    with Xla() as oracle:
        yield oracle


def compared(xla: Xla, cases: list[Case]) -> Report:
    campaign = Campaign(xla)
    campaign.check(cases)
    return campaign.report


def test_random_programs(xla: Xla) -> None:
    cases = [draw_case(family, number, SEED) for family, number in round_robin(sorted(FAMILIES), CASES)]
    report = compared(xla, cases)
    assert not report.findings, f"seed {SEED}\n" + "\n\n".join(map(str, report.findings))
    assert sum(report.cases.values()) == CASES


def test_compiled_programs(xla: Xla) -> None:
    """Native code is compared with XLA:CPU and with the evaluator."""
    cases = [
        draw_case(family, number, SEED + 1) for family, number in round_robin(sorted(FAMILIES), COMPILED)
    ]
    campaign = Campaign(xla, ["cpu"])
    campaign.check(cases)
    assert not campaign.report.findings, "\n\n".join(map(str, campaign.report.findings))
    assert sum(campaign.report.cases.values()) == COMPILED


def test_whole_modules() -> None:
    """Native code of generated modules runs in a separate process and is compared with the evaluator."""
    assert module_runs.run(0, MODULES, SEED) == []


def test_failing_modules_are_made_smaller() -> None:
    module = next(m for m in (draw_module(n, SEED) for n in range(99)) if len(m.case.lines) > 40)

    def fails(m: Module) -> bool:
        return any("add(" in line for line in m.case.lines)

    made = smaller(module, fails)
    assert fails(made)
    assert len(made.case.lines) < len(module.case.lines) / 2
    assert module_runs.differences(made) == []


def test_wrong_values_of_modules_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from hloom.ir.operation import REGISTRY

    # Constants are folded by the wrong function: no other test may find the code in the cache.
    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(REGISTRY["maximum"], "compute", lambda self, lhs, rhs: np.minimum(lhs, rhs))
    found = [module_runs.checked(number, SEED) for number in range(8)]
    assert any("differ, at" in text and "maximum" in text for text in found)


def one_addition(**changes: object) -> Case:
    fields: dict[str, object] = {
        "name": "by hand/0", "operation": "add f32", "parameters": ("f32[3]", "f32[3]"),
        "arguments": (np.array([1, 2, 1e-40], np.float32), np.array([1, 1, 0], np.float32)),
        "lines": ("@v0 = add(@p0, @p1)",), "roots": ("@v0",),
    }  # fmt: skip
    return Case(**(fields | changes))  # type: ignore[arg-type]


def test_known_differences_are_counted(xla: Xla) -> None:
    """XLA flushes 1e-40 to 0."""
    report = compared(xla, [one_addition()])
    assert not report.findings
    assert report.known == {"subnormals": 1}


def test_differences_are_found(xla: Xla, monkeypatch: pytest.MonkeyPatch) -> None:
    from hloom.ir.operation import REGISTRY

    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(REGISTRY["add"], "compute", lambda self, lhs, rhs: lhs - rhs)
    (finding,) = compared(xla, [one_addition()]).findings
    assert "2 of 3 elements differ" in finding.what
    assert "hloom float32[] 0.0, XLA float32[] 2.0; of 1.0, 1.0" in finding.what
    assert "v0 = add(c0_p0, c0_p1)" in str(finding)


def test_programs_that_hloom_refuses(xla: Xla) -> None:
    (finding,) = compared(xla, [one_addition(lines=("@v0 = add(@p0)",))]).findings
    assert finding.what.startswith("hloom refuses")


def test_programs_that_xla_refuses(xla: Xla) -> None:
    """The others of the same batch are compared all the same."""
    unknown = one_addition(lines=('@v0 = f32[3] custom-call(@p0, @p1), custom_call_target="absent"',))
    report = compared(xla, [one_addition(), unknown, one_addition()])
    (finding,) = report.findings
    assert "XLA does not run it" in finding.what
    assert finding.case == unknown
    assert report.cases == {"by hand": 2}


def test_oracle_comes_back_after_a_crash(xla: Xla) -> None:
    module = HloModule.from_text(program([one_addition()]))
    before = xla.run(module.to_text(), module.to_proto(), [])
    assert xla._process is not None
    xla._process.kill()
    with pytest.raises(XlaCrashed):
        xla.run(module.to_text(), module.to_proto(), [])
    assert xla.run(module.to_text(), module.to_proto(), []) == before
    assert xla.restarts == 1


def test_cases_are_drawn_alike_by_name() -> None:
    for family in FAMILIES:
        one, other = (draw_case(family, 3, seed=7) for _ in range(2))
        assert one.lines == other.lines
        assert [a.tobytes() for a in one.arguments] == [a.tobytes() for a in other.arguments]


def test_every_known_difference_has_a_reason_and_an_example() -> None:
    assert all(known.reason and known.operations for known in DIFFERENCES)
    assert sorted(EXAMPLES) == sorted(known.name for known in DIFFERENCES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_known_differences_are_still_seen(xla: Xla, name: str) -> None:
    """Known differences occur, within their limits: another value in place of XLA's is a finding.

    From the version on that has mended one, XLA and hloom agree.
    """
    report = compared(xla, [EXAMPLES[name]])
    assert not report.findings
    (known,) = [d for d in DIFFERENCES if d.name == name]
    assert (name in report.known) == known.is_of(oracle.installed_version())
    for difference in (d for d in report.explained if known.about(d.case) and known.of(d).any()):
        where = known.of(difference) & difference.where
        wrong = dataclasses.replace(difference, theirs=elsewhere(difference, where))
        if difference.ours.dtype != np.bool_:  # which has no third value
            assert not (known.of(wrong) & where).all(), (name, difference.ours, difference.theirs)


def elsewhere(difference: Difference, where: np.ndarray) -> np.ndarray:
    """Return values that are neither hloom's nor XLA's: far away, or slightly apart for narrow types."""
    ours, theirs = difference.ours, difference.theirs
    if ours.dtype.kind in "fc":
        with np.errstate(over="ignore"):
            far = 1000 + 1000 * np.abs(np.nan_to_num(ours, nan=0.0, posinf=0.0, neginf=0.0))
        return np.where(where, far, theirs).astype(ours.dtype)
    narrow = ElementType.from_dtype(ours.dtype).bits < 8
    candidates = np.arange(1 if narrow else 101, 7 if narrow else 107).astype(ours.dtype)
    used = np.concatenate([ours.reshape(-1), theirs.reshape(-1)]).astype(np.float64)
    fresh = [c for c in candidates if float(c) not in used] or [candidates[0]]
    return np.where(where, fresh[0], theirs)


@pytest.mark.parametrize(
    ("tolerance", "ours", "theirs", "different"),
    [
        (EXACT, [0.0, np.nan, np.inf], [-0.0, -np.nan, np.inf], [True, False, False]),
        (Tolerance(ulps=1), [1.0, 1.0], [1 + 2.0**-23, 1 + 2.0**-22], [False, True]),
        (Tolerance(ulps=1), [3.4028235e38, 3e38], [np.inf, np.inf], [False, True]),
    ],
)
def test_what_counts_as_equal(
    tolerance: Tolerance, ours: list[float], theirs: list[float], different: list[bool]
) -> None:
    arrays = np.array(ours, np.float32), np.array(theirs, np.float32)
    assert differs(*arrays, tolerance).tolist() == different
