"""XLA:CPU through jaxlib, for comparison; importing this module raises ImportError without jax."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from hloom.ir.value import Value
from hloom.jaxlib import private

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax: Any = import_module("jax")

Array = np.ndarray


@cache
def client() -> Any:
    """Return jaxlib's CPU client."""
    return jax.devices("cpu")[0].client


def stablehlo(text: str) -> Any:
    """Return a module's text as StableHLO, the form that XLA's client compiles."""
    module = private.hlo_module_from_text()(text)
    computation = private.XlaComputation()(module.as_serialized_hlo_module_proto())
    return private.to_stablehlo()(computation)


def compile_stablehlo(program: object) -> Any:
    """Compile the result of `stablehlo` to an executable of XLA:CPU."""
    return client().compile_and_load(program, private.DeviceList()(tuple(client().local_devices()[:1])))


def compile_on_xla(text: str) -> Any:
    """Compile a module's text to an executable of XLA:CPU."""
    return compile_stablehlo(stablehlo(text))


def on_device(array: object) -> Any:
    """Copy an array to XLA's first device; jax's setting for 64-bit numbers stays as it is."""
    with jax.enable_x64(True):
        return jax.device_put(np.asarray(array), client().local_devices()[0])


def run_on_xla(text: str, arguments: Sequence[Value]) -> list[Array]:
    """Run a program on XLA:CPU and return the leaves of its result."""
    executable = compile_on_xla(text)
    return [np.asarray(out) for out in executable.execute([on_device(a) for a in arguments])]
