"""Monitor the source lines that run, in all threads: a first run of a line costs a call, later ones nothing.

PEP 669, Python 3.12.
"""

import os
import sys
from collections import defaultdict
from types import CodeType

monitoring = sys.monitoring  # pyright: ignore[reportAttributeAccessIssue]


class LineMonitor:
    """Lines of the source files of a folder that have run since the last call of `take`."""

    def __init__(self, folder: str) -> None:
        self.prefix = folder + os.sep
        self.ran: set[tuple[str, int]] = set()
        tool, events = monitoring.COVERAGE_ID, monitoring.events
        monitoring.use_tool_id(tool, "lines")
        monitoring.register_callback(tool, events.LINE, self.note)
        monitoring.set_events(tool, events.LINE)

    def note(self, code: CodeType, line: int) -> object:
        """Note a line that runs, and let it run unseen until the next restart of events."""
        if code.co_filename.startswith(self.prefix):
            self.ran.add((code.co_filename, line))
        return monitoring.DISABLE

    def take(self) -> dict[str, set[int]]:
        """Return the lines that have run, by file, and begin anew."""
        ran, self.ran = self.ran, set()
        monitoring.restart_events()
        lines: defaultdict[str, set[int]] = defaultdict(set)
        for file, line in ran:
            lines[file].add(line)
        return lines
