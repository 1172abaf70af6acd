"""Executables as bytes: `jax.experimental.serialize_executable` and JAX's compilation cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jax_platform.process import Platform, run_program

BOTH = pytest.mark.parametrize("platform", ["cpu", "hloom"])

SAVE = """
import pickle
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
step = jax.jit(lambda x, y: {"a": jnp.tanh(x @ y), "b": (x + y).sum()}, donate_argnums=0)
a = jnp.arange(9.0).reshape(3, 3)
compiled = step.lower(a, a.T).compile()
with open(FILE, "wb") as file:
    pickle.dump(serialize_executable.serialize(compiled), file)
print(compiled.as_text(), compiled(a, a.T))
"""
LOAD = """
import pickle
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
with open(FILE, "rb") as file:
    compiled = serialize_executable.deserialize_and_load(*pickle.load(file))
a = jnp.arange(9.0).reshape(3, 3)
print(compiled.as_text(), compiled(a, a.T))
assert a.is_deleted()
"""


@BOTH
def test_another_process_runs_a_serialized_executable(tmp_path: Path, platform: Platform) -> None:
    file = f"FILE = {str(tmp_path / 'executable')!r}\n"
    saved = run_program(file + SAVE, platform, HLOOM_CACHE_DIR=str(tmp_path / "cache"))
    for cache in ("1", "0"):
        empty = {"HLOOM_CACHE_DIR": str(tmp_path / "empty"), "HLOOM_CACHE": cache}
        assert run_program(file + LOAD, platform, **empty) == saved


def test_an_executable_of_another_compiler_is_compiled_again(tmp_path: Path) -> None:
    file = f"FILE = {str(tmp_path / 'executable')!r}\n"
    saved = run_program(file + SAVE, "cpu", HLOOM_CACHE_DIR=str(tmp_path / "cache"))
    other = "import hloom.jax.compilation.serialization as s\ns._compiler = lambda: 'another'\n"
    late = LOAD.replace("compiled = serialize", other.replace("\n", "; ") + "compiled = serialize")
    assert run_program(file + late, "cpu") == saved


def test_other_bytes_are_refused() -> None:
    program = """
import jax, jax.numpy as jnp
client = jax.devices()[0].client
devices = jax._src.lib._jax.DeviceList(tuple(jax.devices()))
executable = jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile().runtime_executable()
data = executable.serialize()
def attempt(data):
    try:
        client.deserialize_executable(data, executable_devices=devices)
        return "loaded"
    except jax.errors.JaxRuntimeError as error:
        return str(error)
at = data.index(b"hloom-code-") + 100
print(attempt(data))
print(attempt(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]))
"""
    loaded, damaged = run_program(program, "cpu").splitlines()
    assert loaded == "loaded"
    assert "not an executable that hloom serialized" in damaged


def test_executables_that_call_python_are_not_serialized() -> None:
    program = """
import jax, jax.numpy as jnp
f = jax.jit(lambda x: jax.pure_callback(lambda a: a * 3, x, x))
executable = f.lower(jnp.ones(3)).compile().runtime_executable()
try:
    executable.client.deserialize_executable(executable.serialize(), jax.devices())
except jax.errors.JaxRuntimeError as error:
    print("calls Python functions" in str(error))
"""
    assert run_program(program, "cpu") == "True\n"


def test_executables_are_loaded_for_their_devices() -> None:
    program = """
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
last = SingleDeviceSharding(jax.devices()[3])
f = jax.jit(lambda x: x + 1, out_shardings=last)
loaded = serialize_executable.deserialize_and_load(
    *serialize_executable.serialize(f.lower(jax.device_put(jnp.ones(3), last)).compile()),
    execution_devices=[jax.devices()[3]])
result = loaded(jax.device_put(jnp.ones(3), last))
print(result, [device.id for device in result.devices()])
rows = NamedSharding(Mesh(jax.devices(), "d"), P("d"))
x = jax.device_put(jnp.arange(8.0), rows)
compiled = jax.jit(lambda x: x - x.sum()).lower(x).compile()
again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
print(again(x), again(x).sharding.is_equivalent_to(compiled(x).sharding, 1))
"""
    printed = run_program(program, "cpu", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert printed.splitlines() == [
        "[2. 2. 2.] [3]",
        "[-28. -27. -26. -25. -24. -23. -22. -21.] True",
    ]


def test_jax_keeps_executables_in_its_compilation_cache(tmp_path: Path) -> None:
    program = """
import logging, jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
print(jax.jit(lambda x: jnp.sin(x).sum())(jnp.arange(5.0)))
print(hits.count("/jax/compilation_cache/cache_hits"))
"""
    folder = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "HLOOM_CACHE_DIR": str(tmp_path / "hloom")}
    first = run_program(program, "cpu", **folder).splitlines()
    second = run_program(program, "cpu", **folder).splitlines()
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("0", "2")


def test_jax_keeps_programs_with_callbacks_in_its_compilation_cache(tmp_path: Path) -> None:
    program = """
import os, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_raise_persistent_cache_errors", True)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
def f(x):
    y = jax.pure_callback(lambda a: np.asarray(a) * int(os.environ["FACTOR"]), x, x)
    return jax.pure_callback(lambda a: np.asarray(a) - 1, x, y)
x = np.arange(3.0, dtype=np.float32)
print(jax.jit(f)(x))
print(hits.count("/jax/compilation_cache/cache_hits"))
"""
    folder = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "HLOOM_CACHE_DIR": str(tmp_path / "hloom")}
    first, second = (
        run_program(program, "cpu", FACTOR=factor, **folder).splitlines() for factor in ("2", "5")
    )
    assert (first[0], second[0]) == ("[-1.  1.  3.]", "[-1.  4.  9.]")
    stock = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "stock")}
    assert [run_program(program, "stock", FACTOR="2", **stock).splitlines()[1] for _ in range(2)] == [
        first[1],
        second[1],
    ]
