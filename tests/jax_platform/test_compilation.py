"""Compilation: in this process, in another one that finds the program in the cache, in several threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.jax_platform.process import run_program

STEP = """
import jax, jax.numpy as jnp
@jax.jit
def step(x, y):
    with jax.named_scope("{scope}"):
        return jnp.tanh(x @ y), (x + y).sum()
a = jnp.arange(9.0).reshape(3, 3)
print(jax.tree.map(lambda v: v.tolist(), step(a, a.T)))
"""
HEAVY = ("hloom.ir.module", "hloom.operations", "hloom.passes", "hloom.text", "google", "llvmlite", "scipy")
LOADED = f"import sys\nprint([name for name in {HEAVY} if name in sys.modules])\n"


def test_a_program_from_the_cache_loads_no_compiler(tmp_path: Path) -> None:
    program = STEP.format(scope="a") + LOADED
    first = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    second = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    assert "hloom.passes" in first[1]
    assert second == [first[0], "[]"]


def test_a_program_that_moved_in_its_file_is_found(tmp_path: Path) -> None:
    program = STEP.format(scope="a")
    first = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    moved = run_program("\n\n\n" + program + LOADED, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    assert moved == [*first, "[]"]


ANALYSIS = """
compiled = step.lower(a, a.T).compile()
print(compiled.as_text())
print(sorted(compiled.cost_analysis().items()), compiled.memory_analysis())
"""


def test_a_program_from_the_cache_says_the_same_of_itself(tmp_path: Path) -> None:
    program = STEP.format(scope="a") + ANALYSIS
    first = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path))
    assert run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)) == first
    assert "jit(step)/a/dot_general" in first
    other = run_program(program.replace('"a"', '"b"'), "cpu", HLOOM_CACHE_DIR=str(tmp_path))
    assert "jit(step)/b/dot_general" in other


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_damaged_cache_is_no_obstacle(tmp_path: Path, damage: str) -> None:
    program = STEP.format(scope="a")
    first = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path))
    for file in tmp_path.glob("*.hloomcode"):
        file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:-7])
    assert run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)) == first


def test_threads_compile_at_once(tmp_path: Path) -> None:
    program = """
import threading
import jax, jax.numpy as jnp
results = {}
def work(thread):
    for size in range(1, 9):
        f = jax.jit(lambda x: (x * x).sum() + thread)
        total = jax.jit(jnp.cumsum)(jnp.ones(size))[-1]
        results[thread, size] = float(f(jnp.arange(float(size)))), float(total)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
wanted = {(n, s): (float(sum(i * i for i in range(s)) + n), float(s)) for n in range(8) for s in range(1, 9)}
print(results == wanted)
"""
    for _ in range(2):  # the second time from the cache
        assert run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)) == "True\n"
