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


COUNTED = """
from hloom.jax.programs import execution
python_runs = execution._run
execution._run = lambda *given: dispatched.append(given) or python_runs(*given)
"""
DEVICES = """
import jax, jax.numpy as jnp, numpy as np, threading
from jax import lax
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",))
dispatched, threads, failing = [], set(), False
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x")))
def double(a):
    threads.add(threading.get_ident())
    if failing and a[0] >= 4:
        raise LookupError("no such place")
    return np.asarray(a) * 2
def called(a, call=jax.pure_callback):
    return call(double, jax.ShapeDtypeStruct(a.shape, a.dtype), a)
def mapped(f):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
def step(i, a):
    return called(a) - lax.ppermute(a, "x", [(n, (n + 1) % 4) for n in range(4)])
alone = mapped(called)
between = mapped(lambda a: called(a + lax.psum(a, "x"), io_callback) + lax.psum(a * 2, "x"))
loop = mapped(lambda a: lax.fori_loop(0, 5, step, a))
whole = jax.jit(lambda a: called(a * a) + a)
for program in alone, between, loop, whole:
    print(np.asarray(program(x)).tolist())
"""
FAILURES = """
def inner(a):
    return np.asarray(alone(x))[:2] + a
nested = mapped(lambda a: jax.pure_callback(inner, jax.ShapeDtypeStruct((2,), a.dtype), a))
print(np.asarray(nested(x)).tolist())
for program in between, loop, alone:
    failing = True
    try:
        program(x).block_until_ready()
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        print("no such place" in str(error))
    failing = False
    print(np.asarray(program(x)).tolist())
print(len(dispatched), threads == {threading.get_ident()})
"""


def test_functions_of_several_devices_are_called_by_native_code_in_the_thread_of_the_caller() -> None:
    """One that fails while other devices wait for its device leaves nothing behind."""
    lines = run_program(COUNTED + DEVICES + FAILURES, "cpu").splitlines()
    wanted = run_program(DEVICES, "stock").splitlines()
    assert lines[:4] == wanted
    assert lines[4] == "[0.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0]"  # XLA:CPU deadlocks
    assert lines[5:-1] == ["True", wanted[1], "True", wanted[2], "True", wanted[0]]
    assert lines[-1] == "0 True"
