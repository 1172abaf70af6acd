"""Layouts that programs ask for: arguments and results whose dimensions lie in another order."""

from __future__ import annotations

import pytest

from tests.jax_platform.process import Platform, run_program

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.layout import Format, Layout, with_layout_constraint
from jax.sharding import SingleDeviceSharding
place = SingleDeviceSharding(jax.devices()[0])
columns, rows = Format(Layout((1, 0)), place), Format(Layout((0, 1)), place)

def show(*arrays):
    print(*[(a.format.layout.major_to_minor, np.asarray(a).tolist(), np.array(a).strides) for a in arrays])

a = np.arange(6.0, dtype=np.float32).reshape(2, 3)
x = jax.device_put(a, columns)
show(x, x + 1, jax.device_put(x, rows))
print(float(x[0, 1]), x[1].tolist(), jnp.sum(x, axis=0).tolist())
f = jax.jit(lambda x, y: (x + y, (x * y).T), in_shardings=(columns, rows), out_shardings=(rows, columns))
show(*f(x, a))
show(*f(jax.device_put(a, columns), jnp.asarray(a)))
print(f.lower(x, a).compile().input_formats[0][0].layout.major_to_minor)
cube = Format(Layout((1, 2, 0)), place)
c = jax.device_put(np.arange(24).reshape(2, 3, 4), cube)
show(c)
print(np.array_equal(np.asarray(jax.jit(lambda c: c * 2)(c)), 2 * np.arange(24).reshape(2, 3, 4)))
show(jax.jit(lambda x: with_layout_constraint(x * 2, Layout((1, 0))))(a))
double = lambda x: jax.pure_callback(lambda x: np.asarray(x) * 2, x, x)
show(jax.jit(double, in_shardings=columns, out_shardings=columns)(x))
automatic = jax.jit(lambda x, y: (x.T + 1, y, x @ y.T), out_shardings=Format(Layout.AUTO))
show(*automatic.lower(a, a).compile()(a, a))
large = jax.device_put((np.arange(250000) % 7).astype(np.float32).reshape(500, 500), columns)
print(float((large @ large)[1, 2]), float(large[3, 4]))
try:
    jax.jit(lambda x: x, in_shardings=columns)(jax.device_put(a, rows))
except ValueError as error:
    print("does not match" in str(error))
"""


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
def test_arrays_have_the_layout_that_was_asked_for(platform: Platform) -> None:
    assert run_program(PROGRAM, platform) == run_program(PROGRAM, "stock")


VIEW = """
import jax.numpy as jnp, numpy as np
x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
y = jnp.from_dlpack(x.transpose(1, 2, 0))
print(y.format.layout.major_to_minor, y.unsafe_buffer_pointer() == x.ctypes.data)
"""


def test_from_dlpack_is_a_view_in_the_order_of_the_tensor() -> None:
    assert run_program(VIEW, "cpu") == "(2, 0, 1) True\n"


COPY = """
import jax, jax.numpy as jnp, numpy as np
x = np.arange(24, dtype=np.int32)
try:
    print(jnp.from_dlpack(x, copy=True))
except jax.errors.JaxRuntimeError as error:
    print("PJRT C API does not support HostBufferSemantics" in str(error))
y = jnp.array(jnp.from_dlpack(x))
x[:] = 7
print(y.tolist() == list(range(24)))
"""


def test_copies_of_dlpack_tensors_are_made_after_the_import() -> None:
    """jaxlib refuses ``copy=True`` before it calls the plug-in."""
    assert run_program(COPY, "cpu") == "True\nTrue\n"
