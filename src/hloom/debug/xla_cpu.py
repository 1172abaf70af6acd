"""XLA:CPU in jaxlib, for comparison; the import of this module raises ImportError without jax."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from hloom.ir.value import Value
from hloom.jaxlib import private

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax: Any = import_module("jax")

Array = np.ndarray


@cache
def client() -> Any:
    """Return jaxlib's PJRT client for the CPU."""
    return jax.devices("cpu")[0].client


def stablehlo(text: str) -> Any:
    """Convert the text of an HLO module to StableHLO, the form that jaxlib's client compiles."""
    module = private.hlo_module_from_text()(text)
    computation = private.XlaComputation()(module.as_serialized_hlo_module_proto())
    return private.to_stablehlo()(computation)


def compile_stablehlo(program: object) -> Any:
    """Compile the result of `stablehlo` by XLA:CPU; return jaxlib's loaded executable."""
    return client().compile_and_load(program, private.DeviceList()(tuple(client().local_devices()[:1])))


def compile_on_xla(text: str) -> Any:
    """Compile the text of an HLO module by XLA:CPU; return jaxlib's loaded executable."""
    return compile_stablehlo(stablehlo(text))


def on_device(array: object) -> Any:
    """Copy an array to XLA's first CPU device, without narrowing 64-bit types; return the JAX array."""
    with jax.enable_x64(True):
        return jax.device_put(np.asarray(array), client().local_devices()[0])


def run_on_xla(text: str, arguments: Sequence[Value]) -> list[Array]:
    """Run the text of an HLO module on XLA:CPU; return the arrays of its result, flattened, in order.

    ``arguments`` are the arrays of all parameters, flattened as well.
    """
    executable = compile_on_xla(text)
    return [np.asarray(out) for out in executable.execute([on_device(a) for a in arguments])]


def run_devices_on_xla(
    text: str, arguments: Sequence[Sequence[Value]], partitions: int = 1
) -> list[list[Array]]:
    """Run a program on several devices of XLA:CPU; return for each the arrays of its result, flattened.

    Args:
        text: the text of the HLO module.
        arguments: the arguments of each device; for arrays that the program shards, the device's tile.
        partitions: the number of partitions; the number of replicas follows from the number of devices.
    """
    if len(arguments) < 2:
        return [run_on_xla(text, each) for each in arguments]
    devices = client().local_devices()[: len(arguments)]
    options = private.CompileOptions()()
    build = options.executable_build_options
    replicas = len(devices) // partitions
    options.num_replicas = build.num_replicas = replicas
    options.num_partitions = build.num_partitions = partitions
    build.use_spmd_partitioning = partitions > 1
    ids = np.array([d.id for d in devices]).reshape(replicas, partitions)
    options.device_assignment = build.device_assignment = private.DeviceAssignment().create(ids)
    executable = client().compile_and_load(stablehlo(text), private.DeviceList()(tuple(devices)), options)
    with jax.enable_x64(True):
        inputs = [_on_devices(column, devices) for column in zip(*arguments, strict=True)]
    leaves = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
    return [[np.asarray(leaf) for leaf in of_device] for of_device in zip(*leaves, strict=True)]


def _on_devices(arrays: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Copy ``arrays[n]`` to ``devices[n]``; return the copies as one JAX array that is declared replicated.

    The arrays may differ: JAX does not check that the replicas of an array are equal.
    """
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    shards = [jax.device_put(np.asarray(a), d) for a, d in zip(arrays, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(shards[0].shape, everywhere, shards)


PRESETS: Final = ("canonical", "short_parsable", "fingerprint")
"""Names of the sets of print options that XLA predefines."""


def prints(text: str, proto: bytes) -> dict[str, str]:
    """Return the texts that XLA prints for a program, given both as HLO text and as a serialized proto.

    In the returned dictionary, ``"text"`` is the print of the module parsed from ``text``, and ``"proto"``
    that of the module parsed from ``proto``, both with default options. Under each name in `PRESETS` is the
    print of the module parsed from ``text`` with the options that XLA predefines under this name.
    """
    module = private.hlo_module_from_text()(text)
    from_proto = private.HloModule().from_serialized_hlo_module_proto(proto)
    options = private.HloPrintOptions()
    named = {preset: module.to_string(getattr(options, preset)()) for preset in PRESETS}
    return {"text": module.to_string(), "proto": from_proto.to_string(), **named}
