"""Record the lines that a Python process of a test runs; this folder comes first in its PYTHONPATH."""

import atexit
import json
import os
import tempfile

from line_monitor import LineMonitor

monitor = LineMonitor(os.environ["MUTATION_SOURCES"])


def save() -> None:
    """Write the lines to a file of their own, all of them or nothing."""
    lines = {file: sorted(of) for file, of in monitor.take().items()}
    number, partial = tempfile.mkstemp(dir=os.environ["MUTATION_LINES"], suffix=".partial")
    with os.fdopen(number, "w") as output:
        json.dump(lines, output)
    os.rename(partial, partial.removesuffix(".partial") + ".json")


atexit.register(save)
