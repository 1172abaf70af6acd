"""Python functions that programs call."""

from __future__ import annotations

from tests.jax_platform.process import run_program

BUFFERS = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.buffer_callback import ExecutionStage, buffer_callback

def double(context, out, x):
    print(context.stage == ExecutionStage.EXECUTE, x.shape, x.dtype, x.ndim, x.writeable, out.writeable)
    np.asarray(out)[...] = np.from_dlpack(x) * 2
    print("versioned" in repr(x.__dlpack__()), "versioned" in repr(x.__dlpack__(max_version=(1, 0))))
    print(np.from_dlpack(x).flags.writeable, np.from_dlpack(out).flags.writeable)

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


NATIVE = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
from hloom.jax.programs import execution
kept, dispatched, shape = [], [], lambda n: jax.ShapeDtypeStruct((n,), jnp.float32)
python_runs = execution._run
execution._run = lambda *given: dispatched.append(given) or python_runs(*given)
def double(a):
    kept.append(a)
    return np.asarray(a) * 2
def fails(a):
    raise LookupError("no such place")
small, large = jnp.arange(4.0), jnp.arange(200000.0)
pure = jax.jit(lambda x: jax.pure_callback(double, shape(x.size), x + 1) - x)
ordered = jax.jit(lambda x: io_callback(double, shape(x.size), x, ordered=True))
many = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jax.pure_callback(double, shape(4), x), x))
seldom = jax.jit(lambda x: jax.lax.cond(x[0] < 0, lambda: jax.pure_callback(fails, shape(4), x), lambda: x))
nested = jax.jit(lambda x: jax.pure_callback(lambda a: pure(a), shape(4), x))
for call in pure, ordered, many, seldom, nested:
    print(call(small).tolist())
print(bool((pure(large) == large + 2).all()), float(ordered(large)[-1]))
pure(large + 5), pure(large * 3)
print([float(a[1]) for a in kept if a.size == 200000], [a.tolist() for a in kept[:2]])
for _ in range(2):
    try:
        seldom(-small - 1).block_until_ready()
    except (ValueError, jax.errors.JaxRuntimeError) as error:  # jaxlib raises both
        print("no such place" in str(error))
print(seldom(small).tolist(), len(dispatched))
"""


def test_functions_are_called_by_native_code() -> None:
    lines = run_program(NATIVE, "cpu").splitlines()
    assert lines[:3] == ["[2.0, 3.0, 4.0, 5.0]", "[0.0, 2.0, 4.0, 6.0]", "[0.0, 32.0, 64.0, 96.0]"]
    assert lines[3:5] == ["[0.0, 1.0, 2.0, 3.0]", "[2.0, 3.0, 4.0, 5.0]"]
    assert lines[5] == "True 399998.0"
    assert lines[6] == "[2.0, 1.0, 7.0, 4.0] [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0]]"
    assert lines[7:] == ["True", "True", "[0.0, 1.0, 2.0, 3.0] 0"]
