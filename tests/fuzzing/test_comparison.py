"""Campaigns on results written by hand: grouping of cases, comparison of results, messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.fuzzing import campaign as campaigns
from hloom.fuzzing import known
from hloom.fuzzing.campaign import (
    LINES_OF_A_PROGRAM,
    Campaign,
    CampaignReport,
    Finding,
    FindingKind,
    FormError,
    Passes,
    batches,
    differences,
    elements,
    evaluated,
    inputs,
    shown,
    unexplained,
)
from hloom.fuzzing.child import Answer, Crashed, Refused, Request
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case, installed_xla, program
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.known import KnownDifference
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import V0_12, XlaVersion
from hloom.shape.shape import Shape
from tests.arrays import f32, s32


def case_of(line: str, *arguments: Array, roots: tuple[str, ...] = ("@r",), **fields: Any) -> Case:
    """Return a case of some lines, from parameters @p0 … to results."""
    shapes = tuple(Shape.of(a).to_string(layout=False) for a in arguments)
    case = Case("by hand/0", "by hand", shapes, arguments, tuple(line.split("\n")), roots)
    return dataclasses.replace(case, **fields)


ADDED = case_of("@r = add(@p0, @p1)", f32([1, 2, 3]), f32([4, 5, 6]))


class Answering:
    """A subject that answers by a function of the request."""

    backend = "cpu"
    seconds = 0.0

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    def run(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answer(request)


def right(request: Request) -> Answer:
    return Passes("dce").run(request)


# -- groups of cases


def sizes_of_batches(lengths: list[int], **fields: Any) -> list[list[int]]:
    cases = [dataclasses.replace(ADDED, lines=("@v = add(@p0, @p1)",) * n, **fields) for n in lengths]
    return [[len(c.lines) for c in batch] for batch in batches(cases)]


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([20, 20, 1], [[20, 20], [1]]),
        ([20, 21, 19], [[20], [21, 19]]),
        ([41, 1], [[41], [1]]),
        ([1], [[1]]),
    ],
)
def test_a_program_has_about_40_instructions(lengths: list[int], groups: list[list[int]]) -> None:
    assert LINES_OF_A_PROGRAM == 40
    assert sizes_of_batches(lengths) == groups


def test_cases_for_other_numbers_of_devices_have_other_programs() -> None:
    """Those of several partitions have one each."""
    two = dataclasses.replace(ADDED, replicas=2, arguments=ADDED.arguments * 2)
    cut = dataclasses.replace(ADDED, partitions=2)
    cases = [ADDED, two, cut, ADDED, two, cut]
    assert [[(c.replicas, c.partitions) for c in batch] for batch in batches(cases)] == [
        [(1, 1)] * 2, [(1, 2)], [(1, 2)], [(2, 1)] * 2]  # fmt: skip


def test_every_device_has_the_arguments_of_its_replica() -> None:
    one, other = f32([1]), f32([2])
    replicated = case_of("@r = negate(@p0)", one, replicas=2, partitions=2)
    replicated = dataclasses.replace(replicated, arguments=(one, other))
    folded = dataclasses.replace(replicated, folded=True)
    assert replicated.devices == 4
    assert inputs([replicated, folded, replicated]) == [
        [one, one],
        [one, one],
        [other, other],
        [other, other],
    ]
    negated = [[leaf.tolist() for leaf in leaves] for leaves in evaluated(replicated, replicated.arguments)]
    assert negated == [[[-1]], [[-1]], [[-2]], [[-2]]]


# -- programs that fail


def test_a_refused_program_is_halved_until_the_case_is_known() -> None:
    bad = dataclasses.replace(ADDED, name="bad/0", lines=("@r = subtract(@p0, @p1)",))

    def refuse(request: Request) -> Answer:
        if "subtract" in request.text:
            raise Refused("no differences " + "x" * 2000)
        return right(request)

    subject = Answering(refuse)
    campaign = Campaign(subject)
    campaign.check([ADDED, ADDED, bad, ADDED])
    (finding,) = campaign.report.findings
    assert (finding.case, finding.kind, len(finding.what)) == (bad, FindingKind.REFUSED, 1000)
    assert campaign.report.cases == {"by hand": 3}
    assert campaign.report.crashes == 0
    assert [request.text.count("= add") for request in subject.requests] == [3, 2, 1, 0, 1]


def test_a_case_that_crashes_twice_is_a_finding() -> None:
    def crash(request: Request) -> Answer:
        raise Crashed("no answer")

    subject = Answering(crash)
    campaign = Campaign(subject)
    campaign.check([ADDED])
    (finding,) = campaign.report.findings
    assert (finding.kind, finding.what, len(subject.requests)) == (FindingKind.CRASHED, "no answer", 2)
    assert campaign.report.crashes == 2


def test_a_defect_of_the_comparison_is_a_finding_of_hloom(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> Any:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(campaigns, "evaluated", fail)
    campaign = Campaign(Answering(right))
    campaign.check([ADDED])
    (finding,) = campaign.report.findings
    assert finding.kind is FindingKind.EVALUATOR
    first, *frames = finding.what.splitlines()
    assert first == "hloom breaks: ZeroDivisionError: by hand"
    assert frames[-1].startswith("  test_comparison.py:") and frames[-1].endswith(" fail")
    assert 2 <= len(frames) <= 6


@pytest.mark.parametrize("kind", FindingKind)
def test_who_is_at_fault(kind: FindingKind) -> None:
    assert kind.of_hloom == (kind in (FindingKind.EVALUATOR, FindingKind.PRINT))


# -- results


def found(case: Case, *theirs: Array) -> list[Difference]:
    return list(differences(case, [list(theirs)]))


def test_results_differ_beyond_their_rounding_errors() -> None:
    """A sum of two numbers has one result, a sine those within its bound."""
    assert not found(ADDED, f32([5, 7, 9]))
    (difference,) = found(ADDED, np.nextafter(f32([5, 7, 9]), f32([5, 8, 9])))
    assert difference.where.tolist() == [False, True, False]
    assert difference.output == difference.device == 0
    assert difference.again([f32([1, 1, 1]), f32([0, 1, 2])]).tolist() == [1, 2, 3]
    assert (difference.bound == 0).all()
    sine = case_of("@r = sine(@p0)", f32([1, 2]))
    ours = np.sin(f32([1, 2]).astype(np.float64)).astype(np.float32)
    assert not found(sine, np.nextafter(ours, f32(9)))
    (difference,) = found(sine, ours + f32([0, 1e-3]))
    assert difference.where.tolist() == [False, True]
    assert (difference.bound > 0).all()


def test_each_result_of_each_device_is_compared() -> None:
    case = case_of("@a = negate(@p0)\n@r = add(@p0, @p0)", f32([1, 2]), roots=("@a", "@r"), partitions=2)
    rows = [[f32([-1, -2]), f32([2, 4])], [f32([-1, -2]), f32([2, 5])]]
    (difference,) = differences(case, rows)
    assert (difference.output, difference.device) == (1, 1)
    assert difference.again([f32([3, 4])]).tolist() == [6, 8]


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (s32([5, 7, 9]), r"result 0: float32\(3,\), not int32\(3,\)"),
        (f32([[5, 7, 9]]), r"result 0: float32\(3,\), not float32\(1, 3\)"),
    ],
)
def test_results_of_another_form(theirs: Array, message: str) -> None:
    with pytest.raises(FormError, match=message):
        found(ADDED, theirs)
    campaign = Campaign(Answering(lambda request: Answer([[theirs]])))
    campaign.check([ADDED])
    assert [f.kind for f in campaign.report.findings] == [FindingKind.FORM]


def test_results_of_dynamic_size_come_first_in_arrays_of_the_bound() -> None:
    cut = "@n = s32[] constant(2)\n@r = f32[<=3] set-dimension-size(@p0, @n), dimensions={0}"
    case = case_of(cut, f32([1, 2, 3]), dynamic=True)
    assert not found(case, f32([1, 2, 9]))
    assert found(case, f32([1, 3, 3]))
    assert not found(case, f32([1, 2]))
    with pytest.raises(FormError):
        found(case, f32([1]))
    with pytest.raises(FormError):
        found(dataclasses.replace(case, dynamic=False), f32([1, 2, 9]))


# -- known differences


def known_at(name: str, *positions: int, operation: str = "*") -> KnownDifference:
    def explains(difference: Difference) -> Array:
        return np.isin(np.arange(difference.where.size), positions)

    return KnownDifference(name, (operation,), "a reason", explains)


def test_known_differences_explain_elements_in_turn() -> None:
    """The first that explains an element is its reason; those of other operations explain nothing."""
    (difference,) = found(ADDED, f32([6, 8, 9]))
    other, first, second, third = (
        known_at("other", 0, 1, operation="sine"), known_at("first", 0, 2), known_at("second", 0, 1),
        known_at("third", 1),
    )  # fmt: skip
    remaining, reasons = unexplained(difference, (other, first, second, third))
    assert not remaining.any()
    assert [r.name for r in reasons] == ["first", "second"]
    remaining, reasons = unexplained(difference, (known_at("one", 2), first))
    assert remaining.tolist() == [False, True, False]
    assert [r.name for r in reasons] == ["first"]
    assert difference.where.tolist() == [True, True, False]


def test_explained_elements_are_counted_and_the_others_are_a_finding() -> None:
    campaign = Campaign(Answering(lambda request: Answer([[f32([6, 8, 9])]])))
    assert campaign.known == ()
    campaign.known = (known_at("first", 0), known_at("second", 1))
    campaign.check([ADDED])
    assert not campaign.report.findings
    assert campaign.report.recognized == {"first": 1, "second": 1}
    assert [k.name for _, k in campaign.report.explained] == ["first", "second"]
    campaign.known = campaign.known[:1]
    campaign.check([ADDED])
    (finding,) = campaign.report.findings
    assert finding.difference is not None
    assert finding.difference.where.tolist() == [False, True, False]
    assert finding.what.startswith("1 of 3 elements of result 0 differ\n  at [1]: hloom")
    assert campaign.report.recognized == {"first": 2, "second": 1}


def test_known_differences_are_those_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Answering(right)
    subject.backend = "xla"
    monkeypatch.setattr(campaigns, "installed_xla", lambda: XlaVersion(0, 11))
    assert [k.name for k in Campaign(subject).known] == [k.name for k in known.DIFFERENCES]
    monkeypatch.setattr(campaigns, "installed_xla", lambda: V0_12)
    assert {k.name for k in known.DIFFERENCES} - {k.name for k in Campaign(subject).known} == {
        k.name for k in known.DIFFERENCES if k.until is not None}  # fmt: skip


# -- prints


def test_prints_are_compared_case_by_case() -> None:
    """Prints that differ are asked for again for each case alone."""

    def answer(request: Request) -> Answer:
        wrong = "multiply" in request.text and request.proto
        text = case_module_text(request).replace("multiply", "times" if wrong else "multiply")
        return Answer(right(request).results if request.arguments else [], {"text": text})

    product = dataclasses.replace(ADDED, lines=("@r = multiply(@p0, @p1)",))
    subject = Answering(answer)
    campaign = Campaign(subject, prints=True)
    campaign.check([ADDED, product])
    (finding,) = campaign.report.findings
    assert (finding.case, finding.kind) == (product, FindingKind.PRINT)
    first, ours, theirs = finding.what.splitlines()
    assert first == "XLA prints the text otherwise:"
    assert ours.startswith("  hloom: ") and "multiply(" in ours
    assert theirs.startswith("  other: ") and "times(" in theirs
    assert [bool(r.arguments) for r in subject.requests] == [True, False, False]
    assert not Campaign(Answering(answer)).check([ADDED, product])


def case_module_text(request: Request) -> str:
    return HloModule.from_text(request.text).to_text(PrintOptions().replace(xla_version=installed_xla()))


# -- texts


def test_the_first_line_that_differs_is_cut_around_the_difference() -> None:
    first = campaigns._first_difference  # pyright: ignore[reportPrivateUsage]
    assert first("a\nb", "a\nc") == "  hloom: b\n  other: c"
    assert first("a\nb", "a") == "  hloom: b\n  other: -"
    assert first("ab", "a") == "  hloom: ab\n  other: a"
    x, y = "x" * 80, "y" * 200
    assert first(f"{x}a{y}", f"{x}b{y}") == f"  hloom: {'x' * 60}a{'y' * 99}\n  other: {'x' * 60}b{'y' * 99}"
    assert first("a", "a") == "  by the number of lines"


def test_elements_are_listed_with_arguments_of_the_same_shape() -> None:
    line = "@b = f32[2,4] broadcast(@p1), dimensions={}\n@r = add(@p0, @b)"
    case = case_of(line, f32(np.arange(8).reshape(2, 4)), f32(1))
    (difference,) = found(case, np.zeros((2, 4), np.float32))
    lines = list(elements(difference, difference.where, "xla"))
    assert lines[0] == "8 of 8 elements of result 0 differ"
    assert lines[1] == "  at [0, 0]: hloom float32[] 1.0, xla float32[] 0.0; of 0.0"
    assert lines[-1] == "  at [1, 1]: hloom float32[] 6.0, xla float32[] 0.0; of 5.0"
    assert len(lines) == 7
    assert len(list(elements(difference, difference.where, "xla", 2))) == 3


def test_a_scalar_has_one_element() -> None:
    (difference,) = found(case_of("@r = negate(@p0)", f32([-5])), f32([7]))
    scalar = dataclasses.replace(
        difference, ours=np.asarray(f32(5)), theirs=np.asarray(f32(7)), where=np.asarray(True)
    )
    assert list(elements(scalar, scalar.where, "cpu")) == [
        "1 of 1 elements of result 0 differ",
        "  at []: hloom float32[] 5.0, cpu float32[] 7.0",
    ]


def test_arrays_are_shown_with_type_and_dimensions() -> None:
    assert shown(f32(0.1)) == "float32[] 0.10000000149011612"
    assert shown(s32([1, 2])) == "int32[2] [1 2]"
    assert shown(np.array([0.5], ml_dtypes.bfloat16)) == "bfloat16[1] [0.5]"
    assert "..." in shown(np.zeros(81)) and "..." not in shown(np.zeros(80))


def test_a_report_lists_families_known_differences_and_findings() -> None:
    report = CampaignReport()
    assert str(report) == "0 cases compared\n0 known differences\n0 unexplained differences, 0 crashes"
    report.cases.update(["sort", "sort", "iota"])
    report.recognized.update(["one", "two", "two"])
    report.findings.append(Finding(ADDED, FindingKind.REFUSED, "an error"))
    report.crashes = 1
    assert str(report).splitlines() == [
        "3 cases compared", "       1 iota", "       2 sort", "3 known differences", "       2 two",
        "       1 one", "1 unexplained difference, 1 crash"]  # fmt: skip
    assert str(report.findings[0]) == (
        "=== by hand/0 (by hand): refused\nan error\n" + program([ADDED])
        + "  p0 = float32[3] [1. 2. 3.]\n  p1 = float32[3] [4. 5. 6.]"
    )  # fmt: skip


# -- passes


def test_passes_refuse_by_the_rule_or_by_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(program([ADDED]), [list(ADDED.arguments)])
    assert Passes("algsimp").run(request).results[0][0].tolist() == [5, 7, 9]
    assert (Passes().backend, Passes().seconds) == ("passes", 0.0)
    with pytest.raises(Refused, match=r"^[\w.-]+: "):
        Passes("algsimp").run(Request("HloModule m\nnonsense", []))

    def fail(*arguments: object) -> Any:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(campaigns, "optimized", fail)
    with pytest.raises(Refused, match=r"^ZeroDivisionError: by hand\n(.*\n)*  test_comparison.py:\d+ fail$"):
        Passes("algsimp").run(request)
