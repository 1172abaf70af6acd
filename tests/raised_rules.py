"""Record which rules tests really break: those of every `HloError` that a `pytest.raises` catches.

A name in a test says what its author expected; that the rule is the one that is raised only the error says.
After a run of all tests, rules by which some code can refuse and that no test broke fail the run.
Workers of pytest-xdist send what they saw to the process that started them.
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
    """An output of the command line, whose errors name their rules in brackets: they count as caught."""
    _CAUGHT.update(re.findall(r" \[([a-z0-9\-]+\.[a-z0-9_\-]+)\]$", output, re.MULTILINE))
    return output


class RaisedRules:
    """The plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.caught = _CAUGHT
        pytest.RaisesExc.__exit__ = _exit  # type: ignore[method-assign]

    def is_whole(self, session: pytest.Session) -> bool:
        """Whether all tests ran, and none failed: only then a rule that nobody broke is missing a test."""
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
        """What a worker saw."""
        self.caught |= set(getattr(node, "workeroutput", {}).get("rules", ()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the rules without a test."""
        if getattr(self, "missing", None):
            terminalreporter.section("rules that no test breaks", red=True)
            for line in self.missing:
                terminalreporter.write_line(line)


def unbroken(caught: Iterable[str]) -> list[str]:
    """The rules of hloom that are not among the caught ones, with the place of each."""
    from rule_names import UNREACHABLE, rules

    seen = set(caught)
    return [
        f"{rule} ({where})"
        for rule, where in sorted(rules().items())
        if rule not in seen | UNREACHABLE.keys()
    ]
