"""XLA:CPU, by way of jaxlib, for comparison; importing this raises ImportError where jax is missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# jaxlib has no types for what is used here
jax: Any = import_module("jax")
_hlo: Any = import_module("jaxlib._hlo")
xla_client: Any = import_module("jaxlib.xla_client")

Array = np.ndarray[Any, Any]


@cache
def client() -> Any:
    """Jaxlib's CPU client."""
    jax.config.update("jax_enable_x64", True)
    return jax.devices("cpu")[0].client


def stablehlo(text: str) -> Any:
    """A module's text in the form in which XLA's client takes programs."""
    module = _hlo.hlo_module_from_text(text)
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    return xla_client._xla.mlir.xla_computation_to_mlir_module(computation)


def compile_stablehlo(program: Any) -> Any:
    """An executable of XLA:CPU for what `stablehlo` gives."""
    return client().compile_and_load(program, xla_client.DeviceList(tuple(client().local_devices()[:1])))


def compile_on_xla(text: str) -> Any:
    """An executable of XLA:CPU for a module's text."""
    return compile_stablehlo(stablehlo(text))


def on_device(array: Any) -> Any:
    """A copy of an array on XLA's first device."""
    return jax.device_put(np.asarray(array), client().local_devices()[0])


def run_on_xla(text: str, arguments: Sequence[Any]) -> list[Array]:
    """The leaves of the result of a program on XLA:CPU."""
    executable = compile_on_xla(text)
    return [np.asarray(out) for out in executable.execute([on_device(a) for a in arguments])]
