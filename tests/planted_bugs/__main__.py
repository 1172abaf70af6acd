"""Find and reduce every planted bug; see the package."""

from __future__ import annotations

import sys

from tests.planted_bugs.bugs import BUGS
from tests.planted_bugs.hunt import MOST_INSTRUCTIONS, MOST_SECONDS, hunt


def main(names: list[str]) -> int:
    """Print one line for each bug; return the number of failures."""
    failures = 0
    print(f"{'bug':24} {'found in':22} {'instructions':>14} {'tests':>6} {'CPU s':>7}")
    for name in names or BUGS:
        trophy = hunt(BUGS[name])
        good = trophy.found and trophy.after <= MOST_INSTRUCTIONS and trophy.seconds < MOST_SECONDS
        failures += not good
        size = f"{trophy.before} -> {trophy.after}"
        line = f"{name:24} {trophy.found_in:22} {size:>14} {trophy.tests:6} {trophy.seconds:7.1f}"
        print(line + ("" if good else "  FAILED"), flush=True)
    print(f"{failures} of {len(names or BUGS)} failed")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
