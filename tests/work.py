"""Work counted in bytecodes, which a loaded machine does not change; time is not measured."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import Any


def bytecodes(function: Callable[[], Any]) -> int:
    """Return the number of bytecodes that a call executes in code written in Python.

    From Python 3.12 on `sys.monitoring` counts them, in a third of the time; tracing there leaves out some of
    those of code that runs for the first time.
    """
    return _traced(function) if sys.version_info < (3, 12) else _monitored(function)


def _monitored(function: Callable[[], Any]) -> int:
    """Count in C: a cache of no size counts its calls, whose two arguments are code and offset."""
    monitoring: Any = vars(sys)["monitoring"]
    tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
    counted = lru_cache(maxsize=0)(operator.is_)
    monitoring.use_tool_id(tool, "bytecodes")
    monitoring.register_callback(tool, event, counted)
    monitoring.set_events(tool, event)
    try:
        function()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return counted.cache_info().misses


def _traced(function: Callable[[], Any]) -> int:
    """Count in a trace function, of this thread alone."""
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
