"""Small JAX programs give the same on hloom as on JAX's own CPU client.

All programs run in one process on each side; a process that dies is started again behind the program that
killed it.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hloom.ir.module import HloModule
from tests.agreement import computed, same, within
from tests.jax_platform.process import Platform, environment_of, registration

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "programs"
NAMES_OF = {
    path.stem: re.findall(r"^@program\ndef (\w+)\(", path.read_text(), re.M)
    for path in sorted(FOLDER.glob("[a-z]*.py"))
}
NAMES = [name for names in NAMES_OF.values() for name in names]
STOCK_FLAGS = "--xla_backend_optimization_level=0"
"""XLA compiles these programs in two thirds of the time, and rounds where they do."""
RUN = "from tests.jax_platform.programs.__main__ import main; main()"


@dataclass(frozen=True)
class Record:
    """The outcome of a program: its results, or an error."""

    results: Any
    error: str = ""


def run_programs(platform: Platform, folder: Path, names: Sequence[str] = NAMES) -> dict[str, Record]:
    """Run programs on a platform."""
    records: dict[str, Record] = {}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**environment_of(platform), "PYTHONPATH": path}
    if platform == "stock":
        environment["XLA_FLAGS"] = STOCK_FLAGS
    while missing := [name for name in names if name not in records]:
        file = folder / f"{platform}-{len(records)}.pickle"
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            registration(platform) + RUN,
            str(file),
            *missing,
        ]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3600
        )
        started = [*read(file, records)]
        if done.returncode and not started:
            raise RuntimeError(f"no program ran on {platform}:\n{done.stderr[-4000:]}")
        if done.returncode:
            end = f"the process ended with {done.returncode}:\n{done.stderr[-4000:]}"
            records[started[-1]] = Record(None, end)
    return records


def read(file: Path, records: dict[str, Record]) -> Iterator[str]:
    """Read records, and yield the names of programs as they were started."""
    if not file.exists():
        return
    with file.open("rb") as stream:
        while True:
            try:
                name, results, error = pickle.load(stream)
            except EOFError:
                return
            if results is None and not error:
                yield name
            else:
                records[name] = Record(results, error)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Record]]:
    folder = tmp_path_factory.mktemp("programs")
    platforms: list[Platform] = ["cpu", "stock"]
    names = [name for name in NAMES if name in selected_names(request.session)]
    with ThreadPoolExecutor(len(platforms)) as pool:
        return dict(
            zip(platforms, pool.map(lambda p: run_programs(p, folder, names), platforms), strict=True)
        )


def selected_names(session: pytest.Session) -> set[str]:
    """Return the programs that the selected tests compare."""
    selected: set[str] = set()
    for item in session.items:
        if isinstance(item, pytest.Function) and item.originalname == "test_programs_agree":
            selected.add(str(item.callspec.params["name"]))
        elif item.name == "test_programs_with_functions_agree_under_the_name_hloom":
            selected.update(NAMES_OF["callbacks"])
    return selected


def compare(got: Any, wanted: Any, place: str = "") -> None:
    """Assert that results agree, each by its own measure."""
    assert type(got) is type(wanted), f"{place}: {got!r} instead of {wanted!r}"
    kind = type(wanted).__name__
    try:
        if isinstance(wanted, dict | list):
            keys = wanted if isinstance(wanted, dict) else range(len(wanted))
            assert len(got) == len(wanted), f"{len(got)} parts instead of {len(wanted)}"
            for key in keys:
                compare(got[key], wanted[key], f"{place}[{key!r}]")
        elif kind == "Close":
            within(got.value, wanted.value, wanted.bound)
        elif kind == "Computed":
            module = HloModule.from_proto(wanted.module)
            computed(got.values, module, wanted.arguments, wanted=wanted.values)
        elif hasattr(wanted, "dtype"):
            same(got, wanted)
        else:
            assert got == wanted
    except AssertionError as error:
        error.add_note(f"in the result{place}")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_programs_agree(name: str, runs: dict[str, dict[str, Record]]) -> None:
    wanted, got = runs["stock"][name], runs["cpu"][name]
    assert not wanted.error, f"JAX's own client fails:\n{wanted.error}"
    assert not got.error, got.error
    compare(got.results, wanted.results)


def test_programs_with_functions_agree_under_the_name_hloom(
    runs: dict[str, dict[str, Record]], tmp_path: Path
) -> None:
    """JAX has no lowerings for this platform: `hloom.jax.lowerings` passes on those for cpu."""
    got = run_programs("hloom", tmp_path, NAMES_OF["callbacks"])
    for name, record in got.items():
        assert not record.error, f"{name}: {record.error}"
        compare(record.results, runs["stock"][name].results, name)


def test_there_are_many_programs() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 60
