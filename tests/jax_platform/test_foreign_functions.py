"""C functions of users: ``jax.ffi``."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.jax_platform.process import Platform, run_program

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
    print("unknown" in str(error))
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
