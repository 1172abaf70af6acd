"""Python functions that programs call."""

from __future__ import annotations

from tests.jax_platform.process import run_program

BUFFERS = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.buffer_callback import ExecutionStage, buffer_callback

def double(context, out, x):
    print(context.stage == ExecutionStage.EXECUTE, x.shape, x.dtype, x.ndim, x.writeable, out.writeable)
    np.asarray(out)[...] = np.from_dlpack(x) * 2

shape = jax.ShapeDtypeStruct((2, 2), np.float32)
print(jax.jit(lambda x: buffer_callback(double, shape)(x) + 1)(jnp.ones((2, 2))))

def stream(context, out):
    try:
        context.stream
    except jax.errors.JaxRuntimeError as error:
        print("GPU context is not available" in str(error))

buffer_callback(stream, shape, has_side_effect=True)().block_until_ready()

def bump(context, out, x):
    print(np.asarray(x).ctypes.data == np.asarray(out).ctypes.data)
    np.asarray(out)[...] += 1

print(buffer_callback(bump, shape, input_output_aliases={0: 0})(np.zeros((2, 2), np.float32)))

def pair(context, out, x, *, scale):
    np.asarray(out[0])[...] = np.asarray(x) * scale
    np.asarray(out[1])[...] = np.asarray(x) / scale

print(buffer_callback(pair, (shape, shape))(np.ones((2, 2), np.float32), scale=np.float32(4)))
"""


def test_buffer_callbacks_write_results_in_place() -> None:
    printed = run_program(BUFFERS, "cpu")
    assert printed == run_program(BUFFERS, "stock")
    assert printed == run_program(BUFFERS, "hloom")


THREADS = """
import jax, numpy as np, threading
shape = jax.ShapeDtypeStruct((), np.float32)
inner = jax.jit(lambda x: jax.pure_callback(lambda x: np.float32(x) * 2, shape, x))
outer = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(inner(x)) + 1, shape, x))
found = []
def work():
    for n in range(50): found.append(float(outer(np.float32(n))) == 2 * n + 1)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), all(found))
"""


def test_functions_may_run_programs_with_functions_in_several_threads() -> None:
    assert run_program(THREADS, "cpu") == "200 True\n"
