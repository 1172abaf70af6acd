"""Record the coverage of a Python process that a test starts; this folder comes first in its PYTHONPATH."""

import atexit
import os

from coverage import Coverage

recording = Coverage(
    data_file=os.path.join(os.environ["MUTATION_COVERAGE"], "child"),
    data_suffix=True,
    source=[os.environ["MUTATION_SOURCES"]],
    config_file=False,
    messages=False,
)


def _save() -> None:
    recording.stop()
    recording.save()


recording.start()
atexit.register(_save)
