"""C functions of users: ``jax.ffi``."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.jax_platform.process import Platform, run_program
from tests.runtime.compiled_handlers import compiled_handlers

PROGRAM = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np
library = ctypes.CDLL({library!r})
jax.ffi.register_ffi_target("early", jax.ffi.pycapsule(library.scale), platform="cpu")
x = jnp.arange(6.0).reshape(2, 3)
jax.ffi.register_ffi_target("late", {{"execute": jax.ffi.pycapsule(library.scale)}}, platform="cpu")
jax.ffi.register_ffi_target("fails", jax.ffi.pycapsule(library.fail), platform="cpu")
shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
for name in ("early", "late"):
    call = jax.ffi.ffi_call(name, shape, vmap_method="broadcast_all")
    print(call(x, factor=np.float32(2)))
    print(jax.jit(lambda x: call(x + 1, factor=np.float32(3)).sum())(x))
try:
    jax.ffi.ffi_call("fails", shape)(x).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print("no good" in str(error))
try:
    jax.ffi.ffi_call("unknown", shape)(x)
except jax.errors.JaxRuntimeError as error:
    print(str(error).startswith("NOT_FOUND") and "unknown" in str(error))
print(jnp.linalg.qr(jnp.eye(2))[1].shape)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    jaxlib, compiler = importlib.util.find_spec("jaxlib"), shutil.which("cc")
    if jaxlib is None or jaxlib.origin is None or compiler is None:
        pytest.skip("needs a C compiler and the headers in jaxlib")
    made = tmp_path_factory.mktemp("ffi") / "library.so"
    include = Path(jaxlib.origin).parent / "include"
    source = Path(__file__).with_name("foreign_functions.c")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{include}", "-o", made, source], check=True)
    return str(made)


@pytest.mark.parametrize("platform", ["cpu", "hloom", "stock"])
def test_programs_call_functions_that_jax_registers(library: str, platform: Platform) -> None:
    printed = run_program(PROGRAM.format(library=library), platform)
    assert printed.splitlines() == [
        *2 * ["[[ 0.  2.  4.]", " [ 6.  8. 10.]]", "63.0"],
        "True",
        "True",
        "(2, 2)",
    ]


STAGES = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np
library = ctypes.CDLL({library!r})
def capsule(name):
    return jax.ffi.pycapsule(ctypes.addressof(ctypes.c_char.in_dll(library, name)))
def function(name):
    return jax.ffi.pycapsule(getattr(library, name))
kind = dict(type_id=capsule("count_type"), type_info=capsule("count_info"))
jax.ffi.register_ffi_type("count", kind, platform={name!r})
stages = dict(instantiate=function("count_begin"), execute=function("count_plainly"))
jax.ffi.register_ffi_target("count", stages, platform={name!r})
jax.ffi.register_ffi_target("doubled", function("doubled_later"), platform={name!r})
shape = jax.ShapeDtypeStruct((), jnp.int32)
def counter():
    return jax.jit(lambda: jax.ffi.ffi_call("count", shape, has_side_effect=True)(first=np.int64(5)))
one, other = counter(), counter()
print([int(one()) for _ in range(3)], [int(other()) for _ in range(2)], int(one()))
doubled = jax.jit(lambda x: jax.ffi.ffi_call("doubled", shape)(x) + x)
print([int(doubled(jnp.int32(x))) for x in (1, 2, 50)])
try:
    doubled(jnp.int32(-1)).block_until_ready()
except Exception as error:  # stock JAX raises ValueError for this code
    print("a late refusal" in str(error))
"""


@pytest.mark.parametrize("platform", ["cpu", "hloom", "stock"])
def test_calls_keep_states_and_answer_by_futures(tmp_path: Path, platform: Platform) -> None:
    compiled_handlers(tmp_path)
    name = "hloom" if platform == "hloom" else "cpu"
    printed = run_program(STAGES.format(library=str(tmp_path / "handler.so"), name=name), platform)
    assert printed.splitlines() == ["[5, 6, 7] [5, 6] 8", "[3, 6, 150]", "True"]
