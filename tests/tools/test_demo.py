"""The demonstration runs, and its output is right."""

from __future__ import annotations

import re
import sys

import pytest

from hloom.tools.examples import demo


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as few steps as print every kind of line."""
    for name, value in (("EVALUATED_STEPS", 1), ("COMPILED_STEPS", 4), ("SHOWN", 2), ("ROUNDS", 1)):
        monkeypatch.setattr(demo, name, value)


def test_the_compiled_program_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    demo.main()
    printed = capsys.readouterr().out
    losses = [float(x) for x in re.findall(r"step +\d+ +loss +([\d.]+)", printed)]
    assert len(losses) == 4
    assert losses[0] == losses[1]  # the first step, evaluated and compiled
    assert losses[1] > losses[2] > losses[3]
    differences = [float(x) for x in re.findall(r"up to ([\d.e-]+) of the largest value", printed)]
    assert len(differences) == 2
    assert max(differences) < 1e-2
    assert re.search(r"XLA:CPU +[\d.]+ s +[\d.]+ ms\n  hloom +[\d.]+ s +[\d.]+ ms\n", printed)


def test_without_xla_there_is_no_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hloom.debug.xla_cpu", None)
    monkeypatch.delattr("hloom.debug.xla_cpu", raising=False)
    demo.main()
    printed = capsys.readouterr().out
    assert "XLA is not installed here" in printed
    assert "Side by side" not in printed
