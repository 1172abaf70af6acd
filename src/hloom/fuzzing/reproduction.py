"""Scripts that reproduce differences from XLA with JAX alone, and the outcomes of their runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np

from hloom.fuzzing.campaign import Finding, FindingKind, evaluated
from hloom.fuzzing.causes import FindingCause, message, title
from hloom.fuzzing.child import XLA_FLAGS
from hloom.fuzzing.generators.case import program
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.limits import PATIENCE, ends_in_time
from hloom.shape.element_type import ElementType

MOST_POSITIONS: Final = 20
"""Differing elements that a script compares, per result."""
REPRODUCED: Final = "reproduced"
_DEFAULT_FLAGS: Final = "--xla_force_host_platform_device_count=4"
_SCRIPT: Final = '''"""{title}.

Needs jax alone; written for jaxlib {version}. Other flags than those below are read from XLA_FLAGS.
"""

import os

os.environ.setdefault("XLA_FLAGS", "{flags}")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import ml_dtypes
import numpy as np
from jaxlib import _hlo, _jax
from numpy import inf, nan

jax.config.update("jax_enable_x64", True)

PROGRAM = """\\
{program}"""
ARGUMENTS = [{arguments}]
EXPECTED = [{expected}]
DIFFERING = {positions}  # by the number of the result, elements in row-major order

client = jax.devices("cpu")[0].client
devices = client.local_devices()[:{devices}]
module = _hlo.hlo_module_from_text(PROGRAM)
computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
stablehlo = _jax.mlir.xla_computation_to_mlir_module(computation)
{run}
for number, positions in DIFFERING.items():
    result, expected = np.asarray(results[number]), EXPECTED[number]
    same = (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if same:
        result, expected = (array.reshape(-1)[positions] for array in (result, expected))
        same = result.tobytes() == expected.tobytes()
    print(f"result {{number}}, elements {{positions}}: {{'as expected' if same else 'differs'}}")
    print("  XLA:     ", result.dtype, result)
    print("  expected:", expected.dtype, expected)
'''
_ONE_DEVICE: Final = """executable = client.compile_and_load(stablehlo, _jax.DeviceList(tuple(devices)))
results = executable.execute([jax.device_put(argument) for argument in ARGUMENTS])"""
_SEVERAL_DEVICES: Final = """options = _jax.CompileOptions()
build = options.executable_build_options
options.num_replicas = build.num_replicas = {replicas}
options.num_partitions = build.num_partitions = {partitions}
build.use_spmd_partitioning = {partitions} > 1
ids = np.array([d.id for d in devices]).reshape({replicas}, {partitions})
options.device_assignment = build.device_assignment = _jax.DeviceAssignment.create(ids)
executable = client.compile_and_load(stablehlo, _jax.DeviceList(tuple(devices)), options)
mesh = jax.sharding.Mesh(np.array(devices), ("device",))
everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
count = len(ARGUMENTS) // {replicas}
rows = [ARGUMENTS[r * count : (r + 1) * count] for r in range({replicas}) for _ in range({partitions})]
inputs = [
    jax.make_array_from_single_device_arrays(
        column[0].shape, everywhere, [jax.device_put(a, d) for a, d in zip(column, devices)]
    )
    for column in zip(*rows)
]
outputs = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
results = [shards[{device}] for shards in outputs]"""


def script(cause: FindingCause) -> str:
    """Return a script that runs the program of a cause with JAX, and prints the differing elements.

    A program that ends XLA's process ends the script.
    """
    finding, case = cause.finding, cause.finding.case
    expected: list[Array] = []
    positions: dict[int, list[int]] = {}
    device = 0
    if finding.kind is FindingKind.FORM:
        positions = {number: [] for number in range(len(case.roots))}
    elif finding.difference is not None:
        device = finding.difference.device
        where = np.flatnonzero(finding.difference.where)[:MOST_POSITIONS]
        positions = {finding.difference.output: [int(position) for position in where]}
    if positions:
        expected = evaluated(case.unfolded, case.arguments)[device]
    run = _ONE_DEVICE
    if case.devices > 1:
        run = _SEVERAL_DEVICES.format(replicas=case.replicas, partitions=case.partitions, device=device)
    return _SCRIPT.format(
        title=re.sub(r"\s+", " ", title(cause, "xla")).replace('"', "'").replace("\\", ""),
        version=version("jaxlib"),
        flags=" ".join(XLA_FLAGS),
        program=program([case]),
        arguments=_listed([] if case.folded else case.arguments),
        expected=_listed(expected),
        positions=positions,
        devices=case.devices,
        run=run,
    )


def outcome(path: Path, finding: Finding) -> str:
    """Run a script, with its flags and with XLA's default ones; return whether the finding is reproduced."""
    seen = _run(path, finding, " ".join(XLA_FLAGS))
    if seen:
        return f"not reproduced with JAX alone: {seen}"
    default = _run(path, finding, _DEFAULT_FLAGS)
    return f"{REPRODUCED}; with XLA's default flags {f'not: {default}' if default else 'too'}"


def _run(path: Path, finding: Finding, flags: str) -> str:
    """Run a script; return what happens instead of the finding, or an empty text if it is reproduced."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", str(path)], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, env={**os.environ, "XLA_FLAGS": flags},
        )  # fmt: skip

        def ended() -> bool:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            return process.returncode is not None

        if not ends_in_time(ended):
            process.kill()
            process.wait()
            return "" if finding.what.startswith("no answer") else f"no end in {PATIENCE} s"
        output.seek(0)
        text = output.read().strip()
    status, error = process.returncode, text.split("Error: ")[-1]
    values = finding.kind in (FindingKind.VALUES, FindingKind.FORM)
    if values and ": differs" in text:  # wrong code may also have overwritten memory, and end the process
        return ""
    if status < 0:
        return "" if finding.kind is FindingKind.CRASHED else f"the process ends with status {status}"
    if status:
        refused = finding.kind is FindingKind.REFUSED
        same = refused and message(error) == message(finding.what.split("Error: ")[-1])
        return "" if same else f"refused: {error[:200]}"
    return "the results are as expected" if values else "the program runs"


def _listed(arrays: list[Array] | tuple[Array, ...]) -> str:
    return "".join(f"\n    {_expression(a)}," for a in arrays) + ("\n" if arrays else "")


def _expression(array: Array) -> str:
    """Return a Python expression for an array."""
    kind = ElementType.from_dtype(array.dtype)
    if kind.is_complex:
        half = kind.component.numpy_dtype
        parts = np.ascontiguousarray(array).reshape(-1).view(half)
        return f"np.array({parts.tolist()}, np.{half}).view(np.{array.dtype}).reshape({array.shape})"
    native = array.dtype.kind in "biuf" and array.dtype.isbuiltin
    dtype = f"np.{array.dtype}" if native else f"ml_dtypes.{array.dtype}"
    values = array.tolist() if native else array.astype(np.float64 if kind.is_floating else np.int64).tolist()
    if native:
        return f"np.array({values}, {dtype}).reshape({array.shape})".replace("np.bool,", "np.bool_,")
    return f"np.array({values}).astype({dtype}).reshape({array.shape})"
