"""Configuration of all tests: hypothesis' profile, and the collection of HLO file tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# In CI the same examples are drawn every time, so that a red run can be repeated; by hand new ones are.
# Deadlines are off because the machines that run the tests are shared.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("hand", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "hand")

# Compiled code of earlier runs is not used; the processes of one run share a cache.
if "HLOOM_CACHE_DIR" not in os.environ:
    os.environ["HLOOM_CACHE_DIR"] = tempfile.mkdtemp(prefix="hloom-cache-")
    atexit.register(shutil.rmtree, os.environ["HLOOM_CACHE_DIR"], ignore_errors=True)

# XLA compiles the programs of tests in two thirds of the time, and rounds where it always does.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

HLO_TESTS = Path(__file__).parent / "hlo"

# Nothing becomes garbage while tests are collected, and what they are lives as long as the process.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expectations of HLO file tests")


def pytest_configure(config: pytest.Config) -> None:
    # Shells start background processes with SIGINT ignored; tests of interruption would then never end.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.raised_rules import RaisedRules

    config.pluginmanager.register(RaisedRules(config), "raised-rules")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".hlo" and HLO_TESTS in file_path.parents:
        from tests.hlo_file import HloFile

        return HloFile.from_parent(parent, path=file_path)
    return None
