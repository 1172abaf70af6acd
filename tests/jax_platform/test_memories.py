"""Memory kinds: ``device``, ``pinned_host`` and ``unpinned_host``, all of them this machine's memory."""

from __future__ import annotations

import pytest

from tests.jax_platform.process import Platform, run_program

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import SingleDeviceSharding
device = jax.devices()[0]
print([memory.kind for memory in device.addressable_memories()], device.default_memory().kind)
on = {kind: SingleDeviceSharding(device, memory_kind=kind) for kind in ("pinned_host", "unpinned_host")}
x = jax.device_put(np.arange(4.0, dtype=np.float32), on["pinned_host"])

def show(*arrays):
    print(*[(a.sharding.memory_kind, np.asarray(a).tolist()) for a in arrays])

show(x, jax.device_put(x, on["unpinned_host"]), jax.device_put(x, SingleDeviceSharding(device)))
f = jax.jit(lambda x: (x * 2, x + 1), out_shardings=(on["unpinned_host"], None))
show(*f(x))
print(f.lower(x).compile().runtime_executable().get_output_memory_kinds())
show(jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1)(x))
show(jax.jit(lambda x: jax.device_put(x + 1, jax.memory.Space.Host))(jnp.ones(2)))
double = lambda x: jax.pure_callback(lambda x: 2 * np.asarray(x), x, x)
show(jax.jit(double, out_shardings=on["pinned_host"])(jnp.arange(4.0)))
large = jax.jit(lambda x: x @ x, out_shardings=on["pinned_host"])(jnp.ones((300, 300)))
print(large.sharding.memory_kind, float(large.sum()))
"""


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
def test_arrays_lie_in_the_memory_that_was_asked_for(platform: Platform) -> None:
    printed = run_program(PROGRAM, platform)
    assert printed == run_program(PROGRAM, "stock")
