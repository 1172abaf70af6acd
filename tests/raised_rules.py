"""Record which rules tests really break: those of every `HloError` that a `pytest.raises` catches.

A name in a test states the expected rule; only the error states the raised one. A run of all tests fails if
code can raise a rule that no test broke. Workers of pytest-xdist send their rules to the process that started
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from hloom.errors import HloError

_CAUGHT: set[str] = set()
_EXIT = pytest.RaisesExc.__exit__


def _exit(self: Any, kind: Any, value: Any, traceback: Any) -> bool:
    """Leave the block; a caught error counts."""
    done = _EXIT(self, kind, value, traceback)
    if done and isinstance(value, HloError):
        _CAUGHT.add(value.rule)
    return done


def printed(output: str) -> str:
    """Return an output of the command line, whose errors contain their rules: they count as caught."""
    _CAUGHT.update(re.findall(r" \[([a-z0-9\-]+\.[a-z0-9_\-]+)\]$", output, re.MULTILINE))
    return output


class RaisedRules:
    """The plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.caught = _CAUGHT
        pytest.RaisesExc.__exit__ = _exit  # type: ignore[method-assign]

    def is_whole(self, session: pytest.Session) -> bool:
        """Return whether all tests ran and passed: only then an unbroken rule is a missing test."""
        option = self.config.option
        chosen = option.keyword or option.markexpr or getattr(option, "lf", False) or option.collectonly
        args = self.config.args_source == pytest.Config.ArgsSource.TESTPATHS
        return bool(args and not chosen and not option.deselect and session.exitstatus == 0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the rules over, or look for those that are missing."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["rules"] = sorted(self.caught)
            return
        self.missing = unbroken(self.caught) if self.is_whole(session) else []
        if self.missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Merge the rules that a worker saw."""
        self.caught |= set(getattr(node, "workeroutput", {}).get("rules", ()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the rules without a test."""
        if getattr(self, "missing", None):
            terminalreporter.section("rules that no test breaks", red=True)
            for line in self.missing:
                terminalreporter.write_line(line)


def unbroken(caught: Iterable[str]) -> list[str]:
    """Return the rules of hloom that are not among the caught ones, with their positions."""
    from tests.rule_names import UNREACHABLE, rules

    seen = set(caught)
    return [
        f"{rule} ({where})"
        for rule, where in sorted(rules().items())
        if rule not in seen | UNREACHABLE.keys()
    ]
