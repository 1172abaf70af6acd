"""Compilation: in this process, in another one that finds the program in the cache, in several threads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.jax_platform.process import run_alone, run_program

STEP = """
import jax, jax.numpy as jnp
@jax.jit
def step(x, y):
    with jax.named_scope("{scope}"):
        return jnp.tanh(x @ y), (x + y).sum()
a = jnp.arange(9.0).reshape(3, 3)
print(jax.tree.map(lambda v: v.tolist(), step(a, a.T)))
"""
HEAVY = (
    "hloom.ir.module",
    "hloom.operations",
    "hloom.passes",
    "hloom.text",
    "hloom.codegen.llvm",
    "hloom.jax.pjrt.routines",
    "google",
    "llvmlite",
    "scipy",
)
LOADED = f"import sys\nprint([name for name in {HEAVY} if name in sys.modules])\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A cache in which a program is, what the program printed, and the modules that compiled it."""
    folder = tmp_path_factory.mktemp("compiled")
    program = STEP.format(scope="a") + LOADED
    printed, loaded = run_alone(program, "cpu", HLOOM_CACHE_DIR=str(folder)).splitlines()
    return folder, printed, loaded


@pytest.mark.parametrize("lines", [0, 3])
def test_a_program_from_the_cache_loads_no_compiler(compiled: tuple[Path, str, str], lines: int) -> None:
    """Also when it has moved in its file."""
    folder, printed, loaded = compiled
    assert "hloom.passes" in loaded
    program = "\n" * lines + STEP.format(scope="a") + LOADED
    assert run_alone(program, "cpu", HLOOM_CACHE_DIR=str(folder)).splitlines() == [printed, "[]"]


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


COUNTED = """
import hloom.jax.compilation.compiler as compilation
given = []
compile_program = compilation.compile_program
compilation.compile_program = lambda *arguments: given.append(1) or compile_program(*arguments)
"""
LOADED_PROGRAM = """
import pickle
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

device = jax.devices()[0]
column_major = Format(Layout((1, 0)), SingleDeviceSharding(device))
host = SingleDeviceSharding(device, memory_kind="pinned_host")
x = jnp.arange(6.0).reshape(2, 3)

give = jax.jit(lambda x, y: (x + y, {"y": y.astype(jnp.bfloat16)}), donate_argnums=0)
given_away = x + 1
print(give(given_away, x), given_away.is_deleted())
turned = jax.jit(lambda x: x * 2, out_shardings=column_major)(x)
print(turned.format.layout, turned.tolist())
kept = jax.jit(lambda x: x * 3, out_shardings=host)(x)
print(kept.sharding.memory_kind, kept.tolist())
print(jax.jit(lambda x: (x[:0], x > 1, jax.random.key(3)))(x))

compiled = jax.jit(lambda x: jnp.sin(x).sum(0)).lower(x).compile()
serialized, taken, returned = serialize_executable.serialize(compiled)
print(serialize_executable.deserialize_and_load(serialized, taken, returned)(x))
print(compiled.input_formats, compiled.output_formats, compiled.input_shardings, compiled.out_info)
"""


def test_a_program_from_the_cache_is_loaded_with_all_its_properties(tmp_path: Path) -> None:
    program = COUNTED + LOADED_PROGRAM + "print(len(given))"
    *first, compilations = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    *second, compilations_of_known = run_program(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines()
    assert second == first
    assert "pinned_host [[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]" in first
    assert int(compilations) >= 6
    assert compilations_of_known == "0"


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_damaged_cache_is_no_obstacle(compiled: tuple[Path, str, str], tmp_path: Path, damage: str) -> None:
    folder, printed, _ = compiled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.hloomcode"):
        file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:-7])
    program = STEP.format(scope="a")
    assert run_alone(program, "cpu", HLOOM_CACHE_DIR=str(tmp_path)).splitlines() == [printed]


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
