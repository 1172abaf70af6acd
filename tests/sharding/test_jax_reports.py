"""Reports of programs of JAX, for devices that need not be there."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from hloom.sharding import report
from hloom.tools.reports.shard_text import report_text

jax = pytest.importorskip("jax")
jnp = jax.numpy
P = jax.sharding.PartitionSpec
AUTO = jax.sharding.AxisType.Auto
MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AUTO, AUTO))


def cut(*axes: Any) -> Any:
    return jax.sharding.NamedSharding(MESH, P(*axes))


def array(*extents: int, kind: type = np.float32) -> Any:
    return jax.ShapeDtypeStruct(extents, kind)


def layers(x: Any, w: Any) -> Any:
    return jax.lax.scan(lambda c, own: (jnp.tanh(c @ own), c.sum()), x, w)


@partial(jax.shard_map, mesh=MESH, in_specs=(P("data", None), P(None, "model")), out_specs=P(None, "model"))
def by_hand(x: Any, w: Any) -> Any:
    return jax.lax.psum(jax.lax.all_gather(x, "data", tiled=True) @ w, "data")


def convolved(x: Any, k: Any) -> Any:
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME")


def ordered(x: Any) -> Any:
    return jnp.sort(x)


def transformed(x: Any) -> Any:
    return jnp.fft.fft(x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str]] = {
    "scan": (
        layers, (cut("data"), cut(None, None, "model")), (array(16, 32), array(5, 32, 32)), "a loop carries",
    ),
    "shard_map": (by_hand, (), (array(16, 32), array(32, 8)), "the program itself states it"),
    "convolution": (
        convolved, (cut("data", None, "model"), cut()), (array(8, 3, 16, 16), array(4, 3, 3, 3)),
        "convolution reads elements of other tiles",
    ),
    "gather": (
        lambda t, n: t[n], (cut("model"), cut("data")), (array(64, 8), array(16, kind=np.int32)),
        "devices hold partial results",
    ),
    "sort": (ordered, (cut("data"),), (array(64),), "sort needs dimension 0 replicated"),
    "fft": (transformed, (cut("data", "model"),), (array(8, 8),), "fft needs dimension 1 replicated"),
    "transposed product": (
        lambda x: x @ x.T, (cut("data"),), (array(8, 8),), "data is used already",
    ),
}  # fmt: skip
"""A function, the shardings of its arguments, the arguments, and a part of a reason."""


@pytest.mark.parametrize("name", CASES)
def test_programs_of_jax(name: str) -> None:
    function, given, arguments, reason = CASES[name]
    step = jax.jit(function, in_shardings=given) if given else jax.jit(function)
    found = report(step.trace(*arguments).lower(lowering_platforms=("cpu",)), tries=4)
    assert found.devices == 8 and dict(found.mesh) == {"data": 4, "model": 2}
    assert any(reason in row.why.reason for row in found.collectives)
    assert all(row.source or row.why.source for row in found.collectives)
    assert sum(array.bytes for array in found.memory.peak) == found.peak_bytes
    for one in found.suggestions:
        assert one.verified == "arithmetic" or one.saved_bytes > 0 or one.saved_memory > 0
    assert json.loads(json.dumps(found.to_json()))["bytes_per_step"] == found.bytes_per_step
    assert f"{found.devices} devices (data=4, model=2)" in report_text(found)
