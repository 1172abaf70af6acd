"""jaxlib's CPU client as a second oracle; tests that use it are skipped if jax is not installed."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import XlaVersion


def installed_version() -> XlaVersion:
    """Return the version of the installed jaxlib, whose printer is compared with."""
    pytest.importorskip("jaxlib")
    return XlaVersion.parse(version("jaxlib"), newer=True)


def as_read_by_xla(module: HloModule, options: PrintOptions | None = None) -> str:
    """Return the text that the installed XLA prints, by options, after it has read a module.

    XLA numbers the stack frames of what it reads anew, and drops those that no instruction refers to.
    """
    module = module.clone()
    instructions = [i for c in module.computations for i in c.in_id_order() if i.metadata is not None]
    tables, numbers = module.config.stack_frames.used(
        i.metadata.stack_frame_id for i in instructions if i.metadata and i.metadata.stack_frame_id
    )
    for i in instructions:
        assert i.metadata is not None
        i.metadata = replace(i.metadata, stack_frame_id=numbers.get(i.metadata.stack_frame_id, 0))
    module.config.stack_frames = tables
    return module.to_text((options or PrintOptions()).replace(xla_version=installed_version()))


def run(text: str, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    """Return the leaves of the result of an HLO program on XLA:CPU."""
    pytest.importorskip("jax")
    from hloom.debug.xla_cpu import run_on_xla

    return run_on_xla(text, arguments)
