"""Devices in several processes over a real MPI library; on this machine, with few and short runs."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom.sharding
from hloom.tools.cli import main
from tests import agreement
from tests.mpi_launcher import command, needs_mpi
from tests.raised_rules import printed as printed_rules
from tests.runtime.collective_programs import programs

HERE = Path(__file__).parent
SOURCE = Path(__file__).parents[2] / "src"
pytestmark = needs_mpi


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def launched(count: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python command in ``count`` processes."""
    return subprocess.run(
        command(count, *words),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@cache
def printed(count: int) -> str:
    done = launched(count, str(HERE / "mpi_program.py"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [2, 3])
def test_every_collective_gives_the_bits_of_one_process(count: int) -> None:
    done = launched(count, str(HERE / "mpi_collectives.py"))
    assert done.returncode == 0, done.stderr
    number = sum(1 for _ in programs())
    assert done.stdout == f"{number} programs on {count} processes\n"


def test_programs_that_are_dropped_free_their_communicators() -> None:
    """MPICH has some 2,000 communicators, of which 1,900 are taken; each of these programs takes two."""
    done = launched(2, str(HERE / "mpi_many_programs.py"), "1900", "100")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "100 programs\n"


def failed(way: str) -> list[str]:
    """Return the errors of two processes."""
    done = launched(2, str(HERE / "mpi_failures.py"), way)
    assert done.returncode == 0, done.stderr
    return re.split(r"^process \d: ", printed_rules(done.stdout), flags=re.MULTILINE)[1:]


def test_participants_contribute_arrays_of_one_size() -> None:
    """A message may arrive that is larger than the memory for it."""
    first, second = failed("other-sizes")
    assert first.startswith("collective.same-operands: ")
    assert second.startswith(
        "processes.exchange: processes could not exchange the operands of all-reduce %y.1"
    )
    assert "truncated" in second.lower()  # in MPI's own words


AWAITED = "waits in all-reduce %y for device (replica 0, partition 1) of process 1 on "


def test_a_participant_that_never_arrives() -> None:
    """The process that gives up first tells the other one."""
    first, second = failed("absent")
    rules = {error.partition(":")[0] for error in (first, second)}
    assert "devices.deadlock" in rules and rules <= {"devices.deadlock", "processes.failed"}
    assert AWAITED in first


def test_an_error_ends_those_who_wait_for_messages() -> None:
    first, second = failed("raises")
    assert first.startswith("processes.failed: process 1 on ")
    assert AWAITED in first
    assert second.startswith("custom-call.failed: ")


@pytest.mark.parametrize("count", [2, 4])
def test_every_number_of_processes_gives_the_same_bits(count: int) -> None:
    assert printed(count) == printed(1) != ""


def test_a_killed_process_ends_the_others() -> None:
    """Without the launcher's signal the other one would wait for `Executable.process_timeout`, an hour."""
    done = launched(2, str(HERE / "mpi_program.py"), "--die")
    assert done.returncode != 0


def test_an_uncaught_exception_ends_the_others() -> None:
    """They wait in an exchange with the process that has failed, and MPI would let that one wait for them."""
    done = launched(2, str(HERE / "mpi_program.py"), "--raise")
    assert done.returncode != 0
    assert "a mistake in process 1" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [((str(HERE / "mpi_program.py"), "--random", "1"), "error: "), (("nowhere.hlo",), "does not exist")],
)
def test_a_command_that_fails_in_one_process_ends_the_others(words: tuple[str, ...], complaint: str) -> None:
    run = ("-m", "hloom", "run")
    good = command(1, *run, str(HERE / "collectives.hlo"), "--random", "1")
    bad = command(1, *run, *words)[1:]
    done = subprocess.run(
        [*good, ":", *bad], env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "devices.deadlock" not in done.stderr  # the end after `Executable.process_timeout`


def untimed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that a command prints, without its one summary, which holds times."""
    lines = done.stdout.splitlines()
    assert " ms on " in lines[0]
    assert not any(" ms on " in line for line in lines[1:])
    return lines[1:]


def test_the_command_line_divides_the_devices_and_prints_once() -> None:
    words = ("-m", "hloom", "run", str(HERE / "collectives.hlo"), "--random", "1")
    alone, divided = launched(1, *words), launched(2, *words)
    assert divided.returncode == 0, divided.stderr
    assert untimed(alone) == untimed(divided)
    assert any(line.startswith("device 3 result") for line in untimed(divided))


def results(directory: Path) -> dict[str, Any]:
    """Return the arrays of a directory of stored arrays."""
    return {name: np.asarray(array) for name, array in hloom.sharding.stored(directory).items()}


def step(processes: int, folder: Path, *words: object) -> dict[str, Any]:
    """Run a training step, store its results in a folder, and return them."""
    arguments = ("run", str(HERE / "step.hlo"), *map(str, words), "--quiet", "--output-tiles", str(folder))
    if processes == 1:
        alone = CliRunner().invoke(main, arguments)
        assert alone.exit_code == 0, alone.output
    else:
        done = launched(processes, "-m", "hloom", *arguments)
        assert done.returncode == 0, done.stderr
    return results(folder)


@pytest.mark.parametrize("mesh", ["data=4", "data=2", "data=3"])
def test_a_run_continues_with_another_number_of_processes(tmp_path: Path, mesh: str) -> None:
    """Four devices of one process store a state that two processes read, and the other way round."""
    first, second = tmp_path / "first", tmp_path / "second"
    step(1, first, "--partition", "--random", 1)
    alone = step(1, tmp_path / "alone", "--mesh", mesh, "--input", first)
    divided = step(2, second, "--mesh", mesh, "--input", first)
    agreement.equal(tuple(divided.values()), tuple(alone.values()))
    alone = step(1, tmp_path / "alone after two", "--partition", "--input", second)
    divided = step(2, tmp_path / "divided", "--partition", "--input", second)
    agreement.equal(tuple(divided.values()), tuple(alone.values()))
    assert list(divided) == ["result.0", "result.1", "result.2"]


def test_a_partitioned_program_prints_its_whole_results_once() -> None:
    words = ("-m", "hloom", "run", str(HERE / "step.hlo"), "--partition", "--random", "1")
    alone, divided = launched(1, *words), launched(2, *words)
    assert divided.returncode == 0, divided.stderr
    assert untimed(alone) == untimed(divided)
    assert untimed(divided)[0].startswith("result.0: f32[6,8]")
