"""Write the dumps of the programs named (all of them by default), then check them: `DIR [NAME ...]`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(directory: Path, names: list[str]) -> int:
    """Return the number of failures."""
    from tests.dump_corpus.checking import check_folder
    from tests.dump_corpus.programs import PROGRAMS
    from tests.dump_corpus.writing import write

    failures = 0
    for name in names or PROGRAMS:
        folder = directory / name
        if not folder.exists():
            write(directory, [name])
        report = check_folder(folder)
        failures += len(report.failures)
        counts = ", ".join(f"{what} {count}" for what, count in report.counts.items())
        print(f"{name}: {counts}; {len(report.failures)} failed", flush=True)
        for failure in report.failures:
            print("  " + failure.replace("\n", "\n    "), flush=True)
    print(f"{failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]) > 0)
