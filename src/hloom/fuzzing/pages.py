"""Pages of causes, to be pasted into a report."""

from __future__ import annotations

import difflib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import hloom
from hloom.fuzzing.campaign import shown
from hloom.fuzzing.causes import FindingCause, title
from hloom.fuzzing.generators.case import Case, program
from hloom.fuzzing.reproduction import script
from hloom.ir.module import HloModule

MOST_CHANGED_LINES: Final = 24


def page(cause: FindingCause, backend: str, outcome: str = "") -> str:
    """Return the page of a cause, in Markdown; `outcome` is that of its script, empty without a script."""
    finding, case = cause.finding, cause.finding.case
    lines = [f"# {title(cause, backend)}", "", finding.what.rstrip(), ""]
    if finding.explanation is not None:
        lines += [finding.explanation.reason, ""]
    lines += ["## Program", "", "```", program([case]).rstrip(), "```", ""]
    if case.arguments and not case.folded:
        lines += ["## Arguments", "", "```", *(f"p{n} = {shown(a)}" for n, a in enumerate(case.arguments))]
        lines += ["```", ""]
    if finding.difference is not None:
        expected, result = finding.difference.ours, finding.difference.theirs
        lines += ["## Results", "", "```", f"hloom's evaluator: {shown(expected)}"]
        lines += [f"{backend:17}: {shown(result)}", "```", ""]
    lines += ["## Pass", "", cause.where or "not known", *([cause.rewrite] if cause.rewrite else []), ""]
    if cause.before is not None and cause.after is not None:
        lines += ["```diff", *_changes(cause.before, cause.after), "```", ""]
    lines += ["## Versions", "", versions(), ""]
    if backend == "xla" and not finding.kind.of_hloom:
        lines += ["## Reproduction with JAX alone", "", f"Outcome: {outcome or 'not run'}.", ""]
        lines += ["```python", script(cause).rstrip(), "```", ""]
    return "\n".join(lines)


def versions() -> str:
    """Return the versions of the packages, of Python and of the processor, as text."""
    parts = [f"hloom {hloom.__version__}"]
    for package in ("jax", "jaxlib", "numpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(
        [*parts, f"Python {sys.version.split()[0]}", f"{platform.system()} {platform.machine()}"]
    )


def instructions(case: Case) -> int:
    """Return the number of instructions of a case's program, without the tuple of its results."""
    return sum(len(c) for c in case.module.computations) - 1


def _changes(before: HloModule, after: HloModule) -> list[str]:
    """Return the lines of the program that a pass removes and adds."""
    old, new = (m.to_text().splitlines() for m in (before, after))
    changes = [
        line
        for line in difflib.unified_diff(old, new, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@"))
    ]
    return [*changes[:MOST_CHANGED_LINES], *(["..."] if len(changes) > MOST_CHANGED_LINES else [])]
