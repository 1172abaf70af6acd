"""HLO file tests: a program and its expectations in one `.hlo` file.

::

    // RUN: verify
    // EXPECT-ERROR: reshape.element-count        parsing or verifying ends with this rule

    // RUN: print                                 print, print short, print canonical ...
    // CHECK: ROOT %sum = f32[] add               lines of the output that hold these texts, in this order
    // CHECK-NEXT: }                              ... the very next line
    // CHECK-NOT: constant                        no line between the neighbouring checks holds this

    // RUN: opt --passes=cse,algsimp              the program after passes, which keep its values for drawn
                                                  arguments; `--reorders`: within rounding errors

    // RUN: kernels --target=x86-64-v4            the kernels of the compiled program: plans, work and forms

    // run: main(f32[2]{1,2}) == f32[2]{3,4}      sent to every backend; equal bits
    // run: main(f32[2]{1,2}) ~= f32[2]{3,4}      as near as rounding errors of the program allow (any NaN for
                                                  any NaN); `within 2`: within 2 units in the last place
    // run: main(s32[]{1}) raises evaluate.rule   refused while running
    // run: main[replicas=2](f32[]{1} | f32[]{2}) == f32[]{3} | f32[]{3}

    // -----                                      the next program of the file

Values are a shape and its elements; tuples are `(f32[]{1}, s32[2]{1,2})`, tokens `token[]`. A program without
any directive is verified. `pytest --bless` rewrites CHECK lines, results and error rules from what happens.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hloom
from hloom import HloError, HloModule, Literal, PrintOptions, Shape
from hloom.codegen.target import Target
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.kernel_report import kernel_report
from hloom.cpu.program import KERNELS, emit_program
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.evaluate.evaluator import Evaluator
from hloom.plan.kernel import plan_program
from tests import agreement

DIVIDER = re.compile(r"^// -----.*$", re.M)
DIRECTIVE = re.compile(r"^\s*//\s*(RUN|CHECK(?:-NEXT|-NOT)?|EXPECT-ERROR|run|BACKENDS):\s*(.*?)\s*$")
RUN_LINE = re.compile(r"^main(?:\[(.*?)\])?\((.*)\)\s*(==|~=|raises)\s*(.*?)(?:\s+within\s+(\S+))?$")
SHAPE = re.compile(r"[a-z]\w*\[[^\]]*\]")


BACKENDS = ("evaluator", "cpu")
"""Backends of every run line; a program restricts them by `// BACKENDS: names`."""


# -- values


class _Reader:
    """Reads the values of a run line."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def skip(self) -> None:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def accept(self, literal: str) -> bool:
        self.skip()
        found = self.text.startswith(literal, self.position)
        self.position += len(literal) if found else 0
        return found

    def values(self) -> Iterator[Literal]:
        """Parse values up to a bar or the end."""
        self.skip()
        while self.position < len(self.text) and not self.text.startswith("|", self.position):
            yield self.value()
            self.accept(",")
            self.skip()

    def value(self) -> Literal:
        self.skip()
        if self.accept("("):
            elements: list[Literal] = []
            while not self.accept(")"):
                elements.append(self.value())
                self.accept(",")
            return Literal.tuple_(elements)
        head = SHAPE.match(self.text, self.position)
        assert head is not None, f"a value is wanted at {self.text[self.position :]!r}"
        self.position = head.end()
        shape = Shape.parse(head[0])
        return Literal.token() if shape.is_token else Literal.parse(self.elements(shape), shape)

    def elements(self, shape: Shape) -> str:
        self.skip()
        start, depth = self.position, 0
        while self.position < len(self.text):
            char = self.text[self.position]
            depth += (char in "({") - (char in ")}")
            self.position += 1
            if depth == 0 and char in ")}":
                break
        text = self.text[start : self.position]
        return text if shape.rank else text.strip()[1:-1]


def devices(text: str) -> list[list[Literal]]:
    """Parse the values of every device: lists separated by bars."""
    reader = _Reader(text)
    groups = [list(reader.values())]
    while reader.accept("|"):
        groups.append(list(reader.values()))
    return groups


def value_text(literal: Literal) -> str:
    """Return a value as run lines write it."""
    if literal.shape.is_tuple:
        return "(" + ", ".join(value_text(element) for element in literal.elements) + ")"
    if literal.shape.is_token:
        return "token[]"
    text = literal.to_text().replace(", ", ",").replace("{ ", "{").replace(" }", "}")
    shape = literal.shape.to_string(layout=False)
    return shape + (text if literal.shape.rank else "{" + text + "}")


def plain(literal: Literal) -> Any:
    """Return a literal as backends take it."""
    if literal.shape.is_tuple:
        return tuple(plain(element) for element in literal.elements)
    return None if literal.shape.is_token else literal.array


def check_near(section: Section, run: RunLine, device: int, actual: Literal, expected: Literal) -> None:
    """Assert that a value is within the rounding error of the program, or some units in the last place."""
    found, wanted = plain(actual), plain(expected)
    if run.units is not None:
        agreement.near(found, wanted, run.units)
        return
    assert run.replicas * run.partitions == 1, "several devices: state `within` and units in the last place"
    arguments = [plain(a) for a in run.arguments[device]]
    _, bounds = ErrorAnalysis(section.module()).run(arguments)
    agreement.within(found, wanted, bounds)


# -- sections and directives


@dataclass
class RunLine:
    """One `// run:` directive."""

    line: int
    replicas: int
    partitions: int
    arguments: list[list[Literal]]
    relation: str
    expected: str
    units: float | None


@dataclass
class Section:
    """One program of a file, with its directives; lines count from 0 in the whole file."""

    first_line: int
    text: str
    commands: list[str] = field(default_factory=list[str])
    checks: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    error: tuple[int, str] | None = None
    runs: list[RunLine] = field(default_factory=list[RunLine])
    backends: list[str] = field(default_factory=lambda: list(BACKENDS))

    def module(self) -> HloModule:
        return HloModule.from_text(self.text)


def sections(text: str) -> Iterator[Section]:
    """Return the programs of a file."""
    start = 0
    for divider in [*DIVIDER.finditer(text), None]:
        end = len(text) if divider is None else divider.start()
        yield _section(text[start:end], text.count("\n", 0, start))
        start = len(text) if divider is None else divider.end()


def _section(text: str, first_line: int) -> Section:
    section = Section(first_line, text)
    for number, line in enumerate(text.split("\n"), first_line):
        found = DIRECTIVE.match(line)
        if found is None:
            continue
        kind, rest = found.groups()
        if kind == "RUN":
            section.commands.append(rest)
        elif kind == "EXPECT-ERROR":
            section.error = (number, rest)
        elif kind == "BACKENDS":
            section.backends = [name for name in rest.split() if name in BACKENDS]
        elif kind == "run":
            section.runs.append(_run_line(number, rest))
        else:
            section.checks.append((number, kind, rest))
    return section


def _run_line(number: int, text: str) -> RunLine:
    found = RUN_LINE.match(text)
    assert found is not None, f"line {number + 1}: a run line reads main(...) == ..., got {text!r}"
    options = dict(pair.split("=") for pair in (found[1] or "").replace(" ", "").split(",") if pair)
    replicas, partitions = int(options.pop("replicas", 1)), int(options.pop("partitions", 1))
    assert not options, f"line {number + 1}: unknown options {sorted(options)}"
    units = float(found[5]) if found[5] else None
    assert units is None or units >= 1, f"line {number + 1}: units in the last place, not {found[5]}"
    return RunLine(number, replicas, partitions, devices(found[2]), found[3], found[4], units)


# -- running


def command_output(section: Section, command: str) -> str:
    """Return the output of a RUN command; raises HloError."""
    name, *words = command.split()
    module = section.module()
    module.verify()
    if name == "verify":
        return ""
    if name == "opt":
        return optimized_text(module, words)
    if name == "kernels":
        return kernels_text(module, words)
    assert name == "print", f"RUN is verify, print, opt or kernels, got {command!r}"
    return module.to_text(getattr(PrintOptions, words[0])() if words else None)


def optimized_text(module: HloModule, words: Sequence[str]) -> str:
    """Return the text of a module after the passes of `opt --passes=NAMES`; its values must not change."""
    options: dict[str, str] = {name: value for name, _, value in (word.partition("=") for word in words)}
    names = options.pop("--passes")
    reorders = options.pop("--reorders", None) is not None
    assert not options, f"RUN: opt has the options --passes=NAMES and --reorders, got {sorted(options)}"
    result = hloom.debug.optimized(module, names)
    given = hloom.debug.random_arguments(module, seed=1)
    got = Evaluator().run(result.entry, given)
    if reorders:
        agreement.computed(got, module, given)
    else:
        agreement.same(got, Evaluator().run(module.entry, given))
    return result.to_text()


def kernels_text(module: HloModule, words: Sequence[str]) -> str:
    """Return the report of the kernels of a module for two threads, from `kernels --target=NAME`."""
    ((option, processor),) = (word.split("=") for word in words)
    assert option == "--target", f"RUN: kernels has the option --target=NAME, got {option}"
    is_arm = processor.startswith(("generic", "neoverse"))
    target = Target.named("aarch64-linux-gnu" if is_arm else "x86_64-linux-gnu", processor)
    with mock.patch.dict(os.environ, HLOOM_NUM_THREADS="2"):
        optimized = optimize(module)
        plans = plan_program(optimized, KERNELS, target)
        return kernel_report(plans.values(), emit_program(optimized, target))


def check_output(output: str, checks: Sequence[tuple[int, str, str]]) -> None:
    """Hold the lines of an output to CHECK lines."""
    lines, at, forbidden = output.split("\n"), 0, list[str]()
    for number, kind, wanted in checks:
        if kind == "CHECK-NOT":
            forbidden.append(wanted)
            continue
        rest = range(at, min(at + 1, len(lines)) if kind == "CHECK-NEXT" else len(lines))
        found = next((i for i in rest if wanted in lines[i]), None)
        assert found is not None, f"line {number + 1}: no {kind} line {wanted!r} in\n" + "\n".join(lines[at:])
        _check_absent(lines[at:found], forbidden)
        at, forbidden = found + 1, []
    _check_absent(lines[at:], forbidden)


def _check_absent(lines: Sequence[str], forbidden: Sequence[str]) -> None:
    for line in lines:
        for text in forbidden:
            assert text not in line, f"CHECK-NOT: {text!r} stands in {line!r}"


def results(section: Section, run: RunLine, backend: str) -> list[Literal]:
    """Return a backend's result for the arguments of a run line, as literals; raises HloError."""
    module = section.module()
    module.verify()
    result = module.entry.root.shape
    executable = hloom.compile(
        module, backend=backend, num_replicas=run.replicas, num_partitions=run.partitions
    )
    values = executable.run([[plain(v) for v in group] for group in run.arguments])
    return [Literal(_fitting(v, result), result) for v in values]


def _fitting(value: Any, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_fitting(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True))
    return value if value is None else np.asarray(value)


def check_run(section: Section, run: RunLine, backend: str) -> None:
    """Hold one run line on one backend."""
    if run.relation == "raises":
        with pytest.raises(HloError) as caught:
            results(section, run, backend)
        assert caught.value.rule == run.expected, str(caught.value)
        return
    actual, expected = results(section, run, backend), devices(run.expected)
    assert [len(group) for group in expected] == [1] * len(actual), "one result for every device"
    for device, (found, (wanted,)) in enumerate(zip(actual, expected, strict=True)):
        if run.relation == "~=":
            check_near(section, run, device, found, wanted)
        else:
            same = found == wanted
            assert same, f"device {device}: got {value_text(found)}, want {value_text(wanted)}"


# -- pytest


class HloFile(pytest.File):
    """Collects the checks of one file."""

    def collect(self) -> Iterator[pytest.Item]:
        for number, section in enumerate(sections(self.path.read_text())):
            prefix = f"{number}" if number else "program"
            if section.error is not None:
                yield HloItem.make(self, f"{prefix}:error", section, None, "")
                continue
            for command in section.commands or ([] if section.runs else ["verify"]):
                yield HloItem.make(self, f"{prefix}:{command}", section, None, command)
            for run in section.runs:
                for backend in section.backends:
                    name = f"{prefix}:line-{run.line + 1}:{backend}"
                    yield HloItem.make(self, name, section, run, backend)


class HloItem(pytest.Item):
    """One check: a RUN command, an expected error, or a run line on a backend."""

    section: Section
    run: RunLine | None
    what: str

    @classmethod
    def make(cls, parent: HloFile, name: str, section: Section, run: RunLine | None, what: str) -> HloItem:
        item = cls.from_parent(parent, name=name)
        item.section, item.run, item.what = section, run, what
        return item

    def runtest(self) -> None:
        if self.config.getoption("--bless"):
            bless(self.path, self.section, self.run, self.what)
        if self.run is not None:
            check_run(self.section, self.run, self.what)
        elif self.section.error is not None:
            with pytest.raises(HloError) as caught:
                self.section.module().verify()
            assert caught.value.rule == self.section.error[1], str(caught.value)
        else:
            assert self.section.checks or self.what == "verify", f"RUN: {self.what} without a CHECK line"
            check_output(command_output(self.section, self.what), self.section.checks)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if excinfo.errisinstance((AssertionError, HloError)):
            return f"{self.path}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        line = self.run.line if self.run is not None else self.section.first_line
        return self.path, line, self.name


# -- blessing


def bless(path: Path, section: Section, run: RunLine | None, what: str) -> None:
    """Rewrite the expectations of one check by its present output, in the file and in the section."""
    lines = path.read_text().split("\n")
    if run is not None:
        head = lines[run.line].split(f" {run.relation} ")[0]
        if run.relation == "raises":
            with pytest.raises(HloError) as caught:
                results(section, run, what)
            run.expected = caught.value.rule
        else:
            run.expected = " | ".join(map(value_text, results(section, run, what)))
        within = f" within {run.units:g}" if " within " in lines[run.line] else ""
        lines[run.line] = f"{head} {run.relation} {run.expected}{within}"
    elif section.error is not None:
        number, _ = section.error
        with pytest.raises(HloError) as caught:
            section.module().verify()
        section.error = (number, caught.value.rule)
        lines[number] = f"// EXPECT-ERROR: {caught.value.rule}"
    elif section.checks and what.startswith(("print", "opt", "kernels")):
        output = command_output(section, what).split("\n")
        start = 0 if what.startswith("kernels") else output.index("")
        printed = [line.strip() for line in output[start:] if line.strip()]
        section.checks = blessed_checks(section.checks, printed)
        for number, kind, text in section.checks:
            lines[number] = f"// {kind}: {text}"
    path.write_text("\n".join(lines))


def blessed_checks(checks: list[tuple[int, str, str]], printed: list[str]) -> list[tuple[int, str, str]]:
    """CHECK lines keep their number; each gets a printed line, in order, so that all are most alike.

    The line of a CHECK-NEXT follows that of the check before. Texts that still stand in their lines are kept.
    """
    texts = [(kind, text) for _, kind, text in checks if kind != "CHECK-NOT"]
    at = iter(_aligned(texts, printed))
    blessed: list[tuple[int, str, str]] = []
    for number, kind, text in checks:
        line = text if kind == "CHECK-NOT" else printed[next(at)]
        blessed.append((number, kind, text if text in line else line))
    return blessed


def _aligned(texts: list[tuple[str, str]], printed: list[str]) -> list[int]:
    """Return the numbers of the printed lines of checks, with the greatest sum of likenesses."""
    import difflib

    scores = {-1: (0.0, list[int]())}
    for kind, text in texts:
        following: dict[int, tuple[float, list[int]]] = {}
        best = (-math.inf, list[int]())
        for number, line in enumerate(printed):
            before = scores.get(number - 1, (-math.inf, []))
            best = max(best, before, key=lambda each: each[0])
            score, chosen = before if kind == "CHECK-NEXT" else best
            like = 2.0 if text in line else difflib.SequenceMatcher(None, text, line).ratio()
            following[number] = score + like, [*chosen, number]
        scores = following
    return max(scores.values(), key=lambda each: each[0])[1]
