"""The binary interface: fields lie where native code reads them."""

from __future__ import annotations

import ctypes
import re

import pytest
from tests.jax_platform.process import run_program

from hloom.jax import abi, handles
from hloom.jax.native import source


def test_fields_that_native_code_reads_are_whole_words() -> None:
    names = re.findall(r"define ptr @PJRT_(\w+)\(", source())
    assert len(names) > 30
    for name in names:
        arguments = abi.struct(name)
        if name == "Buffer_GetMemoryLayout":
            continue  # its layout is a struct within the struct, of whole words as well
        for number, (field, _) in enumerate(arguments._fields_):
            assert getattr(arguments, field).offset == 8 * (2 + number), (name, field)


def test_structs_are_as_large_as_in_native_code() -> None:
    (fields,) = re.findall(r"%buffer = type \{ ([^}]*) \}", source())
    assert ctypes.sizeof(handles.BufferHead) == sum({"i32": 4}.get(f, 8) for f in fields.split(", "))
    assert ctypes.sizeof(handles.ExecutableWords) == 18 * 8
    assert handles.ExecutableWords.queued.offset == 13 * 8
    assert handles.ExecutableWords.destroyed.offset == 15 * 8


@pytest.mark.parametrize("version", [90, 104, 105, abi.CLAIMED_VERSION, abi.MINOR_VERSION])
def test_callers_of_every_version_are_served(version: int) -> None:
    program = f"""
import hloom.jax.abi
hloom.jax.abi.CLAIMED_VERSION = {version}
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax, jax.numpy as jnp
print(jax.jit(lambda x: x + 1)(jnp.arange(3.0)), jax.devices()[0].default_memory().kind)
try:
    jax.jit(lambda x: x + 2, compiler_options={{"bad": "x"}})(1.0)
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
    printed = run_program(program, "stock").splitlines()
    assert printed == ["[1. 2. 3.] device", "INVALID_ARGUMENT: No such compile option: 'bad'"]


def test_the_table_has_every_function_once() -> None:
    assert len(set(abi.FUNCTIONS)) == len(abi.FUNCTIONS) == 138
    assert abi.FUNCTIONS.index("LoadedExecutable_Execute") == 55
