"""Random programs give the same results on hloom and XLA:CPU, and are parsed and printed alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from hloom.debug.agreement import within
from hloom.error_bounds.floating import ulp
from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing import limits
from hloom.fuzzing.campaign import Campaign, CampaignReport, FindingKind, Passes
from hloom.fuzzing.child import Answer, Child, Crashed, Refused, Request
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case, as_case, installed_xla, program
from hloom.fuzzing.generators.families import FAMILIES, FAMILY_NAMES, draw_case, round_robin
from hloom.fuzzing.known import DIFFERENCES
from hloom.ir.module import HloModule
from hloom.ir.xla_version import V0_12, XlaVersion
from hloom.shape.element_type import ElementType
from tests.arrays import f32, s32
from tests.fuzzing.known_examples import EXAMPLES

CASES = 300
COMPILED = 120
MODULES = 40
LARGE = 40
"""Programs of each family of large arrays."""
SEED = 0


SINGLE = sorted(name for name, each in FAMILIES.items() if each.client and name != "expressions")
"""Families of one operation, of which XLA has no unexplained difference."""


@pytest.fixture(scope="module")
def xla() -> Iterator[Child]:
    pytest.importorskip("jax")
    with Child() as child:
        yield child


def compared(xla: Child, cases: list[Case], *, prints: bool = True) -> CampaignReport:
    campaign = Campaign(xla, prints=prints)
    campaign.check(cases)
    return campaign.report


def test_random_programs_agree_with_xla(xla: Child) -> None:
    cases = [draw_case(family, number, SEED) for family, number in round_robin(SINGLE, CASES)]
    report = compared(xla, cases)
    assert not report.findings, f"seed {SEED}\n" + "\n\n".join(map(str, report.findings))
    assert sum(report.cases.values()) == CASES


def test_native_code_agrees_with_the_evaluator() -> None:
    """Native code of operations, expressions and whole modules, in a separate process."""
    cases = [draw_case(f, n, SEED + 1) for f, n in round_robin(sorted(FAMILIES), COMPILED)]
    cases += [draw_case("modules", number, SEED) for number in range(MODULES)]
    with Child("cpu") as child:
        campaign = Campaign(child)
        campaign.check(cases)
    assert not campaign.report.findings, "\n\n".join(map(str, campaign.report.findings))
    assert sum(campaign.report.cases.values()) == COMPILED + MODULES


@pytest.mark.parametrize("family", ["large-dot", "large-reduce", "large-convolution"])
def test_native_code_of_large_arrays_agrees_with_the_evaluator(family: str) -> None:
    """Kernels divide them into tiles, blocks and tasks, which small arrays do not reach."""
    with Child("cpu") as child:
        campaign = Campaign(child)
        campaign.check([draw_case(family, number, SEED) for number in range(LARGE)])
    assert not campaign.report.findings, "\n\n".join(map(str, campaign.report.findings))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_generated_programs_are_valid(family: str) -> None:
    for number in range(6):
        case = draw_case(family, number, SEED)
        case.module.verify()
        again = as_case(case.module, case.arguments, case)
        if not case.folded:
            assert again.module.to_text().count("\n") == case.module.to_text().count("\n")
            assert [p.shape for p in again.module.entry.parameters] == [
                p.shape for p in case.module.entry.parameters
            ]


def test_reduced_programs_are_printed_for_the_installed_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attribute of total order was `type` until XLA 0.12, which the parser of jaxlib 0.10 expects."""
    case, read = EXAMPLES["total order of constants"], "hloom.fuzzing.generators.case.installed_xla"
    for installed, attribute in ((V0_12, "order="), (XlaVersion(0, 10), "type=")):
        monkeypatch.setattr(read, lambda installed=installed: installed)
        assert attribute in as_case(case.module, case.arguments, case).lines[-1]


def one_addition(**changes: object) -> Case:
    fields: dict[str, object] = {
        "name": "by hand/0", "operation": "add f32", "parameters": ("f32[3]", "f32[3]"),
        "arguments": (np.array([1, 2, 1e-40], np.float32), np.array([1, 1, 0], np.float32)),
        "lines": ("@v0 = add(@p0, @p1)",), "roots": ("@v0",),
    }  # fmt: skip
    return Case(**(fields | changes))  # type: ignore[arg-type]


def test_known_differences_are_counted(xla: Child) -> None:
    """XLA flushes 1e-40 to 0."""
    report = compared(xla, [one_addition()])
    assert not report.findings
    assert report.recognized == {"subnormals": 1}


def test_differences_are_found(xla: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    from hloom.ir.operation import REGISTRY

    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(REGISTRY["add"], "compute", lambda self, lhs, rhs: lhs - rhs)
    (finding,) = compared(xla, [one_addition()]).findings
    assert "2 of 3 elements of result 0 differ" in finding.what
    assert "hloom float32[] 0.0, xla float32[] 2.0; of 1.0, 1.0" in finding.what
    assert "v0 = add(%p0, %p1)" in str(finding)


def test_programs_that_hloom_refuses(xla: Child) -> None:
    (finding,) = compared(xla, [one_addition(lines=("@v0 = add(@p0)",))]).findings
    assert finding.what.startswith("hloom refuses")


def test_programs_that_xla_refuses(xla: Child) -> None:
    """The others of the same batch are compared all the same."""
    unknown = one_addition(lines=('@v0 = f32[3] custom-call(@p0, @p1), custom_call_target="absent"',))
    report = compared(xla, [one_addition(), unknown, one_addition()])
    (finding,) = report.findings
    assert finding.kind is FindingKind.REFUSED
    assert finding.case == unknown
    assert report.cases == {"by hand": 2}


def test_a_child_comes_back_after_a_crash(xla: Child) -> None:
    case = one_addition()
    request = Request(program([case]), case.arguments_of_devices)
    before, restarts = xla.run(request), xla.restarts
    assert xla.process is not None
    xla.process.kill()
    with pytest.raises(Crashed, match="ends with status -9"):
        xla.run(request)
    assert xla.run(request).results[0][0].tolist() == before.results[0][0].tolist()
    assert xla.restarts == restarts + 1


ENDLESS = """more { s = s32[] parameter(0)  ROOT p = pred[] constant(true) }
body { s = s32[] parameter(0)  one = s32[] constant(1)  ROOT n = s32[] add(s, one) }
ENTRY e { x = s32[] parameter(0)  ROOT w = s32[] while(x), condition=more, body=body }"""
HUGE = """ENTRY e { x = f32[] parameter(0)  y = f32[3000000000] broadcast(x), dimensions={}
z = f32[3000000000] sine(y)  ROOT r = f32[3000000000] reverse(z), dimensions={0} }"""


@pytest.mark.parametrize("backend", ["xla", "cpu"])
def test_a_program_that_never_ends_is_stopped(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 6)
    with Child(backend) as child, pytest.raises(Crashed, match="no answer"):
        child.run(Request(f"HloModule endless\n{ENDLESS}", [[s32(0)]]))


def test_a_program_that_takes_too_much_memory_is_refused_or_ends_its_process(xla: Child) -> None:
    with pytest.raises((Refused, Crashed)):
        xla.run(Request(f"HloModule huge\n{HUGE}", [[f32(0)]]))


def test_the_time_of_the_evaluator_is_limited() -> None:
    module = HloModule.from_text(f"HloModule endless\n{ENDLESS}")
    with pytest.raises(TimeoutError, match="more than 0 s"), limits.time_limit(0.2):
        Evaluator().run(module.entry, [s32(0)])


class CrashingOnce:
    """A subject that crashes once, and then answers."""

    backend = "cpu"
    seconds = 0.0
    crashes = 0

    def run(self, request: Request) -> Answer:
        self.crashes += 1
        if self.crashes == 1:
            raise Crashed("no answer")
        return Passes("dce").run(request)


def test_a_crash_that_does_not_come_again_is_no_finding() -> None:
    campaign = Campaign(CrashingOnce())
    campaign.check([one_addition()])
    assert not campaign.report.findings
    assert campaign.report.crashes == 1


def test_cases_are_drawn_alike_by_name() -> None:
    for family in FAMILY_NAMES:
        one, other = (draw_case(family, 3, seed=7) for _ in range(2))
        assert one.lines == other.lines
        assert [a.tobytes() for a in one.arguments] == [a.tobytes() for a in other.arguments]


def test_every_known_difference_has_a_reason_and_an_example() -> None:
    assert all(known.reason and known.operations for known in DIFFERENCES)
    assert sorted(EXAMPLES) == sorted(known.name for known in DIFFERENCES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_known_differences_are_still_seen(xla: Child, name: str) -> None:
    """Known differences occur, within their limits: another value in place of XLA's is a finding.

    From the version on that has mended one, XLA and hloom agree.
    """
    report = compared(xla, [EXAMPLES[name]])
    assert not report.findings
    (known,) = [d for d in DIFFERENCES if d.name == name]
    assert (name in report.recognized) == known.is_of(installed_xla())
    for difference in (d for d, reason in report.explained if reason is known and known.of(d).any()):
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
    ("ulps", "ours", "theirs", "agreeing"),
    [
        (0, [0.0, np.nan, np.inf], [-0.0, -np.nan, np.inf], [False, True, True]),
        (1, [1.0, 1.0], [1 + 2.0**-23, 1 + 2.0**-22], [True, False]),
        (1, [3.4028235e38, 3e38], [np.inf, np.inf], [True, False]),
    ],
)
def test_what_counts_as_equal(
    ulps: int, ours: list[float], theirs: list[float], agreeing: list[bool]
) -> None:
    one, other = np.array(ours, np.float32), np.array(theirs, np.float32)
    assert within(one, other, ulps * ulp(one, one.dtype)).tolist() == agreeing
