"""Functions that JAX lowers to composites, which hloom evaluates by operations of its own."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests import agreement
from tests.jax_platform.process import Platform, run_program

ERFC = """
import json, jax, numpy as np
f = jax.jit(jax.lax.erfc)
x = np.linspace(-3, 9, 97, dtype=np.float32)
print(json.dumps(f(x).tolist()))
print("composite" in f.lower(x).as_text(), '"chlo.erfc"' in f.lower(x).compile().as_text())
"""
PRECISE_ERFC = """
import inspect, jax, numpy as np
if "accuracy" in inspect.signature(jax.lax.erfc).parameters:
    precise = jax.jit(lambda x: jax.lax.erfc(x, accuracy=jax.lax.AccuracyMode.HIGHEST))
    print("composite" in precise.lower(np.ones(3, np.float32)).as_text())
else:
    print("no accuracy")
"""
SHARDED = """
import json, jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
devices = jax.make_mesh((4,), ("d",))
x = jax.device_put(np.linspace(-3, 9, 96, dtype=np.float32), NamedSharding(devices, PartitionSpec("d")))
y = jax.jit(lambda x: jax.lax.erfc(x) + 0)(x)
print(json.dumps(y.tolist()), y.sharding.spec == PartitionSpec("d"))
"""


def exact(count: int) -> list[float]:
    """Return erfc of equally spaced numbers of f32."""
    return [math.erfc(float(x)) for x in np.linspace(-3, 9, count, dtype=np.float32)]


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
def test_erfc_is_one_operation_that_is_right_in_the_tail(platform: Platform) -> None:
    """JAX writes it out, with errors of tens of ulp."""
    values, kinds = run_program(ERFC, platform).splitlines()
    agreement.near(np.array(json.loads(values), np.float32), np.array(exact(97)), 3)
    assert kinds == "True True"


def test_erfc_of_an_accuracy_is_written_out_by_jax() -> None:
    composite = run_program(PRECISE_ERFC, "cpu").strip()
    if composite == "no accuracy":
        pytest.skip("this JAX takes no accuracy")
    assert composite == "False"


def test_erfc_of_a_sharded_array_stays_sharded() -> None:
    values, same = run_program(SHARDED, "cpu", XLA_FLAGS="--xla_force_host_platform_device_count=4").split(
        "] "
    )
    agreement.near(np.array(json.loads(values + "]"), np.float32), np.array(exact(96)), 3)
    assert same.strip() == "True"
