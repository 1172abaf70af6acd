"""`hloom prove`: whether two programs, or the stages of a dump, compute the same function."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hloom.errors import HloError, plural
from hloom.tools.commands.check import comparison_line
from hloom.tools.console.program_argument import FILE_OR_FOLDER
from hloom.tools.console.terminal import FILE, echo, progress, styled

MOST_PRINTED: Final = 64
"""Number of elements of refuting arguments that are printed."""
MOST_CHARACTERS: Final = 4000
"""Longer undecided programs are printed by ``--json`` only."""

if TYPE_CHECKING:
    from hloom.ir.module import HloModule
    from hloom.proofs.dumps import Step
    from hloom.proofs.verdict import Verdict


@click.command(short_help="Prove that two programs are equal, or refute it.")
@click.argument("before", type=FILE_OR_FOLDER)
@click.argument("after", type=FILE, required=False)
@click.option("--program", default="", metavar="REGEX", help="Of a folder: the programs to judge.")
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=16,
    show_default=True,
    help="Arguments to try where nothing is proved, at least 100 of small programs without loops; "
    "every second one has edge values.",
)
@click.option(
    "--partitioned",
    is_flag=True,
    help="AFTER is the program of one device, sharded as the annotations of BEFORE state.",
)
@click.option("--any-size", is_flag=True, help="Vary the sizes of the parameters of both programs.")
@click.option("--symbolic", is_flag=True, help="BEFORE is a Python file of rules for all sizes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prove(
    before: str,
    after: str | None,
    program: str,
    samples: int,
    partitioned: bool,
    any_size: bool,
    symbolic: bool,
    as_json: bool,
) -> None:
    """Decide whether two programs compute the same results from the same arguments.

    Of a folder of dumps, each stage of a program is judged against the stage before it, and the first wrong
    pass is named.

    \b
    Verdicts:
      identical             equal bits for all arguments
      equal over the reals  equal for all arguments, if f32, f64 and complex operations did not round
      refuted               arguments for which the results differ by more than rounding errors
      open                  none of these

    Both programs are run on random numbers modulo a prime in place of their elements. Equal programs always
    have equal results there; unequal ones have equal results with a probability below 2^-30. A verdict
    "identical (certain)" uses no random numbers: the texts are equal but for calls and fusions.

    \b
    Examples:
      hloom prove before.hlo after.hlo
      hloom prove dump/ --program jit_step
      hloom prove --any-size before.hlo after.hlo
      hloom prove --partitioned global.hlo local.hlo
      hloom prove --symbolic rules.py

    \b
    Exit status:
      0  everything is proved
      1  something is refuted, or a program cannot be judged (an error says why)
      2  something is open, nothing is refuted
    """
    from hloom.proofs.verdict import prove as decide

    if symbolic:
        from hloom.tools.commands.prove_rules import judge_rules

        sys.exit(judge_rules(before, as_json=as_json))
    if after is None:
        if not Path(before).is_dir():
            raise click.UsageError("state a second program, or a folder of dumps")
        sys.exit(judge_folder(before, program, samples, as_json))
    if any_size:
        from hloom.tools.commands.prove_sizes import judge_sizes

        sys.exit(judge_sizes(_loaded(before), _loaded(after), as_json=as_json))
    if partitioned:
        from hloom.proofs.partitioned import annotated_tilings, prove_partitioned
        from hloom.proofs.programs import device_count

        whole, local = _loaded(before), _loaded(after)
        parameters, results = annotated_tilings(whole, device_count(local))
        verdict = prove_partitioned(whole, local, parameters, results, samples=samples)
    else:
        verdict = decide(_loaded(before), _loaded(after), samples=samples)
    progress.done()
    echo(json.dumps(verdict.to_json(), indent=1) if as_json else "\n".join(verdict_lines(verdict)))
    sys.exit(status_of([verdict]))


def _loaded(file: str) -> HloModule:
    """Return the program of a file; errors name the file, as there are two."""
    from hloom.files import load

    try:
        return load(file)
    except HloError as error:
        error.message = error.message if file in error.message else f"{file}: {error.message}"
        raise


def judge_folder(folder: str, matching: str, samples: int, as_json: bool) -> int:
    """Judge the programs of a folder; return the exit status."""
    from hloom.dumps import dumped_programs
    from hloom.proofs.dumps import judge

    steps: list[Step] = []
    for program in dumped_programs(folder, matching):
        for step in judge(program, samples=samples, progress=progress):
            steps.append(step)
            if not (as_json or step.verdict.relation.is_proof):
                progress.done()
                echo(styled(f"{step.program}: {step.stage.title}", "title"))
                echo("\n".join(f"  {line}" for line in verdict_lines(step.verdict)))
    progress.done()
    if not steps:
        message = (
            f"the programs of {folder} have no passes; XLA_FLAGS='--xla_dump_to={folder} "
            "--xla_dump_hlo_pass_re=.*' writes the program after every pass"
        )
        raise HloError(message, rule="prove.passes")
    counts = Counter(step.verdict.relation.value for step in steps)
    if as_json:
        passes = [{"program": s.program, "stage": s.stage.title, **s.verdict.to_json()} for s in steps]
        echo(json.dumps({"counts": counts, "passes": passes}, indent=1))
    else:
        echo(
            f"{plural(len(steps), 'pass', 'passes')}: "
            + ", ".join(f"{number} {word}" for word, number in counts.items())
        )
    return status_of([step.verdict for step in steps])


def status_of(verdicts: Sequence[Verdict]) -> int:
    """Return the exit status for some verdicts: 1 if one is refuted, 2 if one is open, else 0."""
    from hloom.proofs.verdict import Relation

    relations = {verdict.relation for verdict in verdicts}
    return 1 if Relation.REFUTED in relations else 2 if Relation.OPEN in relations else 0


def argument_texts(verdict: Verdict, most: int) -> list[str]:
    """Return the refuting arguments as literals, if these are arrays of at most ``most`` elements in all."""
    import numpy as np

    from hloom.shape.literal import Literal

    are_arrays = all(isinstance(x, np.ndarray) for x in verdict.arguments)
    if not are_arrays or sum(x.size for x in verdict.arguments) > most:
        return []
    return [Literal(x).to_text() for x in verdict.arguments]


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return the text of a verdict: the relation, and where the programs differ."""
    relation = verdict.relation
    bits = verdict.error_bits
    note = " (certain)" if verdict.certain else f" (wrong with a probability below 2^-{bits})" if bits else ""
    lines = [styled(relation.value, "added" if relation.is_proof else "removed") + note]
    lines += [f"  {verdict.reason}"] if verdict.reason else []
    if verdict.inputs:
        lines.append(f"  the results differ for {verdict.inputs}:")
        lines += [f"  {comparison_line(c)}" for c in verdict.comparisons if not c.agrees]
        lines += [f"    argument {n}: {text}" for n, text in enumerate(argument_texts(verdict, MOST_PRINTED))]
    if verdict.instruction:
        lines += ["  the first value that the first program does not compute:", f"    {verdict.instruction}"]
        lines += [f"    at {verdict.origin}"] if verdict.origin else []
    if sum(map(str.__len__, verdict.undecided)) <= MOST_CHARACTERS:
        words = "what is undecided, from values that both programs compute:", "against:"
        for word, text in zip(words, verdict.undecided, strict=False):
            lines += [f"  {word}", *(f"    {line}" for line in text.strip().splitlines())]
    return lines
