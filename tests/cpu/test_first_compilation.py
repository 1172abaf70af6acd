"""Bounds the modules that the first compilation of a process imports; imports take most of its time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.cpu import emitters, kernels  # noqa: F401  (names the kernels)
from hloom.cpu.program import KERNELS
from hloom.errors import HloError
from hloom.ir.registration import import_modules
from hloom.plan.registry import Kernels

MOST_MODULES = 400
"""Modules of hloom after the first compilation of an elementwise program, 0.3 ms each."""
FRAME = {"movement", "movement.interleaving", "movement.transposition"}
"""Kernels that every program may need: copies between layouts."""
COMPILE = """
import sys, hloom
hloom.compile(hloom.HloModule.from_text(sys.argv[1]), backend="cpu")
print(*sys.modules)
"""
ADD = "HloModule m\nENTRY e {\n x = f32[1024] parameter(0)\n ROOT y = f32[1024] add(x, x)\n}"
DOT = """HloModule m
ENTRY e {
  x = f32[64,64] parameter(0)
  ROOT y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def modules_of(text: str, cache: Path) -> set[str]:
    """The modules of hloom that a process has imported after compiling a program."""
    environment = {**os.environ, "HLOOM_CACHE_DIR": str(cache)}
    environment.pop("HLOOM_CACHE", None)
    command = [sys.executable, "-c", COMPILE, text]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return {name for name in done.stdout.split() if name.partition(".")[0] == "hloom"}


def kernels_of(modules: set[str]) -> set[str]:
    prefix = f"{kernels.__name__}."
    return {name.removeprefix(prefix) for name in modules if name.startswith(prefix)}


def test_an_elementwise_program_imports_few_modules_and_no_kernel(tmp_path: Path) -> None:
    modules = modules_of(ADD, tmp_path)
    assert kernels_of(modules) == FRAME
    assert len(modules) <= MOST_MODULES


def test_a_program_imports_the_kernels_of_its_opcodes(tmp_path: Path) -> None:
    imported = kernels_of(modules_of(DOT, tmp_path))
    assert "dot.matrix_product" in imported
    assert not {name for name in imported if name.startswith(("convolution", "sorting", "windows"))}


def test_each_kernel_is_imported_from_the_module_that_registers_it() -> None:
    import_modules(kernels.__name__, kernels.__path__)
    assert KERNELS.modules == {opcode: KERNELS[opcode].emit.__module__ for opcode in KERNELS}


def test_an_opcode_has_one_module() -> None:
    registry: Kernels[object, object] = Kernels("test")
    for _ in range(2):  # an import that was interrupted runs again
        registry.imported_from("a", "add", "dot")
    with pytest.raises(HloError) as caught:
        registry.imported_from("b", "dot")
    assert caught.value.rule == "plan.kernel-registered-twice"
