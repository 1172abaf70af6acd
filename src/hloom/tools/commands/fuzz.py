"""`hloom fuzz`: compare random programs on two implementations, and explain the differences."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloom.errors import plural
from hloom.tools.console.terminal import echo, progress, styled, table

if TYPE_CHECKING:
    from hloom.fuzzing.campaign import Subject
    from hloom.fuzzing.session import Session


@click.command(short_help="Find differences of implementations by random programs.")
@click.option(
    "--against",
    type=click.Choice(["xla", "cpu", "evaluator"]),
    default="xla",
    show_default=True,
    help="What is compared with the reference evaluator; evaluator means after hloom's passes.",
)
@click.option("--passes", default="", metavar="NAMES", help="Passes for --against evaluator. Default: all.")
@click.option("--sharded", is_flag=True, help="Whole modules with random shardings, on several devices.")
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Processor time to spend, of this process and its children.",
)
@click.option("--seed", type=click.IntRange(0), help="Of a new folder. Default: 0.")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="fuzz",
    show_default=True,
    help="Folder of pages, corpus and state; a folder that exists is continued.",
)
def fuzz(against: str, passes: str, sharded: bool, minutes: float, seed: int | None, out: str) -> None:
    """Draw valid programs, compare results within rounding errors, and write a page for each cause.

    A page has the reduced program, its arguments, both results, the pass that introduces the difference,
    and, for XLA, a script that uses JAX alone, with the outcome of its run. Differences that are choices are
    counted by name. XLA and native code run in a process of their own, since some programs end it.

    The same command continues in the same folder, also after Ctrl-C.

    \b
    Folder:
      findings/NNN-CAUSE.md   the page of a cause; .py is the script
      corpus/                 programs that covered something first, and reduced ones, with arguments
      coverage.md             operations, their element types and attributes, with counts
      state.json              where to continue

    \b
    Examples:
      hloom fuzz --minutes 60
      hloom fuzz --against cpu --out fuzz-native
      hloom fuzz --against evaluator --passes algsimp,cse

    Exit status: 0 without a difference, 1 with at least one that is no choice, 130 after Ctrl-C.
    """
    from hloom.fuzzing.session import Session

    if passes and against != "evaluator":
        raise click.UsageError("--passes belongs to --against evaluator")
    if sharded and against == "evaluator":
        raise click.UsageError("--sharded needs devices: --against xla or cpu")
    name = " ".join([against, *([passes] if passes else []), *(["sharded"] if sharded else [])])
    with _subject(against, passes) as subject:
        session = Session(subject, name, Path(out), seed, sharded=sharded, progress=progress)
        session.run(minutes)
    progress.done()
    echo(report(session))
    sys.exit(130 if session.interrupted else bool(session.state.causes))


def _subject(against: str, passes: str) -> AbstractContextManager[Subject]:
    from hloom.fuzzing.campaign import Passes
    from hloom.fuzzing.child import Child

    return nullcontext(Passes(passes)) if against == "evaluator" else Child(against)


def report(session: Session) -> str:
    """Return the causes, the differences that are set aside, and the coverage of a folder."""
    from hloom.fuzzing.reproduction import REPRODUCED

    state = session.state
    minutes = f"{state.seconds / 60:.1f} minutes of processor time"
    lines = [f"{plural(session.programs, 'program')} in {minutes}, seed {state.seed}"]
    lines += [f"  {state.coverage.summary()}"]
    if state.set_aside:
        lines += ["", styled("choices, set aside", "title")]
        lines += [f"  {count:6} {name}" for name, count in state.set_aside.most_common()]
    causes = list(state.causes.values())
    alone = [c for c in causes if not c.outcome or c.outcome.startswith(REPRODUCED)]
    for heading, part in (
        ("causes", alone),
        ("not reproduced with JAX alone", [c for c in causes if c not in alone]),
    ):
        rows = [[str(c.count), str(c.instructions), c.where or "?", _shortened(c.title)] for c in part]
        if rows:
            lines += ["", styled(heading, "title"), table([["findings", "size", "pass", "cause"], *rows])]
    ended = ["", "interrupted; the same command continues"] if session.interrupted else []
    return "\n".join([*lines, *ended, "", f"pages: {session.folder / 'findings'}"])


def _shortened(title: str) -> str:
    """Return a title without the name of the implementation and the pass, in at most 100 characters."""
    text = title.partition("): ")[2] or title
    return text if len(text) <= 100 else f"{text[:97]}..."
