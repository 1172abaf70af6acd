"""XLA's partitioner: the program before and after its pass, from the dumps of a compilation by jaxlib."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hloom import HloModule

PASS = "spmd-partitioning"


def partitioned_by_xla(text: str, devices: int) -> tuple[HloModule, HloModule]:
    """Return a program with all annotations that XLA propagates, and XLA's program of one device.

    jaxlib must not have been used in this process: its number of devices and folder of dumps are fixed
    at its first use. Raises FileNotFoundError if XLA refuses the program before it is partitioned.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = {
            "force_host_platform_device_count": devices,
            "dump_to": folder,
            "dump_hlo_pass_re": PASS,
            "dump_large_constants": "true",
        }
        os.environ["XLA_FLAGS"] = " ".join(f"--xla_{name}={value}" for name, value in flags.items())
        with contextlib.suppress(Exception):  # passes after this one may refuse the program
            _compile(text, devices)
        return tuple([_stage(Path(folder), when) for when in ("before", "after")])  # type: ignore[return-value]


def _stage(folder: Path, when: str) -> HloModule:
    paths = sorted(folder.glob(f"*.{when}_{PASS}.*txt"))
    if not paths:
        raise FileNotFoundError(f"XLA wrote no program {when} {PASS}")
    return HloModule.from_text(paths[0].read_text())


def _compile(text: str, devices: int) -> None:
    import jax
    from jaxlib import xla_client

    hlo, internal = (importlib.import_module(f"jaxlib.{name}") for name in ("_hlo", "_jax"))
    computation = hlo.XlaComputation(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    program = internal.mlir.xla_computation_to_mlir_module(computation)
    options: Any = xla_client.CompileOptions()
    options.num_partitions = devices
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    assignment = xla_client.DeviceAssignment.create(np.arange(devices).reshape(1, devices))
    options.device_assignment = build.device_assignment = assignment
    client: Any = jax.devices("cpu")[0].client
    client.compile_and_load(program, internal.DeviceList(tuple(client.devices()[:devices])), options)
