"""Digests of the results of programs: ``python -m tests.cpu.thread_digests DIR RUNS`` prints them as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hloom
from hloom.tools.examples.workload import draw_inputs


def main() -> None:
    """Run every program of a directory several times."""
    directory, runs = Path(sys.argv[1]), int(sys.argv[2])
    digests: dict[str, list[str]] = {}
    for path in sorted(directory.glob("*.hlo")):
        run = hloom.compile(hloom.HloModule.from_text(path.read_text()))
        inputs = draw_inputs(directory, path.stem)
        digests[path.stem] = [digest(run(*inputs)) for _ in range(runs)]
    print(json.dumps(digests))


def digest(value: Any) -> str:
    """Return a digest of the bits of a result."""
    return hashlib.sha256(b"".join(array.tobytes() for array in leaves_of(value))).hexdigest()


def leaves_of(value: Any) -> Iterator[np.ndarray]:
    """Yield the arrays of a result."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves_of(part)
    else:
        yield np.asarray(value)


if __name__ == "__main__":
    main()
