"""Run the comparison: ``python -m tests.differential --cases 10000 [--family NAME] [--seed S]``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .campaign import Campaign
from .families import FAMILIES, draw_case, round_robin
from .xla import Xla

GROUP = 160
"""Number of cases drawn at once."""


def main() -> None:
    """Draw cases of the families alternately, compare them, and print unexplained differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--family", action="append", choices=sorted(FAMILIES), help="one or several; default all"
    )
    parser.add_argument("--case", type=int, help="only the case of this number in the family")
    parser.add_argument("--backend", action="append", help="of hloom, one or several; default evaluator")
    parser.add_argument("--first", type=int, default=0, help="number of cases to skip")
    parser.add_argument("--log", type=Path, help="write the unexplained differences there")
    parser.add_argument("--show", type=int, default=20, help="how many of them to print")
    options = parser.parse_args()
    families = options.family or sorted(FAMILIES)
    names = round_robin(families, options.cases, options.first)
    if options.case is not None:
        names = [(family, options.case) for family in families]
    start = time.time()
    with Xla() as xla:
        campaign = Campaign(xla, options.backend or ["evaluator"])
        for begin in range(0, len(names), GROUP):
            campaign.check([draw_case(f, n, options.seed) for f, n in names[begin : begin + GROUP]])
            if sys.stderr.isatty():
                found = len(campaign.report.findings)
                print(f"\r{begin + GROUP} cases, {found} findings", end="", file=sys.stderr)
    findings = campaign.report.findings
    if options.log:
        options.log.write_text("\n\n".join(map(str, findings)))
    print("\n\n".join(map(str, findings[: options.show])))
    print(campaign.report)
    print(f"{time.time() - start:.0f} s")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
