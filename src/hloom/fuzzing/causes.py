"""The cause of a finding: the smallest program that shows it, and the pass that introduces it."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from hloom.debug.bisection import bisect, bisect_dumps
from hloom.debug.optimization import selected
from hloom.debug.reduction import reduce
from hloom.debug.statistics import flat
from hloom.dumps import DumpedProgram, dumped_programs
from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.files import load
from hloom.fuzzing.campaign import (
    Campaign,
    Finding,
    FindingKind,
    FormError,
    Passes,
    Subject,
    differences,
    inputs,
)
from hloom.fuzzing.child import Child, Crashed, Refused, Request
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case, as_case, program
from hloom.fuzzing.generators.draw import Array
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.passes.pipeline import Pipeline

REDUCTION_SECONDS: Final = 90.0
"""Time for the reduction of one finding."""
CODE_GENERATION: Final = "code generation"
STABLEHLO: Final = "StableHLO passes of the client"
_STRUCTURE: Final = {"parameter", "constant", "tuple", "get-tuple-element"}


@dataclass(frozen=True)
class FindingCause:
    """Why a subject differs from the evaluator.

    Attributes:
        finding: the reduced program, with its difference or error.
        where: the pass that introduces the fault, "code generation" or "StableHLO passes of the client";
            empty if that is not known.
        rewrite: the rewrite or the instruction in it, if known.
        before, after: the program around the pass, if known.
    """

    finding: Finding
    where: str
    rewrite: str = ""
    before: HloModule | None = None
    after: HloModule | None = None

    @property
    def key(self) -> str:
        """A text that findings of the same cause share."""
        known = self.finding.known
        named = known.name if known is not None else " ".join(sorted(opcodes(self.finding.case)))
        return f"{signature(self.finding)} in {self.where or 'an unknown pass'}: {named}"


def signature(finding: Finding) -> str:
    """Return what is wrong, in words that do not depend on sizes, values and names."""
    if finding.difference is not None:
        return nature(finding.difference)
    if finding.kind in (FindingKind.CRASHED, FindingKind.REFUSED):
        words = re.sub(r"[%@]?\b[\w.-]*\d[\w.-]*|\[[\d,]*\]|\{[^}]*\}", "", finding.what.split("\n\t")[0])
        return f"{finding.kind}: {' '.join(words.split())[:160]}"
    return str(finding.kind)


def nature(difference: Difference) -> str:
    """Return which values are exchanged: signs of zeros, NaN, infinities or numbers."""
    ours, theirs = (a[difference.where] for a in (difference.ours, difference.theirs))
    if ours.dtype.kind in "biu" or not hasattr(ours, "real"):
        return "numbers"
    with np.errstate(all="ignore"):
        ours, theirs = (a.astype(np.complex128) for a in (ours, theirs))
        if (ours == theirs).all():
            return "signs of zeros"
        if (np.isnan(ours) != np.isnan(theirs)).any():
            return "NaN"
        return "infinities" if (np.isinf(ours) != np.isinf(theirs)).any() else "numbers"


def opcodes(case: Case) -> set[str]:
    """Return the operations of a case, without those of structure."""
    return {i.opcode for i in case.module.instructions()} - _STRUCTURE


# -- the smallest program


def observed(subject: Subject, case: Case) -> Finding | None:
    """Return the finding of a case on a subject; one that known differences explain has their name."""
    campaign = Campaign(subject)
    campaign.check([case])
    if campaign.report.findings:
        return campaign.report.findings[0]
    for difference, known in campaign.report.explained:
        return Finding(case, FindingKind.VALUES, known.reason, difference, known)
    return None


def reduced(finding: Finding, subject: Subject) -> Finding:
    """Return the finding of the smallest program, found in limited time, that shows the same fault."""
    case = finding.case
    if case.replicas > 1 or case.dynamic:  # the reduction knows programs of one device and fixed sizes
        return finding
    wanted, end = signature(finding), time.monotonic() + REDUCTION_SECONDS
    smallest = finding

    def shows(module: HloModule, arguments: Sequence[Value]) -> bool:
        nonlocal smallest
        if time.monotonic() > end:
            return False
        candidate = observed(subject, as_case(module, [np.asarray(a) for a in arguments], case))
        if candidate is None or signature(candidate) != wanted or candidate.known != finding.known:
            return False
        smallest = candidate
        return True

    try:
        reduce(case.unfolded.module, case.arguments, shows)
    except HloError:  # the program shows its fault only together with others
        return finding
    return _labelled(smallest, subject)


def _labelled(finding: Finding, subject: Subject) -> Finding:
    """Name the operation of a program that has been reduced to one, by which known differences are found."""
    computing = [
        i for i in finding.case.module.entry.instructions if i.opcode not in _STRUCTURE and i.shape.is_array
    ]
    if len(computing) != 1 or finding.known is not None:
        return finding
    kinds = [o.shape.element_type.name for o in computing[0].operands[:1] if o.shape.is_array]
    kinds += [computing[0].shape.element_type.name] * (computing[0].opcode == "convert")
    case = replace(finding.case, operation=" ".join([computing[0].opcode, *kinds]))
    return observed(subject, case) or finding


# -- the pass


def cause_of(finding: Finding, subject: Subject) -> FindingCause:
    """Reduce a finding and search the pass that introduces it."""
    smallest = reduced(finding, subject)
    if subject.backend == "xla":
        return _in_xla(smallest)
    if isinstance(subject, Passes) or smallest.kind is not FindingKind.VALUES or smallest.case.devices > 1:
        return _in_passes(smallest, subject)
    return _in_hloom(smallest)


def _in_hloom(finding: Finding) -> FindingCause:
    """Search the pass of the cpu backend, or the instruction of native code."""
    step = bisect(finding.case.unfolded.module, finding.case.arguments)
    if step is None:
        return FindingCause(finding, "")
    if step.pass_name:
        return FindingCause(finding, step.pass_name, step.rewrite, step.before, step.after)
    return FindingCause(
        finding, CODE_GENERATION, step.culprit.instruction if step.culprit is not None else ""
    )


def _in_passes(finding: Finding, subject: Subject) -> FindingCause:
    """Search the first of hloom's passes after which the finding is there."""
    names: list[str] = []
    for item in selected(subject.names if isinstance(subject, Passes) else ""):
        names += [each.name for each in item.flat()] if isinstance(item, Pipeline) else [item.name]
    before = finding.case.module
    for count in range(1, len(names) + 1):
        if observed(Passes(",".join(names[:count])), finding.case) is not None:
            return FindingCause(finding, names[count - 1], "", before)
    return FindingCause(finding, CODE_GENERATION)


def _in_xla(finding: Finding) -> FindingCause:
    """Search the pass of XLA, in dumps of the program after each one."""
    case = finding.case
    with tempfile.TemporaryDirectory(prefix="hloom-fuzz-") as folder:
        dumped = _dumps(case, Path(folder))
        if dumped is None:
            return FindingCause(finding, STABLEHLO)
        if finding.kind in (FindingKind.CRASHED, FindingKind.REFUSED):
            return FindingCause(finding, _next_pass(dumped))
        arguments = [] if case.folded else case.arguments_of_devices[0]
        if case.devices > 1 or not dumped.passes:
            return FindingCause(finding, "")
        try:
            if not _same(case, load(dumped.stages[0].path), arguments):
                return FindingCause(finding, STABLEHLO)
            step = bisect_dumps(dumped, lambda module: arguments)
        except HloError:
            return FindingCause(finding, "")
        if step is None:
            return FindingCause(finding, CODE_GENERATION)
        return FindingCause(finding, step.pass_name, step.rewrite, step.before, step.after)


def _same(case: Case, module: HloModule, arguments: Sequence[Array]) -> bool:
    """Return whether a program has the results of a case, on the evaluator."""
    results = flat(Evaluator().run(module.entry, arguments))
    try:
        return not any(differences(case, [[np.asarray(leaf) for leaf in results]]))
    except FormError:
        return False


def _dumps(case: Case, folder: Path) -> DumpedProgram | None:
    """Compile a program on XLA with dumps after each pass; None if the compiler does not see it."""
    flags = (f"--xla_dump_to={folder}", "--xla_dump_hlo_pass_re=.*", "--xla_dump_large_constants")
    with Child("xla", flags) as child, suppress(Refused, Crashed):  # the dumps up to there count
        child.run(Request(program([case]), inputs([case]), case.partitions))
    try:
        return max(dumped_programs(folder), key=lambda each: len(each.passes))
    except HloError:
        return None


def _next_pass(dumped: DumpedProgram) -> str:
    """Return the pass after the last dump of a compilation that ended there."""
    if any("after_optimizations" in stage.path.name for stage in dumped.stages) or not dumped.passes:
        return CODE_GENERATION if dumped.passes else ""
    match = re.search(r"\.before_([\w-]+?)\.", dumped.passes[-1].path.name)
    return match[1] if match is not None and match[1] != "pipeline-end" else CODE_GENERATION
