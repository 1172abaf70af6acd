"""Wrong programs: copies of a program with one small mistake, as a wrong pass would make them.

``python -m tests.proofs.mutants OUT.jsonl [FOLDER] --count N --seed S`` judges N mutants of what passes make
of generated programs, and of the stages in a folder of dumps, and adds a line for each to OUT. A program is
drawn from the seed and its number, so that a run goes on where OUT ends. Every mutant that the evaluator
tells apart from the original on 100 arguments must not be proved, and should be refuted.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from hloom.debug.optimization import optimized
from hloom.dumps import dumped_programs
from hloom.errors import HloError
from hloom.files import load
from hloom.fuzzing.generators.families import FAMILY_NAMES, draw_case
from hloom.ir.module import HloModule
from hloom.proofs.verdict import Fingerprinted, Relation, decide
from hloom.text.printer import print_module
from tests.proofs.judging import is_told_apart

PER_PROGRAM = 4
"""Number of mutants of one program."""
SECONDS = 20
"""Seconds of CPU time after which a mutant counts as endless."""
PASSES = "expansion,simplification"
"""The passes whose results are changed."""
_SWAPS = (
    ("add", "subtract"),
    ("multiply", "divide"),
    ("maximum", "minimum"),
    ("and", "or"),
    ("or", "xor"),
    ("remainder", "divide"),
    ("shift-left", "shift-right-logical"),
    ("shift-right-arithmetic", "shift-right-logical"),
    ("floor", "ceil"),
    ("round-nearest-even", "round-nearest-afz"),
    ("sine", "cosine"),
    ("exponential", "exponential-minus-one"),
    ("log", "log-plus-one"),
    ("sqrt", "cbrt"),
    ("negate", "copy"),
    ("not", "copy"),
    ("abs", "copy"),
    ("tanh", "copy"),
    ("sign", "copy"),
    ("floor", "copy"),
    ("real", "imag"),
)
_DROPPED = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "select", "clamp", "power")
"""Operations of which one operand may be taken for the result."""
_LINE = re.compile(
    r"(?P<indent>\s+)(?P<root>ROOT )?(?P<name>%?[\w.\-]+) = (?P<shape>\S+) "
    r"(?P<opcode>[\w\-]+)\((?P<operands>[^()]*)\)(?P<tail>.*)"
)
_OPPOSITE = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
_NEXT = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT", "EQ": "NE", "NE": "EQ"}
_MIRROR = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def mutants(module: HloModule, seed: int) -> Iterator[tuple[str, HloModule]]:
    """Yield valid programs with one mistake each, and its description, in a random order."""
    generator = random.Random(seed)
    lines = print_module(module).split("\n")
    computations = [line.split()[0] for line in lines if re.fullmatch(r"%?[\w.\-]+ .*\{", line)]
    order = list(range(len(lines)))
    generator.shuffle(order)
    for number in order:
        match = _LINE.fullmatch(lines[number])
        edits = list(_edits(match, generator, computations)) if match is not None else []
        generator.shuffle(edits)
        for kind, line in edits:
            text = "\n".join([*lines[:number], line, *lines[number + 1 :]])
            try:
                mutant = HloModule.from_text(text)
                mutant.verify()
            except HloError:
                continue
            yield f"{kind}: {line.strip()}", mutant
            break


def _edits(
    line: re.Match[str], generator: random.Random, computations: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the mistakes that are possible in the line of an instruction."""
    opcode, operands, tail = line["opcode"], line["operands"], line["tail"]
    names = operands.split(", ")

    def edited(opcode: str = opcode, operands: str = operands, tail: str = tail) -> str:
        head = f"{line['indent']}{line['root'] or ''}{line['name']} = {line['shape']} "
        return f"{head}{opcode}({operands}){tail}"

    for a, b in _SWAPS:
        if opcode in (a, b):
            yield "operation", edited(opcode=b if opcode == a else a)
    if opcode in _DROPPED:
        yield "dropped", edited(opcode="copy", operands=generator.choice(names), tail="")
    if len(names) >= 2 and opcode != "constant":
        a, b = generator.sample(range(len(names)), 2)
        swapped = list(names)
        swapped[a], swapped[b] = names[b], names[a]
        yield "operands", edited(operands=", ".join(swapped))
        repeated = list(names)
        repeated[a] = names[b]
        yield "operand", edited(operands=", ".join(repeated))
    if opcode == "constant":
        yield from ((kind, edited(operands=value)) for kind, value in _constants(operands, generator))
    for kind, pattern, change in _ATTRIBUTES:
        for place in re.finditer(pattern, tail):
            yield kind, edited(tail=tail[: place.start()] + change(place) + tail[place.end() :])
    if opcode in ("all-reduce", "collective-permute"):
        yield "no collective", edited(opcode="copy", tail="")
    target = re.search(r"to_apply=(%?[\w.\-]+)", tail)
    if target is not None:
        other = generator.choice(computations)
        yield "computation", edited(tail=tail.replace(target[0], f"to_apply={other}"))
    yield from _insertions(line, edited)


def _constants(value: str, generator: random.Random) -> Iterator[tuple[str, str]]:
    """Yield other values of a constant: one more, one less, another identity, another sign of zero."""
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        yield "constant", str(int(float(value)) + generator.choice((-1, 1)))
    if value in ("0", "-0"):
        yield "zero", "0" if value == "-0" else "-0"
    if value in ("0", "1"):
        yield "identity", "1" if value == "0" else "0"
    if value in ("true", "false"):
        yield "constant", "false" if value == "true" else "true"
    if value in ("inf", "-inf"):
        yield "identity", generator.choice(("0", "nan", "-inf" if value == "inf" else "inf", "65504"))
    listed = re.fullmatch(r"\{(-?\d+)(,.*)\}", value.replace(" ", ""))
    if listed:
        yield "table", f"{{{int(listed[1]) + 1}{listed[2]}}}"


def _insertions(line: re.Match[str], edited: object) -> Iterator[tuple[str, str]]:
    """Yield an instruction followed by one that spoils its result: less precision, another zero, no NaN."""
    shape, indent, name = line["shape"], line["indent"], line["name"]
    array = re.fullmatch(r"(f32|f64|bf16|f16)(\[[\d,]*\])(\{[^}]*\})?", shape)
    compared = re.search(r"direction=(LT|LE|GT|GE)", line["tail"])
    first = f"{indent}{name}.exact = {shape} {line['opcode']}({line['operands']}){line['tail']}"
    last = f"{indent}{line['root'] or ''}{name} = "
    if array is not None and line["opcode"] not in ("parameter", "get-tuple-element"):
        kind, sizes = array[1], array[2]
        narrow = "f32" if kind == "f64" else "f8e5m2" if kind in ("f16", "bf16") else "bf16"
        yield (
            "precision",
            f"{first}\n{indent}{name}.n = {narrow}{sizes} convert({name}.exact)\n"
            + (f"{last}{shape} convert({name}.n)"),
        )
        yield (
            "zero",
            f"{first}\n{indent}{name}.z = {kind}[] constant(0)\n"
            + (
                f"{indent}{name}.zs = {shape} broadcast({name}.z), dimensions={{}}\n"
                f"{last}{shape} subtract({name}.zs, {name}.exact)"
            ),
        )
        yield (
            "zero",
            f"{first}\n{indent}{name}.z = {kind}[] constant(0)\n"
            + (
                f"{indent}{name}.zs = {shape} broadcast({name}.z), dimensions={{}}\n"
                f"{last}{shape} add({name}.zs, {name}.exact)"
            ),
        )
        yield (
            "infinity",
            f"{first}\n{indent}{name}.z = {kind}[] constant(1e+30)\n"
            + (
                f"{indent}{name}.zs = {shape} broadcast({name}.z), dimensions={{}}\n"
                f"{last}{shape} minimum({name}.zs, {name}.exact)"
            )
            if kind in ("f32", "f64")
            else first + f"\n{last}{shape} copy({name}.exact)",
        )
    if compared is not None:
        opposite = line["tail"].replace(compared[0], f"direction={_OPPOSITE[compared[1]]}")
        yield (
            "nan",
            f"{indent}{name}.o = {shape} {line['opcode']}({line['operands']}){opposite}\n"
            + (f"{last}{shape} not({name}.o)"),
        )


def _shifted(match: re.Match[str]) -> str:
    low, high = int(match[1]), int(match[2])
    return f"[{low - 1}:{high - 1}" if low else f"[{low + 1}:{high + 1}"


def _exchanged(match: re.Match[str]) -> str:
    """Exchange the first two numbers of a list."""
    first, second, *others = match[2].split(",")
    return f"{match[1]}={{{','.join((second, first, *others))}}}"


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


def _turned(match: re.Match[str]) -> str:
    pairs = [pair.split(",") for pair in match[2].split("},{")]
    return f"{match[1]}{'},{'.join(f'{b},{a}' for a, b in pairs)}{match[3]}"


def _next(match: re.Match[str]) -> str:
    """Take the next dimension, or dimension 0 for dimension 1."""
    return f"{match[1]}={{{1 if match[2] == '0' else int(match[2]) - 1}}}"


def _labels(match: re.Match[str]) -> str:
    """Exchange two labels of the kernel, or of the input if it has no others."""
    kernel = match[2].replace("0", "#").replace("1", "0").replace("#", "1")
    if kernel != match[2]:
        return f"{match[1]}_{kernel}"
    exchanged = {"i": "o", "o": "i"}
    return f"{match[1]}_{''.join(exchanged.get(c, c) for c in match[2])}"


_LISTS = (
    r"\b(dimensions|(?:lhs|rhs)_(?:contracting|batch)_dims|start_index_map|offset_dims|collapsed_slice_dims"
    r"|scatter_dims_to_operand_dims|update_window_dims|inserted_window_dims|permutation)"
)
_ATTRIBUTES = (
    ("groups", r"(replica_groups=\{\{)([\d,{}]+?)(\}\})", _regrouped),
    ("groups", r"(source_target_pairs=\{\{)([\d,{}]+?)(\}\})", _turned),
    ("index", r"\[(\d+):(\d+)", _shifted),
    ("index", r"(?<=index=)(\d+)", lambda m: str(int(m[1]) + 1 if m[1] == "0" else int(m[1]) - 1)),
    ("direction", r"direction=(\w\w)", lambda m: f"direction={_NEXT[m[1]]}"),
    ("direction", r"direction=(L\w|G\w)", lambda m: f"direction={_MIRROR[m[1]]}"),
    ("order", r", type=TOTALORDER", lambda _: ""),
    ("dimensions", _LISTS + r"=\{(\d+(?:,\d+)+)\}", _reversed),
    ("dimensions", _LISTS + r"=\{(\d+(?:,\d+)+)\}", _exchanged),
    ("dimensions", _LISTS + r"=\{(\d+)\}", _next),
    ("dimensions", r"iota_dimension=(\d)", lambda m: f"iota_dimension={1 - min(int(m[1]), 1)}"),
    ("dimensions", r"dim_labels=(\w+)_(\w+)", lambda m: f"dim_labels={_labels(m)}"),
    ("dimensions", r"index_vector_dim=(\d)", lambda m: f"index_vector_dim={1 - min(int(m[1]), 1)}"),
    ("padding", r"(pad(?:ding)?=)(\d+)_(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}_{int(m[3]) - 1}"),
    ("padding", r"(pad(?:ding)?=\d+_\d+x)(\d+)_(\d+)", lambda m: f"{m[1]}{int(m[2]) - 1}_{int(m[3]) + 1}"),
    ("window", r"rhs_reversal=([01x]+) ?", lambda _: ""),
    ("window", r"((?:lhs|rhs)_dilate=)(\d)x(\d)", lambda m: f"{m[1]}{m[3]}x{m[2]}"),
    ("window", r"(stride=)(\d)x(\d)", lambda m: f"{m[1]}{m[3]}x{m[2]}"),
    ("random", r"algorithm=rng_three_fry", lambda _: "algorithm=rng_philox"),
    ("random", r"algorithm=rng_(philox|default)", lambda _: "algorithm=rng_three_fry"),
    ("precision", r"exponent_bits=(\d+)", lambda m: f"exponent_bits={int(m[1]) - 1}"),
    ("precision", r"mantissa_bits=(\d+)", lambda m: f"mantissa_bits={max(int(m[1]) - 1, 0)}"),
    ("triangle", r"lower=(true|false)", lambda m: f"lower={'false' if m[1] == 'true' else 'true'}"),
    ("triangle", r"transpose_a=NO_TRANSPOSE", lambda _: "transpose_a=TRANSPOSE"),
)


def _program(stages: Sequence[Sequence[Path]], generator: random.Random) -> tuple[str, HloModule, HloModule]:
    """Draw a program before and after passes, and return where it comes from."""
    if stages and generator.random() < 0.5:
        paths = generator.choice(stages)
        number = generator.randrange(len(paths) - 1)
        return paths[number + 1].name, load(paths[number]), load(paths[number + 1])
    family, number = generator.choice(FAMILY_NAMES), generator.randrange(1 << 20)
    module = draw_case(family, number, 0).module
    return f"{family}/{number}", module, optimized(module, PASSES)


def _expired(signal_number: int, frame: object) -> None:
    raise TimeoutError


def judged(before: Fingerprinted, mutant: HloModule) -> str:
    """Return the verdict on a mutant, and whether the evaluator tells it apart if it is not refuted.

    A mutant whose judgement takes longer than `SECONDS` is "endless".
    """
    signal.signal(signal.SIGVTALRM, _expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        relation = decide(before, Fingerprinted(mutant)).relation
        if relation is Relation.REFUTED:
            return relation.value
        differs = is_told_apart(before.module, mutant, relation)
        return f"{relation.value}, {'different' if differs else 'equal on all arguments'}"
    except HloError:
        return "refused"
    except TimeoutError:
        return "endless"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _lines(number: int, seed: int, stages: Sequence[Sequence[Path]]) -> Iterator[dict[str, object]]:
    """Yield the verdicts on the mutants of a program."""
    generator = random.Random(f"{seed} {number}")
    try:
        name, before, after = _program(stages, generator)
        reference = Fingerprinted(before)
    except HloError:
        return
    for kind, mutant in islice(mutants(after, generator.randrange(1 << 30)), PER_PROGRAM):
        start = time.process_time()
        verdict = judged(reference, mutant)
        seconds = round(time.process_time() - start, 2)
        row = {"seed": seed, "number": number, "program": name, "kind": kind}
        yield {**row, "verdict": verdict, "seconds": seconds}


def main() -> int:
    """Judge mutants; return the number of wrong proofs in OUT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dumps = dumped_programs(options.folder) if options.folder is not None else []
    stages = [[stage.path for stage in program.passes] for program in dumps]
    stages = [paths for paths in stages if len(paths) > 1]
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    own = [line for line in done if line["seed"] == options.seed]
    number, count = max((line["number"] + 1 for line in own), default=0), len(own)
    with options.out.open("a") as out:
        while count < options.count:
            for line in _lines(number, options.seed, stages):
                print(json.dumps(line), file=out, flush=True)
                done.append(line)
                count += 1
            number += 1
    counts = Counter(line["verdict"] for line in done)
    for line in done:
        if line["verdict"].endswith("different"):
            print(line["verdict"], line["program"], line["kind"], sep="\t")
    apart = counts["refuted"] + sum(n for verdict, n in counts.items() if verdict.endswith("different"))
    print(f"{len(done)} mutants, {apart} told apart, {counts['refuted']} refuted:", dict(counts))
    return sum(n for verdict, n in counts.items() if re.match("(identical|equal).*different", verdict))


if __name__ == "__main__":
    sys.exit(bool(main()))
