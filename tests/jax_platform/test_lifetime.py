"""Buffers, threads, processes: what lives how long, and how everything ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jax_platform.process import run_program

HEAD = "import jax, jax.numpy as jnp, numpy as np, gc, os, time, threading\n"


def test_long_programs_are_queued_and_short_ones_run_at_once() -> None:
    program = """
A = jnp.ones((700, 700))
f = jax.jit(lambda a: a @ a @ a @ a @ a)
f(A).block_until_ready()
for _ in range(20):  # a busy machine may run all four before it looks
    queued = [f(A) for _ in range(4)]
    waits = not queued[3].is_ready()
    if waits:
        break
print(waits, np.asarray(queued[3]).shape, queued[0].is_ready())
print(jax.jit(lambda v: v + 1)(jnp.arange(3)).is_ready())
"""
    assert run_program(HEAD + program, "cpu").splitlines() == ["True (700, 700) True", "True"]


def test_results_of_queued_programs_may_be_used_deleted_and_donated() -> None:
    program = """
A = jnp.ones((500, 500))
f = jax.jit(lambda a: (a @ a @ a) / 250000)
g = jax.jit(lambda a: a * 2, donate_argnums=0)
b = f(A)
c = g(b)
d = f(A)
d.delete()
print(float(c[7, 7]), b.is_deleted(), d.is_deleted())
try:
    f(b)
except (RuntimeError, ValueError) as error:
    print("deleted" in str(error))
"""
    assert run_program(HEAD + program, "cpu").splitlines() == ["2.0 True True", "True"]


def test_arrays_of_numpy_are_borrowed_until_they_are_no_longer_read() -> None:
    program = """
import weakref
host = np.ones((300, 300), np.float32)
x = jnp.asarray(host)
y = jax.jit(lambda v: v @ v)(x)
view = np.asarray(y)
gone = weakref.ref(host)
del x, host
gc.collect()
jax.block_until_ready(y)
y.delete()
print(gone() is None, view[0, 0], view.sum())
"""
    assert run_program(HEAD + program, "cpu") == "True 300.0 2.7e+07\n"


def test_threads_dispatch_at_the_same_time() -> None:
    program = """
f = jax.jit(lambda v: v + 1)
large = jax.jit(lambda a: a @ a / 400)
def work(n):
    v, a = jnp.float32(n), jnp.ones((400, 400))
    for _ in range(300):
        v = f(v)
    for _ in range(5):
        a = large(a)
    results[n] = float(v) + float(a[0, 0])
results = {}
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print([results[n] for n in range(8)])
"""
    wanted = [n + 301.0 for n in range(8)]
    assert run_program(HEAD + program, "cpu") == f"{wanted}\n"


def test_memory_stays_flat() -> None:
    program = """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
f, x = jax.jit(lambda v: v + 1), jnp.ones((256, 256))
small = jnp.arange(4.0)
def round():
    y = x
    for _ in range(2000):
        y = f(y)
        np.asarray(f(small))
        jnp.asarray(np.ones(1000, np.float32))
round()
gc.collect()
def growth():
    before, files = resident(), len(os.listdir("/proc/self/fd"))
    round()
    gc.collect()
    return resident() - before, len(os.listdir("/proc/self/fd")) - files
# A leak grows in every round, the allocator's own memory in some.
memory, files = map(min, zip(*(growth() for _ in range(3))))
print(memory < 4 << 20, files <= 0)
"""
    assert run_program(HEAD + program, "cpu") == "True True\n"


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
def test_the_process_ends_with_arrays_and_programs_alive(platform: str) -> None:
    program = """
A = jnp.ones((900, 900))
f = jax.jit(lambda a: a @ a @ a)
keep = [f(A) for _ in range(20)]
class Late:
    def __del__(self):
        keep.clear()
late = Late()
"""
    assert run_program(HEAD + program, platform) == ""  # type: ignore[arg-type]


def test_a_forked_child_may_run_what_is_compiled() -> None:
    # Compiling needs jaxlib's threads, which a child does not have.
    program = """
x = jnp.ones((600, 600))
f = jax.jit(lambda a: a @ a)
f(x).block_until_ready()
import warnings
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    os._exit(0 if np.asarray(f(x))[0, 0] == 600 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(f(x)[0, 0]))
"""
    assert run_program(HEAD + program, "cpu") == "0 600.0\n"


def cpu_seconds(process: int) -> float:
    """Return the user time of a process."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def test_an_endless_loop_ends_on_control_c() -> None:
    program = """
import hloom.jax.plugin; hloom.jax.plugin.initialize()
import jax, jax.numpy as jnp
loop = jax.jit(lambda n: jax.lax.while_loop(lambda s: s > 0, lambda s: s * 1.0000001 + 1e-3, n))
compiled = loop.lower(1.0).compile()
print("running", flush=True)
jax.block_until_ready(compiled(1.0))
"""
    environment = {**os.environ, "HLOOM_AS_CPU": "1", "JAX_PLATFORMS": "cpu"}
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"running\n"
    begin = cpu_seconds(child.pid)
    while child.poll() is None and cpu_seconds(child.pid) < begin + 0.5:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=300)
    assert b"KeyboardInterrupt" in errors
    assert child.returncode != 0


def test_a_thread_destroys_an_executable_without_the_interpreter() -> None:
    """The last reference may be that of a thread of JAX's, which would be ended while it waits at exit."""
    program = """
import ctypes
from hloom.jax.pjrt import abi
from hloom.jax.programs.executables import LoadedExecutable
from hloom.jax.pjrt.handles import Handle
from hloom.jax.pjrt.native import native
f = jax.jit(lambda x: x + 1)
f(1.0)
known = next(handle for handle in Handle._alive.values() if isinstance(handle, LoadedExecutable))
number = LoadedExecutable(known.compiled, known.devices, b"", [], []).handle
arguments = abi.struct("LoadedExecutable_Destroy")()
arguments.executable = number
destroy = ctypes.c_void_p(native().symbols["PJRT_LoadedExecutable_Destroy"])
library = ctypes.PyDLL(None)  # its calls keep the interpreter's lock
thread = ctypes.c_ulong()
library.pthread_create(ctypes.byref(thread), None, destroy, ctypes.byref(arguments))
library.pthread_join(thread, None)
while number in Handle._alive:
    time.sleep(0.001)  # Python 3.11 looks for calls of other threads when it takes its lock
print("freed")
"""
    assert run_program(HEAD + program, "cpu") == "freed\n"


def test_executables_are_freed_in_a_process_that_a_debugger_traces() -> None:
    """CPython 3.11 enters no traced function in a pending call while another call is pending."""
    program = """
import sys, threading
import jax
from hloom.jax.programs.executables import LoadedExecutable
compiled = [jax.jit(lambda x, n=n: x + n).lower(1.0).compile() for n in range(2)]
jax.clear_caches()
freed = []
drop = LoadedExecutable.drop
def drop_while_another_is_destroyed(executable):
    freed.append(executable.handle)
    if compiled:
        thread = threading.Thread(target=compiled.pop)
        thread.start()
        thread.join()
    drop(executable)
LoadedExecutable.drop = drop_while_another_is_destroyed
sys.settrace(lambda *_: None)
compiled.pop()
while len(freed) < 2:
    time.sleep(0.001)
sys.settrace(None)
print("freed")
"""
    assert run_program("import time\n" + program, "cpu") == "freed\n"


def test_a_token_has_no_elements_to_convert() -> None:
    program = """
try:
    np.asarray(jax.lax.create_token()._buf)
except RuntimeError as error:
    print(error)
"""
    wanted = "INVALID_ARGUMENT: Cannot convert a token-shape buffer to a numpy array.\n"
    assert run_program(HEAD + program, "cpu") == run_program(HEAD + program, "stock") == wanted


def test_an_error_of_memory_names_the_bytes() -> None:
    program = """
import jax, jax.numpy as jnp
def message(f):
    try:
        jax.jit(f)(jnp.float32(1)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        return str(error)
print(message(lambda x: jnp.broadcast_to(x, (1 << 43,))))
print(message(lambda x: jnp.sort(jnp.broadcast_to(x, (1 << 43,)))[5:6]))
"""
    results, temporaries = run_program(program, "hloom").splitlines()
    assert f"RESOURCE_EXHAUSTED: not enough memory for {4 << 43:,} bytes of results" in results
    assert " bytes of temporaries of jit__lambda" in temporaries


LARGE_RESULTS = """
import resource, jax, jax.numpy as jnp
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
x = jnp.zeros((1000, 1000))
function = jax.jit(lambda x: jnp.sin(x[None] + jnp.arange(4.0)[:, None, None]))
function(x).block_until_ready()
before = peak()
for _ in range(30):
    y = function(x)
y.block_until_ready()
print((peak() - before) // y.nbytes)
"""


def test_results_of_queued_programs_do_not_pile_up() -> None:
    """30 calls without a wait have memory for few results of 16 MB."""
    assert int(run_program(LARGE_RESULTS, "cpu")) <= 6


LATE_INPUTS = """
import threading, numpy as np, jax, jax.numpy as jnp
given = threading.Event()
def wait(x):
    given.wait(60)
    return np.asarray(x)
late = jax.jit(lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((1000, 1000), np.float32), x))
function = jax.jit(lambda x: jnp.sin(x[None] + jnp.arange(4.0)[:, None, None]))
x = jnp.ones((1000, 1000))
function(x).block_until_ready()
threading.Timer(1.0, given.set).start()
y = late(x)
results = [function(y) for _ in range(5)]
print(float(sum(r[0, 0, 0] for r in results)) == float(5 * jnp.sin(1.0)))
"""


def test_queued_programs_wait_for_late_inputs() -> None:
    assert run_program(LATE_INPUTS, "cpu") == "True\n"
