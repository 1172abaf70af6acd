"""Wrong programs: copies of a program with one small mistake, as a wrong pass would make them.

``python -m tests.proofs.mutants FOLDER --count N --seed S`` judges mutants of the programs of a folder of
dumps. Every mutant that the evaluator tells apart from the original on 100 arguments must not be proved.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hloom.debug.tolerance import Tolerance
from hloom.dumps import dumped_programs
from hloom.errors import HloError
from hloom.files import load
from hloom.ir.module import HloModule
from hloom.proofs.verdict import Relation, prove, refute
from hloom.text.printer import print_module

ARGUMENTS = 100
"""Number of arguments on which a proved mutant must equal the original."""
_OPCODES = (
    ("add", "subtract"),
    ("maximum", "minimum"),
    ("and", "or"),
    ("floor", "ceil"),
    ("sine", "cosine"),
    ("exponential", "exponential-minus-one"),
    ("negate", "copy"),
    ("abs", "copy"),
    ("tanh", "copy"),
)
_LINE = re.compile(
    r"(?P<head>\s+(?:ROOT )?%?[\w.\-]+ = \S+ )(?P<opcode>[\w\-]+)\((?P<operands>[^()]*)\)(?P<tail>.*)"
)


def mutants(module: HloModule, seed: int) -> Iterator[tuple[str, HloModule]]:
    """Yield valid programs with one mistake each, and its description, in a random order."""
    generator = random.Random(seed)
    lines = print_module(module).split("\n")
    order = list(range(len(lines)))
    generator.shuffle(order)
    for number in order:
        match = _LINE.fullmatch(lines[number])
        edits = list(_edits(match, generator)) if match is not None else []
        if not edits:
            continue
        kind, line = generator.choice(edits)
        text = "\n".join([*lines[:number], line, *lines[number + 1 :]])
        try:
            mutant = HloModule.from_text(text)
            mutant.verify()
        except HloError:
            continue
        yield f"{kind}: {line.strip()}", mutant


def is_told_apart(original: HloModule, mutant: HloModule, relation: Relation) -> bool:
    """Return whether the evaluator tells two programs apart that are related so."""
    if relation is not Relation.EQUAL_OVER_REALS:
        return refute(original, mutant, samples=ARGUMENTS, seed=1000) is not None
    rounding = Tolerance(rtol=1e-2, atol=1e-3)
    return refute(original, mutant, samples=ARGUMENTS, seed=1000, edges=False, tolerance=rounding) is not None


def _edits(line: re.Match[str], generator: random.Random) -> Iterator[tuple[str, str]]:
    """Yield the mistakes that are possible in the line of an instruction."""
    head, opcode, operands, tail = line["head"], line["opcode"], line["operands"], line["tail"]

    def edited(opcode: str = opcode, operands: str = operands, tail: str = tail) -> str:
        return f"{head}{opcode}({operands}){tail}"

    for pair in _OPCODES:
        if opcode in pair:
            yield "operation", edited(opcode=pair[1 - pair.index(opcode)])
    names = operands.split(", ")
    if len(names) >= 2 and opcode != "constant":
        a, b = generator.sample(range(len(names)), 2)
        swapped = list(names)
        swapped[a], swapped[b] = names[b], names[a]
        yield "operands", edited(operands=", ".join(swapped))
    if opcode == "constant" and re.fullmatch(r"-?\d+(\.\d+)?", operands):
        yield "constant", edited(operands=str(int(float(operands)) + generator.choice((-1, 1))))
    if opcode == "constant" and operands in ("true", "false"):
        yield "constant", edited(operands="false" if operands == "true" else "true")
    if opcode == "constant" and operands in ("inf", "-inf"):
        yield "identity", edited(operands="0")
    if opcode == "constant" and re.fullmatch(r"\{\s*\d+(, \d+)*\s*\}", operands):
        yield "table", edited(operands=re.sub(r"\d+(?=\s*\}$)", lambda m: str(int(m[0]) + 1), operands))
    if opcode in ("all-reduce", "collective-permute"):
        yield "no collective", edited(opcode="copy", tail="")
    for pattern, change in _ATTRIBUTES:
        found = re.search(pattern, tail)
        if found is not None:
            yield pattern, edited(tail=tail[: found.start()] + change(found) + tail[found.end() :])


def _moved(match: re.Match[str]) -> str:
    low, high = int(match[1]), int(match[2])
    return f"[{low - 1}:{high - 1}" if low else f"[{low + 1}:{high + 1}"


def _reversed(match: re.Match[str]) -> str:
    return f"{match[1]}={{{','.join(reversed(match[2].split(',')))}}}"


def _regrouped(match: re.Match[str]) -> str:
    """Return as many groups of the same sizes with other members, or groups of half the size."""
    rows = [row.split(",") for row in match[2].split("},{")]
    flat = [number for row in rows for number in row]
    if len(rows) == 1:
        half = len(flat) // 2
        rows = [flat[:half], flat[half:]] if half else rows
    else:
        rows = [flat[n :: len(rows)] for n in range(len(rows))]
    return f"{match[1]}{'},{'.join(map(','.join, rows))}{match[3]}"


def _exchanged(match: re.Match[str]) -> str:
    pairs = [pair.split(",") for pair in match[2].split("},{")]
    return f"{match[1]}{'},{'.join(f'{b},{a}' for a, b in pairs)}{match[3]}"


_ATTRIBUTES = (
    (r"(replica_groups=\{\{)([\d,{}]+?)(\}\})", _regrouped),
    (r"(source_target_pairs=\{\{)([\d,{}]+?)(\}\})", _exchanged),
    (r"\[(\d+):(\d+)", _moved),
    (r"direction=LT", lambda _: "direction=LE"),
    (r"direction=GE", lambda _: "direction=GT"),
    (r"direction=EQ", lambda _: "direction=NE"),
    (r"direction=GT", lambda _: "direction=LT"),
    (r"\b(dimensions|lhs_contracting_dims|rhs_contracting_dims)=\{(\d+(?:,\d+)+)\}", _reversed),
    (r"(pad(?:ding)?=)(\d+)_(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}_{int(m[3]) - 1}"),
    (r"iota_dimension=0", lambda _: "iota_dimension=1"),
)


def main() -> int:
    """Judge mutants; return the number of wrong proofs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    paths = [
        stage.path
        for folder in sorted(options.folder.iterdir())
        for program in dumped_programs(folder)
        for stage in program.passes
    ]
    counts: Counter[str] = Counter()
    while sum(counts.values()) < options.count:
        path = generator.choice(paths)
        module = load(path)
        for kind, mutant in list(mutants(module, generator.randrange(1 << 30)))[:4]:
            try:
                verdict = prove(module, mutant)
            except HloError as error:
                counts["refused"] += 1
                print(f"refused {path.name} {kind}: {error}"[:200], flush=True)
                continue
            word = verdict.relation.value
            if verdict.relation.is_proof or verdict.relation is Relation.OPEN:
                differs = is_told_apart(module, mutant, verdict.relation)
                word = f"{word}, {'different' if differs else 'equal on all arguments'}"
                if differs:
                    print(f"{word} {path.name} {kind}", flush=True)
            counts[word] += 1
        print(dict(counts), file=sys.stderr, flush=True)
    print(dict(counts))
    return sum(n for word, n in counts.items() if word.endswith("different") and not word.startswith("open"))


if __name__ == "__main__":
    sys.exit(bool(main()))
