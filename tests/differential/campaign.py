"""Run cases on hloom and on XLA and sort differences into known and unexplained ones."""

from __future__ import annotations

import dataclasses
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

import hloom
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.runtime.executable import Executable
from tests import oracle

from .agreement import disagrees, owed
from .case import Case, program
from .comparison import differs
from .draw import Array
from .explanations import Difference
from .known import DIFFERENCES
from .xla import Answer, Xla, XlaCrashed, XlaRefused

BATCH = 16


@dataclass(frozen=True)
class Finding:
    """An unexplained difference."""

    case: Case
    what: str

    def __str__(self) -> str:
        arguments = "\n".join(f"  p{i} = {_show(a)}" for i, a in enumerate(self.case.arguments))
        return f"=== {self.case}\n{self.what}\n{program([self.case])}{arguments}"


@dataclass
class Report:
    """The result of a campaign.

    Attributes:
        cases: number of compared cases of each family.
        known: number of cases that show each known difference.
        explained: value differences that known ones explain in part.
        findings: the unexplained differences.
    """

    cases: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    explained: list[Difference] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    crashes: int = 0

    def __str__(self) -> str:
        lines = [f"{sum(self.cases.values())} cases compared with XLA:CPU"]
        lines += [f"  {count:6} {family}" for family, count in sorted(self.cases.items())]
        lines += [f"{sum(self.known.values())} known differences"]
        lines += [f"  {count:6} {name}" for name, count in self.known.most_common()]
        return "\n".join(
            [*lines, f"{len(self.findings)} unexplained differences, {self.crashes} crashes of XLA"]
        )


class Campaign:
    """Cases on their way through both implementations.

    Args:
        xla: the oracle.
        backends: hloom's backends, each of which is compared; those that are not the evaluator also with it.
    """

    def __init__(self, xla: Xla, backends: Sequence[str] = ("evaluator",)) -> None:
        self.xla = xla
        self.backends = tuple(backends)
        self.report = Report()

    def check(self, cases: Sequence[Case]) -> None:
        """Compare some cases."""
        for replicas in sorted({case.replicas for case in cases}):
            accepted = [c for c in cases if c.replicas == replicas and self._accepted(c)]
            for start in range(0, len(accepted), BATCH):
                self._compare(accepted[start : start + BATCH])

    # -- checks without XLA

    def _accepted(self, case: Case) -> bool:
        """Check that hloom accepts the case, and again from its own text and proto."""
        try:
            module = HloModule.from_text(program([case]))
            module.verify()
            printed = module.to_text()
            for name, again in (
                ("text", HloModule.from_text(printed)),
                ("proto", HloModule.from_proto(module.to_proto())),
            ):
                # As in XLA, computations may be reordered.
                if sorted(again.to_text().splitlines()) != sorted(printed.splitlines()):
                    self._found(
                        case,
                        f"the print changes on a way through {name}:\n{_first(printed, again.to_text())}",
                    )
        except HloError as error:
            self._found(case, f"hloom refuses: {error}")
            return False
        return True

    # -- with XLA

    def _compare(self, cases: Sequence[Case]) -> None:
        """Run cases as one program; separately if XLA does not run them together."""
        text = program(cases)
        module = HloModule.from_text(text)
        try:
            answer = self.xla.run(text, module.to_proto(), _inputs(cases))
        except (XlaRefused, XlaCrashed) as error:
            self.report.crashes += isinstance(error, XlaCrashed)
            if len(cases) > 1:
                middle = len(cases) // 2
                self._compare(cases[:middle])
                self._compare(cases[middle:])
            else:
                self._found(cases[0], f"XLA does not run it: {str(error)[:1000]}")
            return
        if _print_difference(module, answer):
            self._compare_prints(cases)
        leaves = iter(zip(*answer.results, strict=True))
        for case in cases:
            self.report.cases[case.name.split("/")[0]] += 1
            theirs = [next(leaves) for _ in case.roots]
            for backend in self.backends:
                self._compare_values(case, backend, theirs)

    def _compare_prints(self, cases: Sequence[Case]) -> None:
        """Find the cases that XLA prints otherwise."""
        for case in cases:
            text = program([case])
            module = HloModule.from_text(text)
            different = _print_difference(module, self.xla.run(text, module.to_proto(), []))
            if different:
                self._found(case, different)

    def _compare_values(self, case: Case, backend: str, theirs: Sequence[Sequence[Array]]) -> None:
        executable, ours = self._run(case, backend)
        if executable is None or ours is None:
            return
        if backend != "evaluator":
            self._compare_with_evaluator(case, backend, ours)
        sizes = values(executable, case, _sizes(case.arguments)) if case.tolerance.terms else None
        bounds = analysed(case) if case.tolerance.analysed else None
        explained: set[str] = set()
        for replica in range(case.replicas):
            for output in range(len(case.roots)):
                found, wanted = ours[replica][output], theirs[output][replica]

                def again(arguments: Sequence[Array], at: tuple[int, int] = (replica, output)) -> Array:
                    return values(executable, case, arguments)[at[0]][at[1]]

                if case.dynamic and wanted.size >= found.size:
                    wanted = wanted.reshape(-1)[: found.size].reshape(found.shape)
                if found.dtype != wanted.dtype or found.shape != wanted.shape:
                    what = f"output {output}: {found.dtype}{found.shape}, XLA: {wanted.dtype}{wanted.shape}"
                    self._found(case, what)
                    continue
                of_terms = sizes[replica][output] if sizes else None
                bound = bounds[output] if bounds else None
                where = differs(found, wanted, case.tolerance, of_terms, bound)
                if where.any():
                    difference = Difference(case, found, wanted, where, again, bound, output)
                    explained |= self._explain(difference, f"{backend}, replica {replica}, output {output}")
        self.report.known.update(explained)

    def _run(self, case: Case, backend: str) -> tuple[Executable, list[list[Array]]] | tuple[None, None]:
        """Return a function that runs the case with any arguments, and its results; a finding if it fails."""
        try:
            executable = compiled(dataclasses.replace(case, folded=False), backend)
            if case.folded:
                return executable, [list(compiled(case, backend)())]
            return executable, values(executable, case, case.arguments)
        except HloError as error:
            self._found(case, f"hloom ({backend}) fails: {error}")
        except Exception as error:  # a defect of hloom's, and not the end of the campaign
            self._found(
                case, f"hloom ({backend}) breaks: {type(error).__name__}: {error}\n{_innermost(error)}"
            )
        return None, None

    def _compare_with_evaluator(self, case: Case, backend: str, ours: Sequence[Sequence[Array]]) -> None:
        """Compare a backend's results with the evaluator's; no difference is known here."""
        executable, reference = self._run(case, "evaluator")
        if executable is None or reference is None:
            return
        sizes = values(executable, case, _sizes(case.arguments)) if owed(case).terms else None
        bounds = analysed(case) if owed(case).analysed else None
        for replica in range(case.replicas):
            for output in range(len(case.roots)):
                found, wanted = ours[replica][output], reference[replica][output]
                place = f"{backend} and evaluator, replica {replica}, output {output}"
                if found.dtype != wanted.dtype or found.shape != wanted.shape:
                    what = f"{found.dtype}{found.shape}, evaluator: {wanted.dtype}{wanted.shape}"
                    self._found(case, f"{place}: {what}")
                    continue
                of_terms = sizes[replica][output] if sizes else None
                where = disagrees(case, found, wanted, of_terms, bounds[output] if bounds else None)
                if where.any():
                    elements = _elements(case, found, wanted, where, "evaluator")
                    self._found(case, f"{place}: " + "\n".join(elements))

    def _explain(self, difference: Difference, place: str) -> set[str]:
        """Return the known differences that explain it; a finding if they do not."""
        rest = difference.where.copy()
        names: set[str] = set()
        for known in DIFFERENCES:
            if rest.any() and known.about(difference.case) and known.is_of(oracle.installed_version()):
                explained = rest & known.of(difference)
                if explained.any():
                    names.add(known.name)
                    rest &= ~explained
        if names:
            self.report.explained.append(difference)
        if rest.any():
            self._found(
                difference.case,
                f"{place}: "
                + "\n".join(_elements(difference.case, difference.ours, difference.theirs, rest)),
            )
        return names

    def _found(self, case: Case, what: str) -> None:
        self.report.findings.append(Finding(case, what))


def analysed(case: Case) -> Sequence[Array]:
    """Return the possible error of each element of each result of a case."""
    module = HloModule.from_text(program([dataclasses.replace(case, folded=False)]))
    return cast("Sequence[Array]", ErrorAnalysis(module).run(case.arguments)[1])


def compiled(case: Case, backend: str) -> Executable:
    """Compile a case for hloom."""
    return hloom.compile(HloModule.from_text(program([case])), backend, num_replicas=case.replicas)


def values(executable: Executable, case: Case, arguments: Sequence[Array]) -> list[list[Array]]:
    """Return the leaves that hloom computes, for every replica."""
    return [list(result) for result in executable.run(_by_replica(case, arguments))]


def _by_replica(case: Case, arguments: Sequence[Array]) -> list[list[Array]]:
    count = len(case.parameters)
    return [list(arguments[r * count : (r + 1) * count]) for r in range(case.replicas)]


def _inputs(cases: Sequence[Case]) -> list[list[Array]]:
    """Return the arguments of a program of several cases, for every replica."""
    rows = [_by_replica(case, case.arguments) for case in cases if not case.folded]
    return [[a for row in rows for a in row[replica]] for replica in range(cases[0].replicas)]


def _sizes(arguments: Sequence[Array]) -> list[Array]:
    """Return the magnitudes of floats and complex numbers, the latter as real parts."""
    result: list[Array] = []
    for array in arguments:
        if array.dtype.kind == "c":
            result.append(np.abs(array).astype(array.dtype))
        else:
            result.append(np.abs(array) if array.dtype.kind not in "iub" else array)
    return result


def _print_difference(module: HloModule, answer: Answer) -> str:
    """Return the difference between XLA's and hloom's prints of a program; "" if they are equal."""
    for way, theirs in answer.prints.items():
        options = PrintOptions() if way in ("text", "proto") else getattr(PrintOptions, way)()
        printed = module.to_text(options.replace(xla_version=oracle.installed_version()))
        if theirs.strip() != printed.strip():
            return f"XLA prints the {way} otherwise:\n{_first(printed, theirs)}"
    return ""


def _first(ours: str, theirs: str) -> str:
    """Return the first line in which two texts differ."""
    for a, b in zip((ours + "\n-").splitlines(), (theirs + "\n-").splitlines(), strict=False):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            begin = max(0, at - 60)
            return f"  hloom: {a[begin : at + 100]}\n  other: {b[begin : at + 100]}"
    return "  by the number of lines"


def _innermost(error: Exception) -> str:
    """Return the innermost frames of an error."""
    places = traceback.extract_tb(error.__traceback__)[-6:]
    return "\n".join(f"  {Path(p.filename).name}:{p.lineno} {p.name}" for p in places)


def _elements(
    case: Case, ours: Array, theirs: Array, where: Array, other: str = "XLA", most: int = 6
) -> Iterator[str]:
    """Return some of the differing elements, with the arguments at their index if shapes are equal."""
    yield f"{int(where.sum())} of {where.size} elements differ"
    for index in list(zip(*np.nonzero(where), strict=True))[:most] if where.ndim else [()]:
        place = tuple(map(int, index))
        inputs = [repr(a[place].item()) for a in case.arguments if a.shape == where.shape]
        here, there = (_show(array[place]) for array in (ours, theirs))
        yield f"  at {list(place)}: hloom {here}, {other} {there}" + f"; of {', '.join(inputs)}" * bool(
            inputs
        )


def _show(value: Any) -> str:
    array = np.asarray(value)
    with np.printoptions(threshold=80, linewidth=150, floatmode="unique"):
        return f"{array.dtype.name}{list(array.shape)} {array.tolist() if array.ndim == 0 else array}"
