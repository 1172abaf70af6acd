"""The launcher of MPI programs, if there is one."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

LAUNCHER = shutil.which(
    "mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
)
needs_mpi = pytest.mark.skipif(
    LAUNCHER is None or find_spec("mpi4py") is None,
    reason="no MPI: pip install mpi4py mpich",
)


def command(count: int, *words: str) -> list[str]:
    """Return the command that runs Python in ``count`` processes."""
    return [str(LAUNCHER), "-n", str(count), sys.executable, *words]
