"""Start and end of processes: arrays alive at exit, fork, spawn, interrupts, errors."""

from __future__ import annotations

from tests.jax_platform.process import run_program

BEGIN = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax import lax
f = jax.jit(lambda x: (x * 2 + 1).sum())
"""
SLOW = "slow = jax.jit(lambda x: lax.fori_loop(0, {rounds}, lambda i, x: jnp.sin(x) + i, x))\n"


def test_exit_with_arrays_alive_and_programs_queued() -> None:
    program = f"""
{BEGIN}
{SLOW.format(rounds=2000)}
kept = [f(jnp.arange(n + 1)) for n in range(20)]
view = np.asarray(jnp.ones(1000))
queued = [slow(jnp.ones(1000)) for _ in range(20)]
class Last:
    def __del__(self):
        kept.clear()
last = Last()
last.itself = last
print(int(kept[3]))
"""
    assert run_program(program, "cpu") == "16\n"


def test_threads_dispatch_behind_the_end_of_the_main_thread() -> None:
    program = f"""
{BEGIN}
counts, lock = [], threading.Lock()
def work():
    for n in range(200):
        f(np.arange(10))
    count = int(f(np.arange(10)))
    with lock:
        counts.append(count)
        if len(counts) == 3:
            print(counts)
f(np.arange(10))
for _ in range(3):
    threading.Thread(target=work).start()
"""
    assert run_program(program, "cpu") == "[100, 100, 100]\n"


def test_forked_children_run_compiled_programs_and_end() -> None:
    program = f"""
{BEGIN}
{SLOW.format(rounds=2000)}
import warnings
warnings.simplefilter("ignore")
x, y = jnp.arange(10), jnp.ones(1000)
expected, slowly = int(f(x)), np.asarray(slow(y))
for _ in range(3):
    child = os.fork()
    if not child:
        watch = threading.Timer(250, lambda: os._exit(8)); watch.daemon = True; watch.start()
        same = int(f(x)) == expected and np.array_equal(slow(y), slowly)
        os._exit(7) if not same else sys.exit(0)
    print(os.waitpid(child, 0)[1])
print(int(f(x)) == expected)
"""
    assert run_program(program, "cpu") == "0\n0\n0\nTrue\n"


def test_an_interrupt_ends_a_loop_of_programs() -> None:
    program = f"""
{BEGIN}
{SLOW.format(rounds=1000)}
x = slow(jnp.ones(1000))
try:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        x = slow(x).block_until_ready()
except KeyboardInterrupt:
    print("interrupted", np.isfinite(np.asarray(x)).all())
print(int(f(np.arange(3))))
"""
    assert run_program(program, "cpu") == "interrupted True\n9\n"


def test_errors_wait_for_the_result() -> None:
    program = f"""
{BEGIN}
def fail(x):
    raise ValueError("refused")
g = jax.jit(lambda x: jax.pure_callback(fail, x, x) + 1)
for wait in (lambda y: y.block_until_ready(), np.asarray, lambda y: f(y).block_until_ready()):
    try:
        wait(g(jnp.ones(3)))
    except Exception as error:
        print("refused" in str(error))
print(int(f(jnp.arange(3))))
"""
    assert run_program(program, "cpu") == "True\nTrue\nTrue\n9\n"
