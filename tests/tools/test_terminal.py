"""Progress of long commands, on terminals and in pipes."""

from __future__ import annotations

import pytest

from hloom.tools.console.terminal import Progress


def test_a_pipe_gets_a_line_every_10_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    progress = Progress(lambda: seconds)
    for step in range(25):
        seconds = float(step)
        progress(f"step {step}")
    progress.done()
    assert capsys.readouterr().err == "step 10\nstep 20\n"


def test_a_terminal_gets_one_line_that_is_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress = Progress(lambda: 0.0)
    progress("a long step")
    progress("short")
    progress.done()
    assert capsys.readouterr().err == "\ra long step\rshort      \r     \r"
