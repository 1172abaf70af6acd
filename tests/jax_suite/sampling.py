"""Plug-in of pytest: draw tests from a file, and record each as it starts and ends.

Environment: ``JAX_SUITE_RECORD`` is the file for the records, ``JAX_SUITE_COUNT`` the number of tests to draw
with ``JAX_SUITE_SEED``, or ``JAX_SUITE_TESTS`` a file with the names of tests; ``JAX_SUITE_DONE`` lists tests
to leave out, which an earlier process has run.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

_SECONDS = float(os.environ.get("JAX_SUITE_SECONDS", "180"))
_STDERR = os.dup(2)
"""The file for reports of crashes and hangs: opened before pytest captures the output of tests."""


def _record(**fields: Any) -> None:
    with open(os.environ["JAX_SUITE_RECORD"], "a") as file:
        file.write(json.dumps(fields) + "\n")


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[2]


def _draws(name: str) -> bytes:
    return hashlib.sha256(f"{os.environ.get('JAX_SUITE_SEED', '1')} {name}".encode()).digest()


def pytest_configure(config: pytest.Config) -> None:
    faulthandler.enable(_STDERR)
    if os.environ.get("HLOOM_AS_CPU"):
        import hloom.jax

        hloom.jax.register(as_cpu=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = os.environ.get("JAX_SUITE_TESTS")
    if listed:
        wanted = set(Path(listed).read_text().splitlines())
        chosen = [item for item in items if _name(item) in wanted]
    else:
        count = int(os.environ["JAX_SUITE_COUNT"])
        chosen = sorted(items, key=lambda item: _draws(_name(item)))[:count]
    _record(collected=len(items), selected=[_name(item) for item in chosen])
    done = set(Path(os.environ["JAX_SUITE_DONE"]).read_text().splitlines())
    items[:] = [item for item in chosen if _name(item) not in done]


def pytest_runtest_logstart(nodeid: str) -> None:
    faulthandler.dump_traceback_later(_SECONDS, file=_STDERR)
    _record(test=nodeid.partition("::")[2])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.partition("::")[2]
    if report.when == "call" or report.outcome != "passed":
        why = report.longreprtext if report.failed else ""
        _record(test=name, outcome=report.outcome, why=why, seconds=round(report.duration, 2))


def pytest_runtest_logfinish(nodeid: str) -> None:
    faulthandler.cancel_dump_traceback_later()
