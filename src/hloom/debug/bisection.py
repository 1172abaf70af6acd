"""Search for the compiler pass, and the rewrite in it, that makes the result of a program wrong.

The evaluator runs the program after each pass; the result is compared with that of the original program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hloom.debug.agreement import Comparison
from hloom.debug.backends import run_one
from hloom.debug.checking import Culprit, compared, first_difference
from hloom.debug.tolerance import Tolerance
from hloom.dumps import DumpedProgram, DumpedStage, dumped_programs
from hloom.errors import HloError, expect
from hloom.files import load
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.passes.fuel import Fuel, limited
from hloom.passes.pipeline import Pass
from hloom.records import dataclass
from hloom.runtime.backend import backend_named

_UNLIMITED: Final = 1 << 62

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Bisection:
    """The step of a compilation that makes a program's result wrong: a pass, a rewrite in it, or native code.

    Attributes:
        pass_name: the pass; empty if all passes are correct and the native code is wrong.
        rewrite: the name of the wrong rewrite's rule, or of the instruction that it rewrote; empty if no
            single rewrite was found.
        number, total: the ordinal of the wrong rewrite among the pass's rewrites, from 1, and their number;
            the ordinal is 0 if no single rewrite was found, the number is 0 if the pass does not count
            rewrites.
        before, after: the program before and after the wrong step.
        comparisons: the comparisons of the arrays that are wrong in the result of ``after``.
        culprit: if the native code is wrong, the first instruction whose value it computes wrongly; else
            None.
        skipped: for each of XLA's dumps that could not be run, a text with the file and the error.
    """

    pass_name: str
    rewrite: str
    number: int
    total: int
    before: HloModule
    after: HloModule
    comparisons: list[Comparison]
    culprit: Culprit | None = None
    skipped: tuple[str, ...] = ()


class _Judge:
    """Compares the results of rewritten programs with the evaluator's result of the original program."""

    def __init__(self, module: HloModule, arguments: Sequence[Value], tolerance: Tolerance) -> None:
        self.module = module
        self.arguments = list(arguments)
        self.tolerance = tolerance
        self.expected = run_one("evaluator", module, self.arguments)

    def compare(self, got: Value) -> list[Comparison]:
        """Compare a result, array by array, with that of the original program; return the comparisons.

        Raises HloError (rule ``check.no-bound``) if elements differ, none is beyond its bound, and the bounds
        of some are not known.
        """
        comparisons, undecided = compared(
            self.module, [self.arguments], [got], [self.expected], self.tolerance
        )
        if undecided and not any(c.wrong for c in comparisons):
            raise HloError(f"{undecided}; state a tolerance", rule="check.no-bound")
        return comparisons

    def wrong(self, module: HloModule) -> bool:
        """Return whether the evaluator refuses a rewritten program, or its result is not the original's.

        Differences within the tolerance do not count. Raises HloError (rule ``check.no-bound``) if elements
        differ whose bounds are not known.
        """
        try:
            got = run_one("evaluator", module, self.arguments)
        except HloError:
            return True
        return any(c.wrong for c in self.compare(got))

    def comparisons(self, module: HloModule) -> list[Comparison]:
        """Evaluate a rewritten program; compare the arrays of its result with the original program's.

        Returns the comparisons of the arrays that do not agree; an empty list for a program that cannot be
        run.
        """
        try:
            comparison = self.compare(run_one("evaluator", module, self.arguments))
        except HloError:
            return []
        return [c for c in comparison if not c.agrees]


def bisect(
    module: HloModule,
    arguments: Sequence[Value],
    *,
    backend: str = "cpu",
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
) -> Bisection | None:
    """Return the smallest step of a backend's compilation that makes a program's result wrong.

    The result of the evaluator on the given program is the reference. The evaluator runs the program after
    each compiler pass that a binary search selects, then after single rewrites of the first wrong pass; if
    all passes are correct, the backend's native code is tested. Returns None if the backend's result is
    right.

    Args:
        module: a program of one device.
        arguments: its arguments.
        backend: the name of the backend.
        tolerance: the allowed differences; None to allow the program's rounding errors.
        progress: called with a description of each step of the search.

    Raises HloError for an invalid program or arguments that do not fit its parameters.
    """
    expect(module, HloModule, "an HloModule")
    module.verify()
    tell = progress or _silent
    judge = _Judge(module, arguments, tolerance or Tolerance())
    steps: list[tuple[Pass, HloModule]] = []
    copy = module.clone()
    backend_named(backend).pipeline().run(copy, lambda item, after: steps.append((item, after.clone())))
    if not steps or not judge.wrong(steps[-1][1]):
        return _native(judge, copy, backend)

    def wrong_after(number: int) -> bool:
        tell(f"after pass {number + 1} of {len(steps)}, {steps[number][0].name}")
        return judge.wrong(steps[number][1])

    first = _first(len(steps), wrong_after)
    item, after = steps[first]
    before = steps[first - 1][1] if first else module
    return _rewrite(judge, item, before, after, tell)


def _silent(text: str) -> None:
    """Do nothing: the default for a callback that receives messages."""


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest ``n`` in ``range(count)`` for which ``holds(n)`` is true, by binary search.

    ``holds`` must be true for ``count - 1``, and for every number above one for which it is true.
    """
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _rewrite(judge: _Judge, item: Pass, before: HloModule, after: HloModule, tell: Progress) -> Bisection:
    """Return the bisection of a pass that makes the result wrong: its first rewrite that does so, if found.

    A binary search runs the pass again on copies of ``before``, stopping it after a given number of rewrites.
    The bisection names no rewrite if the pass does not count its rewrites, or if its run on ``before`` gives
    a right result.

    Args:
        judge: compares the results of rewritten programs with the reference.
        item: the pass.
        before, after: the program before and after the pass.
        tell: called with a description of each step.
    """
    full, fuel = _with_fuel(item, before, _UNLIMITED)
    if not fuel.used or not judge.wrong(full):
        return Bisection(item.name, "", 0, fuel.used, before, after, judge.comparisons(after))

    def wrong_after(number: int) -> bool:
        tell(f"{item.name}, rewrite {number} of {fuel.used}")
        return judge.wrong(_with_fuel(item, before, number)[0])

    number = _first(fuel.used + 1, wrong_after)
    there, last = _with_fuel(item, before, number)
    start = _with_fuel(item, before, number - 1)[0] if number else before
    return Bisection(item.name, last.last, number, fuel.used, start, there, judge.comparisons(there))


def _with_fuel(item: Pass, module: HloModule, limit: int) -> tuple[HloModule, Fuel]:
    """Run a pass on a copy of a program, stopping the pass after ``limit`` rewrites.

    Returns the copy and the `Fuel`, which holds the number of rewrites and the name of the last one.
    """
    copy = module.clone()
    with limited(limit) as fuel:
        item.run(copy)
    return copy, fuel


def _native(judge: _Judge, optimized: HloModule, backend: str) -> Bisection | None:
    """Compile and run the original program on a backend, and compare its result with the evaluator's.

    Returns None if no element is wrong, else a bisection without a pass, whose culprit is the first
    instruction that the native code computes wrongly. ``optimized`` is the program after all passes, its
    ``after``.
    """
    comparison = judge.compare(run_one(backend, judge.module, judge.arguments))
    wrong = [c for c in comparison if c.wrong]
    if not wrong:
        return None
    culprit = first_difference(judge.module, judge.arguments, backend, "evaluator", judge.tolerance)
    return Bisection("", "", 0, 0, judge.module, optimized, wrong, culprit)


# -- dumps of XLA


def pass_dumps(folder: str | Path, matching: str = "") -> list[DumpedProgram]:
    """Return the programs in a folder for which XLA has dumped the HLO after passes.

    ``matching`` is a regular expression that the programs' names must match; "" for all programs.

    Raises HloError (rule ``bisect.dumps``) if the folder has no such program, and the errors of
    `dumped_programs`.
    """
    programs = [program for program in dumped_programs(folder, matching) if program.passes]
    if not programs:
        message = (
            f"{folder} has no dumps of passes; write them with "
            "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.* --xla_dump_large_constants'"
        )
        raise HloError(message, rule="bisect.dumps")
    return programs


def bisect_dumps(
    program: DumpedProgram,
    arguments: Callable[[HloModule], Sequence[Value]],
    *,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Bisection | None:
    """Return the first of XLA's passes that changes the result of a dumped program; None if no pass does.

    The evaluator runs every dump, in the order of the passes. The result of the first one that can be read is
    the reference for all others.

    Args:
        program: a program with dumps of its passes; see `pass_dumps`.
        arguments: a function that returns arguments for a program; called with the first dump that can be
            read.
        tolerance: the allowed differences; None to allow the program's rounding errors.
        progress: called with a description of each step.
        note: if no pass changes the result, called with the error of each dump that could not be read or run.

    Raises HloError (rule ``bisect.unreadable``) if no dump can be read, (rule ``check.no-bound``) if elements
    differ whose bounds are not known, and the error of the first readable dump if that cannot be run.
    """
    skipped: list[str] = []
    passes = list(program.passes)
    first = _first_readable(program, passes, skipped)
    judge = _Judge(first, arguments(first), tolerance or Tolerance())
    before = first
    for number, stage in enumerate(passes, 1):
        path = stage.path
        if progress is not None:
            progress(f"dump {number} of {len(passes)}, {path.name}")
        try:
            after = load(path)
            comparison = judge.compare(run_one("evaluator", after, judge.arguments))
        except HloError as error:
            if error.rule == "check.no-bound":
                raise
            skipped.append(_in_file(path, error))
            continue
        wrong = [c for c in comparison if c.wrong]
        if wrong:
            return Bisection(stage.after, "", 0, 0, before, after, wrong, skipped=tuple(skipped))
        before = after
    for reason in skipped:
        (note or _silent)(reason)
    return None


def _first_readable(program: DumpedProgram, passes: list[DumpedStage], skipped: list[str]) -> HloModule:
    """Load and return the first program in ``passes``, dumps of XLA, that can be read.

    Removes this dump and those before it from ``passes``, and appends the errors of the unreadable ones to
    ``skipped``. Raises HloError (rule ``bisect.unreadable``) if none can be read.
    """
    while passes:
        path = passes.pop(0).path
        try:
            return load(path)
        except HloError as error:
            skipped.append(_in_file(path, error))
    message = f"no dump of {program.name} can be read: {'; '.join(skipped)}"
    raise HloError(message, rule="bisect.unreadable")


def _in_file(path: Path, error: HloError) -> str:
    """Return the first line of an error, prefixed with its location: ``file:line:column: message``."""
    return f"{path}:{'' if error.line else ' '}{str(error).splitlines()[0]}"
