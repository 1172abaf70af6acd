"""Run cases on a subject and on the reference evaluator, and sort the differences into known and new ones."""

from __future__ import annotations

import dataclasses
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from hloom.debug.agreement import within
from hloom.debug.backends import run_on
from hloom.debug.optimization import optimized
from hloom.debug.statistics import flat
from hloom.debug.tolerance import Tolerance
from hloom.errors import HloError, plural
from hloom.fuzzing.child import Answer, Crashed, Refused, Request
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case, installed_xla, program
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.known import DIFFERENCES, KnownDifference
from hloom.fuzzing.limits import time_limit
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.records import dataclass

LINES_OF_A_PROGRAM: Final = 40
"""Cases are run together in programs of about this many instructions."""


class Subject(Protocol):
    """An implementation that is compared with the reference evaluator."""

    @property
    def backend(self) -> str:
        """The name of the backend."""
        ...

    @property
    def seconds(self) -> float:
        """The processor time of a process of its own that has not ended yet."""
        ...

    def run(self, request: Request) -> Answer:
        """Run a program on all devices. Raises Refused for an error, and Crashed if the process ends."""
        ...


@dataclass(frozen=True)
class Passes:
    """A subject that runs passes of hloom, and then the evaluator.

    Attributes:
        names: the names of the passes, separated by commas; if empty, all passes of the cpu backend.
    """

    names: str = ""

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return "passes"

    @property
    def seconds(self) -> float:
        """0: the passes run in this process."""
        return 0.0

    def run(self, request: Request) -> Answer:
        """Run the passes on a program, and evaluate it. Raises Refused for an error."""
        try:
            with time_limit():
                module = optimized(HloModule.from_text(request.text), self.names)
                module.config.replica_count = len(request.arguments)
                return Answer([flat(result) for result in run_on("evaluator", module, request.arguments)])
        except HloError as error:
            raise Refused(f"{error.rule}: {error}") from error
        except Exception as error:  # a pass breaks
            raise Refused(f"{type(error).__name__}: {error}\n{_innermost(error)}") from error


class FindingKind(StrEnum):
    """The class of a finding."""

    VALUES = "wrong values"
    FORM = "wrong shapes"
    REFUSED = "refused"
    CRASHED = "crash"
    EVALUATOR = "the evaluator fails"
    PRINT = "another print"

    @property
    def of_hloom(self) -> bool:
        """Return whether hloom is at fault: its evaluator, verifier, parser or printer."""
        return self in (FindingKind.EVALUATOR, FindingKind.PRINT)


@dataclass(frozen=True)
class Finding:
    """A case on which the subject and the evaluator disagree, or one of them fails.

    Attributes:
        case: the case.
        kind: the class of the finding.
        what: the differing elements, or the error, as text.
        difference: the differing result; None if the results are not different values.
        explanation: the known difference that explains it; None if none does.
    """

    case: Case
    kind: FindingKind
    what: str
    difference: Difference | None = None
    explanation: KnownDifference | None = None

    def __str__(self) -> str:
        arguments = "\n".join(f"  p{i} = {shown(a)}" for i, a in enumerate(self.case.arguments))
        return f"=== {self.case}: {self.kind}\n{self.what}\n{program([self.case])}{arguments}"


@dataclass
class CampaignReport:
    """The result of a campaign.

    Attributes:
        cases: the number of compared cases of each family.
        recognized: the number of cases that show each known difference, by its name.
        explained: the differing results of which some elements are explained, with the known difference that
            explains them.
        findings: the differences that no known difference explains, and the errors.
        crashes: the number of programs at which the subject's process ended.
    """

    cases: Counter[str] = field(default_factory=Counter[str])
    recognized: Counter[str] = field(default_factory=Counter[str])
    explained: list[tuple[Difference, KnownDifference]] = field(
        default_factory=list[tuple[Difference, KnownDifference]]
    )
    findings: list[Finding] = field(default_factory=list[Finding])
    crashes: int = 0

    def __str__(self) -> str:
        lines = [f"{plural(sum(self.cases.values()), 'case')} compared"]
        lines += [f"  {count:6} {family}" for family, count in sorted(self.cases.items())]
        lines += [plural(sum(self.recognized.values()), "known difference")]
        lines += [f"  {count:6} {name}" for name, count in self.recognized.most_common()]
        return "\n".join(
            [
                *lines,
                f"{plural(len(self.findings), 'unexplained difference')}, "
                f"{plural(self.crashes, 'crash', 'crashes')}",
            ]
        )


class Campaign:
    """A comparison of cases on a subject and on the evaluator.

    Args:
        subject: the implementation that is compared.
        prints: whether XLA's prints of programs are compared with hloom's, too.
    """

    def __init__(self, subject: Subject, *, prints: bool = False) -> None:
        self.subject = subject
        self.prints = prints
        self.known = known_differences() if subject.backend == "xla" else ()
        self.report = CampaignReport()

    def check(self, cases: Sequence[Case]) -> None:
        """Compare cases, and add the results to the report."""
        accepted = [case for case in cases if self._accepted(case)]
        for batch in batches(accepted):
            self._compare(batch)

    # -- checks without the subject

    def _accepted(self, case: Case) -> bool:
        """Return whether hloom accepts a case, and its own text and proto of it; record a finding if not."""
        try:
            module = case.module
            module.verify()
            printed = module.to_text()
            for name, again in (
                ("text", HloModule.from_text(printed)),
                ("proto", HloModule.from_proto(module.to_proto())),
            ):
                # As in XLA, computations may be reordered.
                if sorted(again.to_text().splitlines()) != sorted(printed.splitlines()):
                    line = _first_difference(printed, again.to_text())
                    self._found(
                        case, FindingKind.PRINT, f"the print changes on a way through {name}:\n{line}"
                    )
        except HloError as error:
            self._found(case, FindingKind.EVALUATOR, f"hloom refuses: {error}")
            return False
        return True

    # -- with the subject

    def _compare(self, cases: Sequence[Case], *, again: bool = False) -> None:
        """Run cases as one program and compare the results; halve the cases if the program fails.

        A single case that ends the process must do so again: another program may have ended it, or the
        machine may have been busy.
        """
        text = program(cases)
        module = HloModule.from_text(text)
        proto = module.to_proto() if self.prints else b""
        try:
            answer = self.subject.run(Request(text, inputs(cases), cases[0].partitions, proto))
        except (Refused, Crashed) as error:
            self.report.crashes += isinstance(error, Crashed)
            if len(cases) > 1:
                middle = len(cases) // 2
                self._compare(cases[:middle])
                self._compare(cases[middle:])
            elif isinstance(error, Crashed) and not again:
                self._compare(cases, again=True)
            else:
                kind = FindingKind.CRASHED if isinstance(error, Crashed) else FindingKind.REFUSED
                self._found(cases[0], kind, str(error)[:1000])
            return
        if _print_difference(module, answer):
            self._compare_prints(cases)
        leaves = iter(zip(*answer.results, strict=True))
        for case in cases:
            self.report.cases[case.family] += 1
            theirs = [next(leaves) for _ in case.roots]
            self._compare_values(case, [list(of_device) for of_device in zip(*theirs, strict=True)])

    def _compare_prints(self, cases: Sequence[Case]) -> None:
        """Record a finding for each case that XLA prints differently from hloom."""
        for case in cases:
            module = case.module
            answer = self.subject.run(Request(program([case]), [], 1, module.to_proto()))
            difference = _print_difference(module, answer)
            if difference:
                self._found(case, FindingKind.PRINT, difference)

    def _compare_values(self, case: Case, theirs: list[list[Array]]) -> None:
        try:
            with time_limit():
                names = self._explain(case, list(differences(case, theirs)))
        except FormError as error:
            self._found(case, FindingKind.FORM, str(error))
        except HloError as error:
            self._found(case, FindingKind.EVALUATOR, f"hloom fails: {error}")
        except Exception as error:  # a defect of hloom's, and not the end of the campaign
            what = f"hloom breaks: {type(error).__name__}: {error}\n{_innermost(error)}"
            self._found(case, FindingKind.EVALUATOR, what)
        else:
            self.report.recognized.update(names)

    def _explain(self, case: Case, found: Sequence[Difference]) -> set[str]:
        """Return the names of the known differences that explain some elements.

        Elements that none of them explains are recorded as a finding.
        """
        names: set[str] = set()
        for difference in found:
            remaining, reasons = unexplained(difference, self.known)
            self.report.explained += [(difference, reason) for reason in reasons]
            names |= {reason.name for reason in reasons}
            if remaining.any():
                what = "\n".join(elements(difference, remaining, self.subject.backend))
                self._found(case, FindingKind.VALUES, what, dataclasses.replace(difference, where=remaining))
                return names
        return names

    def _found(self, case: Case, kind: FindingKind, what: str, difference: Difference | None = None) -> None:
        self.report.findings.append(Finding(case, kind, what, difference))


class FormError(Exception):
    """A result of the subject has another shape or element type than the evaluator's."""


def known_differences() -> tuple[KnownDifference, ...]:
    """Return the known differences of the installed version of XLA."""
    installed = installed_xla()
    return tuple(each for each in DIFFERENCES if each.is_of(installed))


def batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield groups of cases that form one program: with equal device counts, and few enough instructions."""
    for devices in sorted({(case.replicas, case.partitions) for case in cases}):
        batch: list[Case] = []
        for case in cases:
            if (case.replicas, case.partitions) != devices:
                continue
            size = sum(len(each.lines) for each in (*batch, case))
            if batch and (size > LINES_OF_A_PROGRAM or case.partitions > 1):
                yield batch
                batch = []
            batch.append(case)
        yield batch


def inputs(cases: Sequence[Case]) -> list[list[Array]]:
    """Return the arguments of a program of several cases, for every device."""
    rows = [case.arguments_of_devices for case in cases if not case.folded]
    return [[a for row in rows for a in row[device]] for device in range(cases[0].devices)]


def differences(case: Case, theirs: Sequence[Sequence[Array]]) -> Iterator[Difference]:
    """Yield the results that differ by more than their rounding errors.

    Args:
        case: the case.
        theirs: for each device, the leaves of the subject's result.

    Raises FormError for a result with another shape or type, and HloError if the evaluator fails.
    """
    unfolded = case.unfolded
    expected = evaluated(unfolded, unfolded.arguments)
    bounds: Any = None
    for device in range(case.devices):
        for output in range(len(case.roots)):
            ours, other = expected[device][output], theirs[device][output]
            if case.dynamic and other.size >= ours.size:
                other = other.reshape(-1)[: ours.size].reshape(ours.shape)
            if ours.dtype != other.dtype or ours.shape != other.shape:
                message = f"result {output}: {ours.dtype}{ours.shape}, not {other.dtype}{other.shape}"
                raise FormError(message)
            if within(other, ours, 0.0).all():
                continue
            if bounds is None:
                single = unfolded.single_partition
                results = [tuple(of_device) for of_device in expected[:: case.partitions]]
                bounds = Tolerance().bounds_of_devices(single.module, single.arguments_of_devices, results)
            bounds_of_device = bounds[device // case.partitions]
            bound = np.broadcast_to(np.asarray(bounds_of_device[output], np.float64), ours.shape)
            where = ~within(other, ours, bound)
            if where.any():

                def again(arguments: Sequence[Array], at: tuple[int, int] = (device, output)) -> Array:
                    return evaluated(unfolded, arguments)[at[0]][at[1]]

                yield Difference(case, ours, other, where, again, bound, output, device)


def evaluated(case: Case, arguments: Sequence[Array]) -> list[list[Array]]:
    """Return, for each device, the leaves of the evaluator's result.

    The partitions of a replica all get the whole arrays.
    """
    unpartitioned = dataclasses.replace(case.single_partition, arguments=tuple(arguments))
    module = unpartitioned.module
    module.config.replica_count = case.replicas
    results = [flat(result) for result in run_on("evaluator", module, unpartitioned.arguments_of_devices)]
    return [result for result in results for _ in range(case.partitions)]


def unexplained(
    difference: Difference, known: Sequence[KnownDifference]
) -> tuple[Array, list[KnownDifference]]:
    """Return a mask of the elements that no known difference explains.

    Also returns the known differences that explain other elements.
    """
    remaining, reasons = difference.where.copy(), list[KnownDifference]()
    for each in known:
        if remaining.any() and each.about(difference.case):
            explained = remaining & each.of(difference)
            if explained.any():
                reasons.append(each)
                remaining &= ~explained
    return remaining, reasons


# -- texts


def _print_difference(module: HloModule, answer: Answer) -> str:
    """Return the difference between XLA's and hloom's prints of a program; "" if they are equal."""
    for way, theirs in answer.prints.items():
        options = PrintOptions() if way in ("text", "proto") else getattr(PrintOptions, way)()
        printed = module.to_text(options.replace(xla_version=installed_xla()))
        if theirs.strip() != printed.strip():
            return f"XLA prints the {way} otherwise:\n{_first_difference(printed, theirs)}"
    return ""


def _first_difference(ours: str, theirs: str) -> str:
    """Return the first line in which two texts differ, as each has it."""
    for a, b in zip((ours + "\n-").splitlines(), (theirs + "\n-").splitlines(), strict=False):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            begin = max(0, at - 60)
            return f"  hloom: {a[begin : at + 100]}\n  other: {b[begin : at + 100]}"
    return "  by the number of lines"


def _innermost(error: Exception) -> str:
    """Return the innermost stack frames of an error as text."""
    places = traceback.extract_tb(error.__traceback__)[-6:]
    return "\n".join(f"  {Path(p.filename).name}:{p.lineno} {p.name}" for p in places)


def elements(difference: Difference, where: Array, other: str, most: int = 6) -> Iterator[str]:
    """Yield lines that describe the first `most` of the differing elements.

    A line has the values of arguments at the same index if their shape is that of the result.

    Args:
        difference: the differing result.
        where: a mask of the elements to describe.
        other: the name of the subject.
        most: the maximum number of elements.
    """
    yield f"{int(where.sum())} of {where.size} elements of result {difference.output} differ"
    for index in list(zip(*np.nonzero(where), strict=True))[:most] if where.ndim else [()]:
        position = tuple(map(int, index))
        values = [repr(a[position].item()) for a in difference.case.arguments if a.shape == where.shape]
        here, there = (shown(array[position]) for array in (difference.ours, difference.theirs))
        yield f"  at {list(position)}: hloom {here}, {other} {there}" + f"; of {', '.join(values)}" * bool(
            values
        )


def shown(value: Any) -> str:
    """Return an array as text, with element type and dimensions."""
    array = np.asarray(value)
    with np.printoptions(threshold=80, linewidth=150, floatmode="unique"):
        return f"{array.dtype.name}{list(array.shape)} {array.tolist() if array.ndim == 0 else array}"
