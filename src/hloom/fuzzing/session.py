"""A run of the fuzzer, which continues from the state that an earlier run left in its folder.

::

    DIR/state.json          the numbers of the next cases, coverage, causes
    DIR/coverage.md         operations × element types × attributes
    DIR/corpus/NAME.hlo     the programs that first covered something, and reduced ones, with arguments (.npz)
    DIR/findings/NAME.md    a page for each cause; NAME.py reproduces it with JAX alone
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import numpy as np

from hloom.errors import HloError, plural
from hloom.fuzzing import pages, reproduction
from hloom.fuzzing.campaign import Campaign, Finding, Subject
from hloom.fuzzing.causes import FindingCause, cause_of, explained_finding, signature, spent, title
from hloom.fuzzing.coverage import Coverage
from hloom.fuzzing.generators import shardings
from hloom.fuzzing.generators.case import Case, program
from hloom.fuzzing.generators.families import (
    CLIENT_FAMILIES,
    FAMILY_NAMES,
    MODULES,
    PROGRAMS,
    draw_case,
    round_robin,
)
from hloom.records import dataclass

GROUP: Final = 96
"""Number of cases after which the state is written."""
FORMAT: Final = 2
"""Number of the form of state.json; another form is refused."""


@dataclass
class Recorded:
    """A cause that has a page in the folder.

    Attributes:
        title: the title of the page.
        where: the pass that introduces the fault; empty if unknown.
        explanation: the name of the known difference; empty if there is none.
        instructions: the number of instructions of the reduced program.
        outcome: of the run of the script with JAX alone; empty if there is no script.
        count: the number of findings with this cause.
        first: the name of the first case with this cause.
    """

    title: str
    where: str
    explanation: str
    instructions: int
    outcome: str
    count: int
    first: str


@dataclass
class SessionState:
    """The state of a session, stored in its folder.

    Attributes:
        seed: the seed of the cases.
        subject: the name of the comparison; a folder holds one comparison.
        next: the number of the next case, counted over all families.
        seconds: the processor time spent.
        format: the number of the form of the file.
        cases: the number of compared cases by family.
        set_aside: the number of differences, by the name of a known one that is a choice, not a defect.
        causes: the recorded causes by their keys.
        signatures: the key of the cause for descriptions of findings, which are not reduced again.
        coverage: the coverage of all programs drawn.
    """

    seed: int
    subject: str
    next: int = 0
    seconds: float = 0.0
    format: int = FORMAT
    cases: Counter[str] = field(default_factory=Counter[str])
    set_aside: Counter[str] = field(default_factory=Counter[str])
    causes: dict[str, Recorded] = field(default_factory=dict[str, Recorded])
    signatures: dict[str, str] = field(default_factory=dict[str, str])
    coverage: Coverage = field(default_factory=Coverage)

    @staticmethod
    def read(path: Path) -> SessionState:
        """Read a state that `write` wrote. Raises HloError (``fuzz.folder``) for any other file."""
        try:
            content: Any = json.loads(path.read_text())
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']}, not {FORMAT}")
            content["causes"] = {key: Recorded(**value) for key, value in content["causes"].items()}
            coverage = content["coverage"]
            content["coverage"] = Coverage(*(Counter[str](coverage[k]) for k in ("types", "attributes")))
            for name in ("cases", "set_aside"):
                content[name] = Counter[str](content[name])
            return SessionState(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = (
                f"{path} is not a state that this version of hloom wrote ({type(error).__name__}: {error}); "
                "state another folder by --out, or remove the file to begin again with the first program"
            )
            raise HloError(message, rule="fuzz.folder") from None

    def write(self, path: Path) -> None:
        """Replace the file atomically by this state."""
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(vars(self), default=vars, indent=1))
        unfinished.replace(path)


class Session:
    """A run of the fuzzer in a folder.

    Args:
        subject: the implementation that is compared with the evaluator.
        name: the name of the comparison, with its options.
        folder: the folder of the state; it is created if it does not exist.
        seed: the seed of the cases; None for that of the folder, or 0 in a new one.
        sharded: whether only whole modules with shardings are drawn, for several devices.
        progress: called with a line of text about the state.

    Raises HloError (``fuzz.folder``) for a folder of another comparison, another seed or another version.
    """

    def __init__(
        self,
        subject: Subject,
        name: str,
        folder: Path,
        seed: int | None = None,
        *,
        sharded: bool = False,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.subject = subject
        self.folder = folder
        self.sharded = sharded
        self.progress = progress
        self.interrupted = False
        for part in ("corpus", "findings"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self.state = self._state(name, seed)

    def _state(self, name: str, seed: int | None) -> SessionState:
        path = self.folder / "state.json"
        if not path.exists():
            return SessionState(seed or 0, name)
        state = SessionState.read(path)
        if state.subject != name or seed not in (None, state.seed):
            message = (
                f"{self.folder} has {state.subject} from seed {state.seed}, not {name}"
                f"{'' if seed is None else f' from seed {seed}'}; state another folder by --out"
            )
            raise HloError(message, rule="fuzz.folder")
        return state

    def run(self, minutes: float) -> None:
        """Draw and compare cases until some processor time is spent, of this process and its children.

        An interrupt ends the run too; the group of cases that it interrupts is drawn again by the next run.
        """
        end = spent(self.subject) + 60 * minutes
        try:
            while (start := spent(self.subject)) < end:
                self.step(GROUP if not self.sharded else GROUP // 8)
                self.state.seconds += spent(self.subject) - start
                self.save()
                left = max(0.0, end - spent(self.subject)) / 60
                self.progress(
                    f"{plural(self.programs, 'program')}, {plural(len(self.state.causes), 'cause')}, "
                    f"{left:.1f} minutes left"
                )
        except KeyboardInterrupt:
            path = self.folder / "state.json"
            self.state = (
                SessionState.read(path)
                if path.exists()
                else SessionState(self.state.seed, self.state.subject)
            )
            self.interrupted = True

    @property
    def programs(self) -> int:
        """The number of compared programs."""
        return sum(self.state.cases.values())

    def step(self, count: int) -> None:
        """Draw and compare the next `count` cases, and record their findings."""
        state = self.state
        fusions = self.subject.backend != "xla"
        families = (MODULES,) if self.sharded else FAMILY_NAMES if fusions else CLIENT_FAMILIES
        numbers = round_robin(families, count, state.next)
        cases = [draw_case(family, number, state.seed, fusions=fusions) for family, number in numbers]
        if self.sharded:
            cases = [shardings.sharded(case, state.seed) for case in cases]
        campaign = Campaign(self.subject)
        for case in cases:
            if state.coverage.add(case.module):
                self.keep(case)
        campaign.check(cases)
        state.next += count
        report = campaign.report
        state.cases.update(report.cases)
        for difference, explanation in report.explained:
            if not explanation.defect:
                state.set_aside[explanation.name] += 1
            else:
                self.record(explained_finding(difference, explanation, self.subject))
        for finding in report.findings:
            self.record(finding)

    def record(self, finding: Finding) -> None:
        """Find the cause of a finding and count it; write a page for a new cause."""
        state = self.state
        name = finding.explanation.name if finding.explanation is not None else finding.case.operation
        brief = f"{signature(finding)}: {name}"
        key = state.signatures.get(brief)
        if key is None:
            self.progress(
                f"{plural(self.programs, 'program')}, {plural(len(state.causes), 'cause')}, "
                f"reducing {finding.case}"
            )
            cause = cause_of(finding, self.subject)
            explanation = cause.finding.explanation
            if explanation is not None and not explanation.defect:
                state.set_aside[explanation.name] += 1
                return
            key = cause.key
            if finding.case.family not in PROGRAMS:
                state.signatures[brief] = key
            if key not in state.causes:
                self._write(cause)
                return
        state.causes[key].count += 1

    def _write(self, cause: FindingCause) -> None:
        """Write the page, and the program, of a new cause; run its script."""
        finding, backend = cause.finding, self.subject.backend
        number = len(self.state.causes) + 1
        stem = f"{number:03}-{re.sub(r'[^a-z0-9]+', '-', cause.key.lower())[:60].strip('-')}"
        path = self.folder / "findings" / f"{stem}.py"
        outcome = ""
        if backend == "xla" and not finding.kind.of_hloom:
            path.write_text(reproduction.script(cause))
            outcome = reproduction.outcome(path, finding)
        path.with_suffix(".md").write_text(pages.page(cause, backend, outcome))
        self.state.causes[cause.key] = Recorded(
            title(cause, backend),
            cause.where,
            finding.explanation.name if finding.explanation is not None else "",
            pages.instructions(finding.case),
            outcome,
            1,
            finding.case.name,
        )
        self.keep(finding.case)

    def keep(self, case: Case) -> None:
        """Write a program, with its arguments, to the corpus."""
        text = program([case])
        stem = self.folder / "corpus" / f"{case.family}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        stem.with_suffix(".hlo").write_text(f"// {case.name}: {case.operation}\n{text}")
        if case.arguments and not case.folded:
            np.savez(stem.with_suffix(".npz"), *case.arguments)

    def save(self) -> None:
        """Write the state and the coverage table to the folder."""
        self.state.write(self.folder / "state.json")
        rows = [
            f"| {opcode} | {types} | {attributes} |"
            for opcode, types, attributes in self.state.coverage.table()
        ]
        undrawn = ", ".join(self.state.coverage.undrawn)
        table = ["| operation | element types | attributes |", "|---|---|---|", *rows]
        text = [f"# Coverage\n\n{self.state.coverage.summary()}\n", *table, f"\nNever drawn: {undrawn}\n"]
        (self.folder / "coverage.md").write_text("\n".join(text))
