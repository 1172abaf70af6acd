"""The process that runs programs on XLA:CPU; `xla` starts it and exchanges pickles with it.

XLA ends the process on some inputs, so it has a separate one.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, BinaryIO, cast

# The flags disable optimizations that change values; one thread leaves cores to others.
os.environ["XLA_FLAGS"] = " ".join([
    "--xla_allow_excess_precision=false",
    "--xla_cpu_enable_fast_min_max=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_force_host_platform_device_count=4",
])  # fmt: skip

import jax
import numpy as np
from jaxlib import xla_client

from hloom.debug import xla_cpu

jax.config.update("jax_enable_x64", True)

Leaves = list[np.ndarray[Any, Any]]
Prints = dict[str, str]
PRESETS = ("canonical", "short_parsable", "fingerprint")
"""Print options that have a name."""


def run(text: str, proto: bytes, arguments: Sequence[Sequence[Any]]) -> tuple[Prints, list[Leaves]]:
    """Return XLA's prints of a program's text and of hloom's proto of it, and the leaves of every replica.

    Without arguments of any replica, the program is only printed.
    """
    _hlo: Any = import_module("jaxlib._hlo")
    module = _hlo.hlo_module_from_text(text)
    from_proto = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    results: list[Leaves] = []
    if len(arguments) == 1:
        results = [[np.array(leaf) for leaf in xla_cpu.run_on_xla(text, arguments[0])]]
    elif arguments:
        results = run_replicas(module, arguments)
    prints = {"text": module.to_string(), "proto": from_proto.to_string()}
    prints |= {preset: module.to_string(getattr(_hlo.HloPrintOptions, preset)()) for preset in PRESETS}
    return prints, results


def run_replicas(module: Any, arguments: Sequence[Sequence[Any]]) -> list[Leaves]:
    """Return the leaves of every replica."""
    client = xla_cpu.client()
    devices = client.local_devices()[: len(arguments)]
    options = xla_client.CompileOptions()
    options.num_replicas = options.executable_build_options.num_replicas = len(devices)
    ids = np.array([[d.id] for d in devices])
    options.device_assignment = xla_client.DeviceAssignment.create(ids)
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    stablehlo = cast("Any", xla_client)._xla.mlir.xla_computation_to_mlir_module(computation)
    executable = client.compile_and_load(stablehlo, xla_client.DeviceList(tuple(devices)), options)
    mesh = jax.sharding.Mesh(np.array(devices), ("replica",))
    # Each device has a separate array; XLA assumes that all of them are equal, which has no effect here.
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    inputs: list[Any] = []
    for column in zip(*arguments, strict=True):
        shards = [jax.device_put(np.asarray(a), d) for a, d in zip(column, devices, strict=True)]
        inputs.append(jax.make_array_from_single_device_arrays(column[0].shape, everywhere, shards))
    leaves = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
    return [list(map(np.array, of_replica)) for of_replica in zip(*leaves, strict=True)]


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: Any = ("ran", run(*request))
        except Exception as error:  # any error of XLA is an answer
            answer = ("refused", str(error))
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries is not an answer
    serve(sys.stdin.buffer, out)
