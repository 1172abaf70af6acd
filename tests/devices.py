"""Run HLO text on several virtual devices in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import HloError
from hloom.runtime.executable import Executable
from tests.evaluation import parse


def program(body: str, computations: str = "") -> str:
    """Return a module whose entry has these instructions."""
    return f"HloModule test\n{computations}\nENTRY entry {{\n{body}\n}}"


def executable(*texts: str, replicas: int | None = None, partitions: int | None = None) -> Executable:
    """Return an executable of a program for all devices, or one for each, that does not wait for the host."""
    modules = [parse(text) for text in texts]
    exe = hloom.compile(
        modules[0] if len(modules) == 1 else modules, num_replicas=replicas, num_partitions=partitions
    )
    exe.host_timeout = 0.0
    return exe


def on_devices(
    text: str, arguments: Sequence[Sequence[Any]], *, replicas: int = 1, partitions: int = 1
) -> list[Any]:
    """Return the results of one program on replicas x partitions devices, replica-major."""
    return executable(text, replicas=replicas, partitions=partitions).run(arguments)


def fails(exe: Executable, arguments: Sequence[Sequence[Any]]) -> HloError:
    """Return the error with which a run ends."""
    with pytest.raises(HloError) as caught:
        exe.run(arguments)
    return caught.value


def lists(results: Sequence[Any]) -> list[Any]:
    """Return arrays as nested lists."""
    return [r if r is None else lists(r) if isinstance(r, tuple) else np.asarray(r).tolist() for r in results]
