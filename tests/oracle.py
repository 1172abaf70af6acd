"""jaxlib's CPU client as a second oracle; tests that use it are skipped if jax is not installed."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from hloom.ir.xla_version import XlaVersion


def installed_version() -> XlaVersion:
    """Return the version of the installed jaxlib, whose printer is compared with."""
    pytest.importorskip("jaxlib")
    return XlaVersion.parse(version("jaxlib"))


def run(text: str, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    """Return the leaves of the result of an HLO program on XLA:CPU."""
    pytest.importorskip("jax")
    from hloom.debug.xla_cpu import run_on_xla

    return run_on_xla(text, arguments)
