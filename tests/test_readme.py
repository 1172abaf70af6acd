"""The Python blocks of the README run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys) -> None:
    """The blocks share their names; they print what their comments state."""
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) == 10
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"README example {number}", "exec"), names)
    printed = capsys.readouterr().out
    for expected in (
        "17\n(2, 3)\nNone\n96\n",
        "[[1, 2, 3], [-1, -2, -3]]",
        "(array(10",
        "1024",
        "4.  , 7.75",
        "[1.  1.5]",
    ):
        assert expected in printed, expected
