"""Pages of causes, to be pasted into a report, and scripts that reproduce them with JAX alone."""

from __future__ import annotations

import difflib
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import numpy as np

import hloom
from hloom.fuzzing.campaign import FindingKind, evaluated, shown
from hloom.fuzzing.causes import FindingCause, opcodes, signature
from hloom.fuzzing.child import XLA_FLAGS
from hloom.fuzzing.generators.case import Case, program
from hloom.fuzzing.generators.draw import Array
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType

MOST_CHANGED_LINES: Final = 24
_SCRIPT: Final = '''"""{title}.

Needs jax alone; written for jaxlib {version}.
"""

import os

os.environ["XLA_FLAGS"] = "{flags}"
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

client = jax.devices("cpu")[0].client
devices = client.local_devices()[:{devices}]
module = _hlo.hlo_module_from_text(PROGRAM)
computation = _hlo.XlaComputation(module.as_serialized_hlo_module_proto())
stablehlo = _jax.mlir.xla_computation_to_mlir_module(computation)
{run}
for number, (result, expected) in enumerate(zip(results, EXPECTED)):
    result = np.asarray(result)
    print(f"result {{number}}: {{'as expected' if result.tobytes() == expected.tobytes() else 'differs'}}")
    print("  XLA:     ", result)
    print("  expected:", expected)
'''
_ONE_DEVICE: Final = """executable = client.compile_and_load(stablehlo, _jax.DeviceList(tuple(devices)))
results = executable.execute([jax.device_put(argument) for argument in ARGUMENTS])"""
_PARTITIONS: Final = """options = _jax.CompileOptions()
build = options.executable_build_options
options.num_partitions = build.num_partitions = len(devices)
build.use_spmd_partitioning = True
options.device_assignment = build.device_assignment = _jax.DeviceAssignment.create(
    np.array([[d.id for d in devices]])
)
executable = client.compile_and_load(stablehlo, _jax.DeviceList(tuple(devices)), options)
mesh = jax.sharding.Mesh(np.array(devices), ("device",))
everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
arguments = [jax.device_put(argument, everywhere) for argument in ARGUMENTS]
outputs = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
results = [shards[0] for shards in outputs]"""


def title(cause: FindingCause, backend: str) -> str:
    """Return a title of one line for the page of a cause."""
    finding = cause.finding
    name = {"xla": "XLA:CPU", "cpu": "hloom's native code", "passes": "hloom's passes"}.get(backend, backend)
    about = (
        finding.explanation.name
        if finding.explanation is not None
        else ", ".join(sorted(opcodes(finding.case)))
    )
    where = f" ({cause.where})" if cause.where else ""
    return f"{name}{where}: {signature(finding)}: {about}"


def page(cause: FindingCause, backend: str) -> str:
    """Return the page of a cause, in Markdown."""
    finding, case = cause.finding, cause.finding.case
    lines = [f"# {title(cause, backend)}", "", finding.what.rstrip(), ""]
    if finding.explanation is not None:
        lines += [finding.explanation.reason, ""]
    lines += ["## Program", "", "```", program([case]).rstrip(), "```", ""]
    if case.arguments and not case.folded:
        lines += ["## Arguments", "", "```", *(f"p{n} = {shown(a)}" for n, a in enumerate(case.arguments))]
        lines += ["```", ""]
    if finding.difference is not None:
        expected, result = finding.difference.ours, finding.difference.theirs
        lines += ["## Results", "", "```", f"hloom's evaluator: {shown(expected)}"]
        lines += [f"{backend:17}: {shown(result)}", "```", ""]
    lines += ["## Pass", "", cause.where or "not known", *([cause.rewrite] if cause.rewrite else []), ""]
    if cause.before is not None and cause.after is not None:
        lines += ["```diff", *_changes(cause.before, cause.after), "```", ""]
    lines += ["## Versions", "", versions(), ""]
    if backend == "xla":
        lines += ["## Reproduction with JAX alone", "", "```python", script(cause).rstrip(), "```", ""]
    return "\n".join(lines)


def script(cause: FindingCause) -> str:
    """Return a script that runs the program of a cause with JAX, and prints both results.

    A program that ends XLA's process ends the script.
    """
    case = cause.finding.case
    expected: list[Array] = []
    if cause.finding.kind in (FindingKind.VALUES, FindingKind.FORM):
        expected = evaluated(case.unfolded, case.arguments)[0]
    return _SCRIPT.format(
        title=re.sub(r"\s+", " ", title(cause, "xla")).replace('"', "'"),
        version=version("jaxlib"),
        flags=" ".join(XLA_FLAGS),
        program=program([case]),
        arguments=_listed([] if case.folded else case.arguments_of_devices[0]),
        expected=_listed(expected),
        devices=case.devices,
        run=_ONE_DEVICE if case.devices == 1 else _PARTITIONS,
    )


def versions() -> str:
    """Return the versions of the packages, of Python and of the processor, as text."""
    parts = [f"hloom {hloom.__version__}"]
    for package in ("jax", "jaxlib", "numpy"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(
        [*parts, f"Python {sys.version.split()[0]}", f"{platform.system()} {platform.machine()}"]
    )


def instructions(case: Case) -> int:
    """Return the number of instructions of a case's program, without the tuple of its results."""
    return sum(len(c) for c in case.module.computations) - 1


def _changes(before: HloModule, after: HloModule) -> list[str]:
    """Return the lines of the program that a pass removes and adds."""
    old, new = (m.to_text().splitlines() for m in (before, after))
    changes = [
        line
        for line in difflib.unified_diff(old, new, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@"))
    ]
    return [*changes[:MOST_CHANGED_LINES], *(["..."] if len(changes) > MOST_CHANGED_LINES else [])]


def _listed(arrays: list[Array]) -> str:
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
