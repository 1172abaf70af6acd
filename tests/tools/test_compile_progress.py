"""The progress of compilations: what is said, and that it is shown and cleared."""

from __future__ import annotations

import threading

import pytest

from hloom.phases import advance, phase, recording
from hloom.tools.console import compile_progress as module
from hloom.tools.console.compile_progress import compile_progress, progress_text
from hloom.tools.console.terminal import Progress


class Line(Progress):
    """Remembers what is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown, self.cleared = threading.Event(), threading.Event()
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        self.shown.set()

    def done(self) -> None:
        self.cleared.set()


def test_it_says_which_pass_runs_on_how_much():
    with recording() as profile:
        with phase("passes", "cse", lambda: 10):
            pass
        with phase("passes", "algsimp", lambda: 12345):
            text = progress_text(profile, 4.4)
        between = progress_text(profile, 5)
    assert text == "compiling for 4 s: passes, algsimp, pass 2, 12,345 instructions"
    assert between == ""


def test_it_says_how_far_emission_and_llvm_are():
    with recording() as profile:
        with phase("emission", "kernels and calls"):
            advance(1500, 20000)
            emission = progress_text(profile, 2)
        with phase("LLVM", "generate code"):
            pass
        with phase("LLVM", "generate code"):
            llvm = progress_text(profile, 3)
    assert emission == "compiling for 2 s: emission, kernels and calls, 1,500 of 20,000"
    assert llvm == "compiling for 3 s: LLVM, generate code, part 2"


def test_a_long_compilation_is_shown_and_cleared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    line = Line()
    with compile_progress(line), phase("passes", "fusion"):
        assert line.shown.wait(60)
    assert line.cleared.is_set()
    assert "passes, fusion" in line.texts[0]


def test_a_short_compilation_is_not_shown():
    line = Line()
    with compile_progress(line), phase("passes", "fusion"):
        pass
    assert not line.texts and not line.cleared.is_set()
