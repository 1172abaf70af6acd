"""Transfers between the tiles of each operation; `--bless` writes `collectives_of_operations.txt`.

The values are the same if a device gets more than it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.sharding.reporting.report import report
from hloom.tools.reports.shard_text import report_text
from tests.sharding.test_operations import PROGRAMS, module_of

FILE = Path(__file__).with_name("collectives_of_operations.txt")


def reports() -> Iterator[str]:
    """Yield the reports of the programs, down to the reasons of the collectives."""
    for number, name in enumerate(PROGRAMS):
        devices = (4, 6)[number % 2]
        module = module_of(name, devices, np.random.default_rng(number))
        module.config.num_partitions = devices
        DeadCodeElimination().run(module)
        text = click.unstyle(report_text(report(module), everything=True))
        yield f"{name}: {text[: text.index('memory of a device')].strip()}\n"


def test_reports(pytestconfig: pytest.Config) -> None:
    found = "\n".join(reports())
    if pytestconfig.getoption("--bless"):
        FILE.write_text(found)
    assert found == FILE.read_text()
