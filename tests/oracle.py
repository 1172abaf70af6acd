"""jaxlib's CPU client as a second opinion."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest


@cache
def _client() -> Any:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.devices("cpu")[0].client


def run(text: str, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    """The leaves of the result of an HLO program on XLA:CPU."""
    client = _client()
    import jax
    from jaxlib import _hlo, xla_client

    module = _hlo.hlo_module_from_text(text)
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    stablehlo = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
    executable = client.compile_and_load(stablehlo, devices)
    buffers = [jax.device_put(np.asarray(a), client.local_devices()[0]) for a in arguments]
    return [np.asarray(out) for out in executable.execute(buffers)]
