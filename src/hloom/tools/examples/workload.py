"""The example programs: HLO files with descriptions of their inputs.

The directory has ``NAME.hlo`` files and an ``inputs.json``, which lists the parameters of each program in
order: ``dtype``, ``shape``, and ``kind``, which is ``int`` (uniform in [lo, hi)) or ``normal`` (with mean and
scale).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.errors import HloError


def examples() -> Path:
    """Return the directory of this checkout's example programs. Raises HloError outside of a checkout."""
    directory = Path(__file__).resolve().parents[4] / "examples" / "workloads"
    if not directory.is_dir():
        raise HloError(
            f"the example programs are not at {directory}: run from a checkout", rule="workload.directory"
        )
    return directory


def draw_inputs(directory: Path, name: str) -> list[np.ndarray]:
    """Draw random inputs for a program: parameter number i from seed i."""
    described = json.loads((directory / "inputs.json").read_text())
    if name not in described:
        raise HloError(f"{directory / 'inputs.json'} does not describe {name!r}", rule="workload.inputs")
    return [draw_input(parameter, seed) for seed, parameter in enumerate(described[name])]


def draw_input(described: dict[str, Any], seed: int) -> np.ndarray:
    """Draw one input by its description in ``inputs.json``."""
    generator: Any = np.random.default_rng(seed)
    named: Any = getattr(ml_dtypes, described["dtype"], described["dtype"])
    dtype: np.dtype = np.dtype(named)
    shape = described["shape"]
    if described["kind"] == "int":
        return np.asarray(generator.integers(described["lo"], described["hi"], shape), dtype)
    mean, scale = described["mean"], described["scale"]
    values: np.ndarray = np.asarray(generator.normal(mean, scale, shape))
    if dtype.kind == "c":
        return np.asarray(values + 1j * generator.normal(mean, scale, shape)).astype(dtype)
    if abs(mean) > 2 * scale:
        values = np.abs(values)
    return np.asarray(values).astype(dtype)
