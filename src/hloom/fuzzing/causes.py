"""The cause of a finding: the smallest program that shows it, and the pass that introduces it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np

from hloom.analysis.combiners import grouping
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
    elements,
    inputs,
)
from hloom.fuzzing.child import Child, Crashed, Refused, Request
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case, as_case, program
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.known import KnownDifference
from hloom.fuzzing.limits import ends_in_time, processor_seconds
from hloom.ir.module import HloModule
from hloom.ir.traits import Roundoff
from hloom.ir.value import Value
from hloom.operations.combiners import Grouping
from hloom.operations.control_flow import Fusion
from hloom.operations.conversion import Convert
from hloom.passes.pipeline import Pipeline
from hloom.records import dataclass

REDUCTION_SECONDS: Final = 90.0
"""Processor time for the reduction of one finding."""
CODE_GENERATION: Final = "code generation"
STABLEHLO: Final = "StableHLO passes of the client"
_STRUCTURE: Final = {"parameter", "constant", "tuple", "get-tuple-element"}


@dataclass(frozen=True)
class FindingCause:
    """The cause of a finding: a reduced program, and where the fault is introduced.

    Attributes:
        finding: the finding of the reduced program.
        where: the name of the pass that introduces the fault, "code generation" or "StableHLO passes of the
            client"; empty if it is unknown.
        rewrite: the rewrite in the pass, or the instruction whose code is wrong; empty if unknown.
        before, after: the program before and after the pass; None if unknown.
    """

    finding: Finding
    where: str
    rewrite: str = ""
    before: HloModule | None = None
    after: HloModule | None = None

    @property
    def key(self) -> str:
        """A text that is equal for findings of the same cause."""
        finding = self.finding
        named = " ".join(sorted(opcodes(finding.case)))
        if finding.explanation is not None:
            named = finding.explanation.name
        elif finding.kind is FindingKind.REFUSED:  # the message says what is refused
            named = ""
        return f"{signature(finding)} in {self.where or 'an unknown pass'}: {named}"


def signature(finding: Finding) -> str:
    """Return a description of a fault that contains no sizes, values or names."""
    if finding.difference is not None:
        return nature(finding.difference)
    if finding.kind in (FindingKind.CRASHED, FindingKind.REFUSED):
        return f"{finding.kind}: {message(finding.what)}"
    return str(finding.kind)


def message(error: str) -> str:
    """Return the words of an error, up to the first instruction in it, without sizes, types and names."""
    text = error if error.startswith("the process") else error.split("\n", 1)[0]
    text = re.sub(r"\b[\w.-]*\d[\w.-]*|\bpred\b|\[[\d,]*\]|\{[^}]*\}", "", re.split(r"[%@]\w", text)[0])
    return " ".join(text.split())[:160].rstrip(" :")


def nature(difference: Difference) -> str:
    """Return the most special values that differ: signs of zeros, NaN, infinities or other numbers."""
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
    """Return the opcodes in a case, except parameters, constants and tuples."""
    return {i.opcode for i in case.module.instructions()} - _STRUCTURE


def title(cause: FindingCause, backend: str) -> str:
    """Return a title of one line for the page of a cause."""
    finding = cause.finding
    if finding.kind.of_hloom:
        backend = "hloom"
    name = {"xla": "XLA:CPU", "cpu": "hloom's native code", "passes": "hloom's passes"}.get(backend, backend)
    about = (
        finding.explanation.name
        if finding.explanation is not None
        else ", ".join(sorted(opcodes(finding.case)))
    )
    where = f" ({cause.where})" if cause.where else ""
    return f"{name}{where}: {signature(finding)}: {about}"


# -- the smallest program


def observed(subject: Subject, case: Case) -> Finding | None:
    """Return the finding of a case on a subject, or None if results agree.

    If known differences explain it, the finding has the first of them.
    """
    campaign = Campaign(subject)
    campaign.check([case])
    if campaign.report.findings:
        return campaign.report.findings[0]
    for difference, explanation in campaign.report.explained:
        return explained_finding(difference, explanation, subject)
    return None


def explained_finding(difference: Difference, explanation: KnownDifference, subject: Subject) -> Finding:
    """Return the finding of a difference that a known one explains."""
    what = "\n".join(elements(difference, difference.where, subject.backend))
    return Finding(difference.case, FindingKind.VALUES, what, difference, explanation)


def reduced(finding: Finding, subject: Subject) -> Finding:
    """Return the finding of the smallest program with the same fault, reduced in limited time."""
    case = finding.case
    if case.replicas > 1 or case.dynamic:  # the reduction knows programs of one device and fixed sizes
        return finding
    fault, end = signature(finding), spent(subject) + REDUCTION_SECONDS
    smallest, order = finding, _order(case.module)

    def shows(module: HloModule, arguments: Sequence[Value]) -> bool:
        nonlocal smallest
        if _order(module) < order or _has_unused(module):
            return False
        candidate = observed(subject, as_case(module, [np.asarray(a) for a in arguments], case))
        if candidate is None or signature(candidate) != fault or candidate.explanation != finding.explanation:
            return False
        smallest = candidate
        return True

    try:
        reduce(case.unfolded.module, case.arguments, shows, until=lambda: spent(subject) > end)
    except HloError:  # the program shows its fault only together with others
        return finding
    return _labelled(smallest, subject)


def _has_unused(module: HloModule) -> bool:
    """Return whether a fusion computes what it does not use, which XLA's verifier refuses."""
    inside = [
        i for f in module.instructions() if isinstance(f.operation, Fusion) for i in f.called_computations[0]
    ]
    return any(not i.users and not i.is_root for i in inside)


def spent(subject: Subject) -> float:
    """Return the processor time of this process and of all its children, in seconds."""
    return processor_seconds() + subject.seconds


def _order(module: HloModule) -> Grouping:
    """Return the orders in which all combiners of a program may combine elements.

    With fewer of them than before, the result of a reduction would be a matter of the implementation.
    """
    combining = [i for i in module.instructions() if i.operation.roundoff is Roundoff.COMBINED]
    return min((grouping(c) for i in combining for c in i.called_computations), default=Grouping.FREE)


def _labelled(finding: Finding, subject: Subject) -> Finding:
    """Return the finding with the name of its operation, if the reduced program computes only one.

    Known differences are looked up by this name.
    """
    computing = [
        i for i in finding.case.module.entry.instructions if i.opcode not in _STRUCTURE and i.shape.is_array
    ]
    if len(computing) != 1 or finding.explanation is not None:
        return finding
    kinds = [o.shape.element_type.name for o in computing[0].operands[:1] if o.shape.is_array]
    kinds += [computing[0].shape.element_type.name] * isinstance(computing[0].operation, Convert)
    case = replace(finding.case, operation=" ".join([computing[0].opcode, *kinds]))
    return observed(subject, case) or finding


# -- the pass


def cause_of(finding: Finding, subject: Subject) -> FindingCause:
    """Reduce the program of a finding, and find the pass that introduces the fault."""
    smallest = reduced(finding, subject)
    if finding.kind.of_hloom:
        return FindingCause(smallest, "")
    if subject.backend == "xla":
        return _in_xla(smallest)
    if isinstance(subject, Passes) or smallest.kind is not FindingKind.VALUES or smallest.case.devices > 1:
        return _in_passes(smallest, subject)
    return _in_hloom(smallest)


def _in_hloom(finding: Finding) -> FindingCause:
    """Find the pass of the cpu backend, or the instruction whose native code is wrong."""
    case = finding.case.unfolded
    receiver, sender = Pipe(duplex=False)
    process = get_context("spawn").Process(target=_bisect, args=(sender, program([case]), case.arguments))
    process.start()
    sender.close()
    try:  # wrong code may end the process, or never end
        where, what, *protos = receiver.recv() if ends_in_time(lambda: receiver.poll(1.0)) else ("", "")
    except EOFError:
        where, what, protos = CODE_GENERATION, "", []
    process.kill()
    process.join()
    return FindingCause(finding, where, what, *map(HloModule.from_proto, protos))


def _bisect(sender: Connection, text: str, arguments: Sequence[Array]) -> None:
    """Send the step at which a program becomes wrong: its name, what it does, the programs around it."""
    step = bisect(HloModule.from_text(text), arguments)
    if step is None:
        sender.send(("", ""))
    elif step.pass_name:
        sender.send((step.pass_name, step.rewrite, step.before.to_proto(), step.after.to_proto()))
    else:
        sender.send((CODE_GENERATION, step.culprit.instruction if step.culprit is not None else ""))


def _in_passes(finding: Finding, subject: Subject) -> FindingCause:
    """Find the first of hloom's passes after which the fault is observed."""
    names: list[str] = []
    for item in selected(subject.names if isinstance(subject, Passes) else ""):
        names += [each.name for each in item.flat()] if isinstance(item, Pipeline) else [item.name]
    before = finding.case.module
    for count in range(1, len(names) + 1):
        if observed(Passes(",".join(names[:count])), finding.case) is not None:
            return FindingCause(finding, names[count - 1], "", before)
    return FindingCause(finding, CODE_GENERATION)


def _in_xla(finding: Finding) -> FindingCause:
    """Find the pass of XLA that introduces the fault, from dumps of the program after each pass."""
    case = finding.case
    with tempfile.TemporaryDirectory(prefix="hloom-fuzz-") as folder:
        dumped = _dumps(case, Path(folder))
        if dumped is None:
            return FindingCause(finding, STABLEHLO)
        if finding.kind in (FindingKind.CRASHED, FindingKind.REFUSED):
            verified = re.search(r"Failed after (?!pipeline-start)([\w-]+)", finding.what)
            return FindingCause(finding, verified[1] if verified is not None else _next_pass(dumped))
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
    """Return whether a program, on the evaluator, has the results of a case."""
    results = flat(Evaluator().run(module.entry, arguments))
    try:
        return not any(differences(case, [[np.asarray(leaf) for leaf in results]]))
    except FormError:
        return False


def _dumps(case: Case, folder: Path) -> DumpedProgram | None:
    """Compile a case with XLA, dumping each pass to a folder; None if compilation ends before the first."""
    flags = (f"--xla_dump_to={folder}", "--xla_dump_hlo_pass_re=.*", "--xla_dump_large_constants")
    with Child("xla", flags) as child, suppress(Refused, Crashed):  # the dumps up to there count
        child.run(Request(program([case]), inputs([case]), case.partitions))
    try:
        return max(dumped_programs(folder), key=lambda each: len(each.passes))
    except HloError:
        return None


def _next_pass(dumped: DumpedProgram) -> str:
    """Return the name of the pass that ran when compilation ended, by the last dump; "" if unknown."""
    if any("after_optimizations" in stage.path.name for stage in dumped.stages) or not dumped.passes:
        return CODE_GENERATION if dumped.passes else ""
    match = re.search(r"\.before_([\w-]+?)\.", dumped.passes[-1].path.name)
    return match[1] if match is not None and match[1] != "pipeline-end" else CODE_GENERATION
