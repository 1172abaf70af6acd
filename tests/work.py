"""Work counted in bytecodes, which a loaded machine does not change; time is not measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def bytecodes(function: Callable[[], Any]) -> int:
    """Return the number of bytecodes that a call executes, in this thread and in code written in Python."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(task: Callable[[int], Callable[[], Any]], size: int) -> float:
    """Return the factor by which a task's work grows from a size to twice the size; 2 if it is linear."""
    return bytecodes(task(2 * size)) / bytecodes(task(size))
