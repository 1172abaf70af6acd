"""The code of the compiler's page runs, and its claims are true."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hloom.cpu.dump_options import DumpOptions
from tests import agreement

PAGE = (Path(__file__).parents[1] / "docs" / "compiler.md").read_text()


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.S), 1):
        exec(compile(block, f"docs/compiler.md, block {number}", "exec"), names)
    printed = capsys.readouterr().out
    sums = np.fromstring(printed[1 : printed.index("]")], sep=" ")
    # sums of numbers that softmax has rounded, printed with eight digits
    agreement.within(sums, np.ones(4), 1e-8 + 64 * np.finfo(np.float32).eps)
    assert "kind=kCustom" in printed
    assert "dot(" in printed
    assert "GFLOP/s" in printed


def test_every_flag_is_named() -> None:
    """And no other."""
    named = set(re.findall(r"--(xla_\w+)", PAGE))
    assert named == {f"xla_{name}" for name in DumpOptions.__dataclass_fields__}
