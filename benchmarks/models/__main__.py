"""Compare hloom on whole models with JAX's own CPU client and PyTorch.

Each model runs on every side in a process of its own; the processes take turns. Columns: milliseconds of a
step (medians); how many times as fast as each other side hloom is; the part of the machine's limit that hloom
reaches (`benchmarks.machine`); the spread of its times, the distance of the quartiles by the median; and the
sides whose results differ from those of JAX's own client.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.alternation import ROOT, Measured, measured
from benchmarks.machine import Machine, this_machine
from benchmarks.plots import MARGIN, WIDTH, draw_ratios
from benchmarks.row import geometric_mean, quotient
from benchmarks.table import milliseconds, percent, times
from hloom.tools.pictures.picture import Picture

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "models.svg"
TABLE = re.compile(r"(?<=<!-- models -->\n).*?(?=<!-- end -->)", re.DOTALL)
NAMES = (
    "gpt2_train",
    "bert_forward",
    "resnet50_forward",
    "resnet50_train",
    "lstm_train",
    "smollm_forward",
    "smollm_train",
    "smollm_decode",
    "smollm_forward_bf16",
    "smollm_train_bf16",
    "smollm_decode_bf16",
    "smollm_decode_int8",
)


@dataclass(frozen=True)
class Row:
    """A model on all sides, and the seconds of the machine's limit."""

    name: str
    sides: Mapping[str, Measured]
    limit: float | None

    @property
    def faster(self) -> float | None:
        """The speedup of hloom over JAX's own client."""
        return self.faster_than("stock")

    def faster_than(self, side: str) -> float | None:
        """Return the speedup of hloom over another side; None for a side that did not run."""
        other = self.sides.get(side)
        return quotient(other.median, self.sides["hloom"].median) if other is not None else None

    @property
    def of_limit(self) -> float | None:
        """The part of the machine's limit that hloom reaches."""
        return quotient(self.limit, self.sides["hloom"].median)

    @property
    def remarks(self) -> Iterator[str]:
        """Missing libraries, errors and differing results, by side."""
        for name, side in self.sides.items():
            if side.remark:
                yield f"{name}: {side.remark}"

    def to_json(self) -> dict[str, Any]:
        """Return everything that was measured."""
        return {"name": self.name, "limit": self.limit, **{k: asdict(v) for k, v in self.sides.items()}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure models; returns 1 if hloom's results differ or a model does not run on it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--peers", action="store_true", help="measure PyTorch too, eager and compiled")
    parser.add_argument("--seconds", type=float, default=5.0, help="of steps on each side (5)")
    parser.add_argument("--json", metavar="OUT", help="write everything that was measured")
    parser.add_argument("--plot", action="store_true", help="write table and plot into docs/")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(NAMES)}")
    machine, sides = this_machine(), ["stock", "hloom", *(["torch", "compiled"] if options.peers else [])]
    print(machine, heading(sides), sep="\n")
    rows: list[Row] = []
    for name in options.names or NAMES:
        rows.append(measured_row(name, sides, options.seconds, machine))
        print(line(rows[-1]), flush=True)
    print(last_line(rows, sides))
    if options.json:
        content = {"machine": machine.to_json(), "models": [row.to_json() for row in rows]}
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if options.plot:
        write(rows, sides, machine)
    wrong = [row for row in rows if row.sides["hloom"].median is None or row.sides["hloom"].agree is False]
    return int(bool(wrong))


def measured_row(name: str, sides: Sequence[str], budget: float, machine: Machine) -> Row:
    """Measure a model on some sides."""
    modules = {side: "jax_models" if side in ("stock", "hloom") else "torch_models" for side in sides}
    results = measured({side: f"benchmarks.models.{modules[side]}:{name}" for side in sides}, budget)
    cost = results["hloom"].cost
    limit = machine.limit(cost["flops"], cost["bytes accessed"]) if cost else None
    return Row(name, results, limit)


def heading(sides: Sequence[str]) -> str:
    """Return the titles of the columns."""
    ratios = "".join(f"{'/ ' + side:>11}" for side in sides if side != "hloom")
    titles = "".join(f"{f'{side} ms':>13}" for side in sides)
    return f"{'model':24}{titles}{ratios}{'limit':>8}{'spread':>8}"


def cells(row: Row) -> list[str]:
    """Return the numbers of a row."""
    ratios = [times(row.faster_than(side)) for side in row.sides if side != "hloom"]
    spread = percent(row.sides["hloom"].spread)
    return [
        *(milliseconds(side.median) for side in row.sides.values()),
        *ratios,
        percent(row.of_limit),
        spread,
    ]


def line(row: Row) -> str:
    """Return a line of the table."""
    count = len(row.sides)
    widths = [*[13] * count, *[11] * (count - 1), 8, 8]
    numbers = "".join(f"{cell:>{width}}" for cell, width in zip(cells(row), widths, strict=True))
    return f"{row.name:24}{numbers}  {'; '.join(row.remarks)}".rstrip()


def last_line(rows: Sequence[Row], sides: Sequence[str]) -> str:
    """Return the geometric means of the ratios."""
    means = [
        times(geometric_mean(row.faster_than(side) for row in rows)) for side in sides if side != "hloom"
    ]
    return f"{'geometric mean':24}{'':{13 * len(sides)}}{''.join(f'{mean:>11}' for mean in means)}"


def write(rows: Sequence[Row], sides: Sequence[str], machine: Machine) -> None:
    """Write the table into docs/benchmarks.md, and draw the ratios beside it."""
    titles = [*(f"{side} ms" for side in sides), *(f"by {side}" for side in sides if side != "hloom")]
    lines = [f"{machine}".replace("\n", "; ") + ".", ""]
    lines += ["| " + " | ".join(["model", *titles, "limit", "spread"]) + " |"]
    lines += ["|---" + "|---:" * (len(titles) + 2) + "|"]
    lines += ["| " + " | ".join([row.name, *cells(row)]) + " |" for row in rows]
    means = [
        times(geometric_mean(row.faster_than(side) for row in rows)) for side in sides if side != "hloom"
    ]
    lines += ["| " + " | ".join(["geometric mean", *[""] * len(sides), *means, "", ""]) + " |", ""]
    lines += [f"![how many times as fast hloom is on each model]({PICTURE.relative_to(PAGE.parent)})", ""]
    PAGE.write_text(TABLE.sub(lambda _: "\n".join(["", *lines, ""]), PAGE.read_text()))
    picture = Picture(WIDTH, 0, "hloom and JAX's own CPU client on whole models")
    picture.height = draw_ratios(picture, rows, MARGIN) + MARGIN
    picture.save(PICTURE)


if __name__ == "__main__":
    sys.exit(main())
