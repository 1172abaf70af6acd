"""Run programs one after another: ``python -m tests.jax_platform.programs RECORDS [NAME...]``.

Appends to the file, for every program, the name before it runs, then its results or the error.
"""

from __future__ import annotations

import faulthandler
import pickle
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

from tests.jax_platform.programs import program

MODULES = (
    "ahead_of_time", "array_functions", "buffers", "callbacks", "control_flow", "element_types",
    "linear_algebra", "random_numbers", "transforms",
)  # fmt: skip
SECONDS = 600
"""A program that takes longer hangs, also on a busy machine: the process ends with a traceback."""


def names() -> list[str]:
    """Return the names of all programs."""
    for module in MODULES:
        import_module(f"tests.jax_platform.programs.{module}")
    return list(program.PROGRAMS)


def plain(value: Any) -> Any:
    """Return results with numpy's arrays in the place of JAX's."""
    match value:
        case dict():
            return {key: plain(part) for key, part in value.items()}
        case tuple() | list():
            return [plain(part) for part in value]
        case program.Close() | program.Computed() | str() | bool() | int() | float() | None:
            return value
        case _:
            return program.array(value)


def main() -> None:
    """Run the programs that the command line names."""
    records, *wanted = sys.argv[1:]
    known = names()
    with Path(records).open("ab") as file:
        for name in wanted or known:
            pickle.dump((name, None, ""), file)
            file.flush()
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                record = (name, plain(program.PROGRAMS[name]()), "")
            except Exception:
                record = (name, None, traceback.format_exc())
            jax.effects_barrier()
            pickle.dump(record, file)
            file.flush()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
