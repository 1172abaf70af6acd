"""A module compiled in parts, while it is being built, computes the same as the whole."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

import hloom
from hloom.codegen.llvm import I64, Module
from hloom.codegen.target import QUICK, host
from hloom.cpu.jit import parts
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import CodeQueue
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.parts import PartStream
from hloom.cpu.program import emit_program
from hloom.ir.module import HloModule
from tests.agreement import same


def add_link(module: Module, n: int, length: int) -> None:
    """A function that adds a constant of its own and a common one, and calls the one made before it."""
    module.constant_bytes(f"own{n}", n.to_bytes(8, "little"))
    f = module.function(f"link{n}", [I64], I64, internal=n + 1 < length)
    value = f.parameters[0] + f.load(I64, f.address(f"own{n}")) + f.load(I64, f.address("common"))
    value = value + f.load(I64, f.address("long"))
    if n:
        value = f.call(I64, f"link{n - 1}", value)
    f.finish(value)


def compiled(length: int, threads: int) -> tuple[list[bytes], Module]:
    module = Module(host())
    module.constant_bytes("common", (100).to_bytes(8, "little"))
    module.constant_bytes("long", (1000).to_bytes(9000, "little"))
    stream = PartStream(CodeQueue(host(), threads))
    for n in range(length):
        add_link(module, n, length)
        stream.offer(module)
    return stream.finish(module), module


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("instructions", "counts"), [(1, {6}), (20, {2, 3, 4}), (1000, {1})])
def test_parts_work_together(
    monkeypatch: pytest.MonkeyPatch, threads: int, instructions: int, counts: set[int]
) -> None:
    monkeypatch.setattr(parts, "PART_INSTRUCTIONS", instructions)
    objects, module = compiled(6, threads)
    assert len(objects) in counts
    loaded = LoadedObject(objects, lambda name: None, module.data)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.symbols["link5"])
    assert call(5) == 5 + 15 + 6 * 1100


def test_parts_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_INSTRUCTIONS", 25)
    assert compiled(7, 1)[0] == compiled(7, 4)[0]


STEP = """
HloModule m

body {
  x = f32[64,64] parameter(0)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] tanh(y)
}
"""
CALLED = f"""{STEP}
ENTRY main {{
  x = f32[64,64] parameter(0)
  a = f32[64,64] call(x), to_apply=body
  ROOT b = f32[64,64] call(a), to_apply=body
}}
"""
REPEATED = f"""{STEP}
test {{
  x = f32[64,64] parameter(0)
  corner = f32[1,1] slice(x), slice={{[0:1], [0:1]}}
  number = f32[] reshape(corner)
  one = f32[] constant(1)
  ROOT less = pred[] compare(number, one), direction=LT
}}

ENTRY main {{
  x = f32[64,64] parameter(0)
  ROOT l = f32[64,64] while(x), condition=test, body=body
}}
"""


def levels_of(monkeypatch: pytest.MonkeyPatch, text: str) -> list[int | None]:
    """The levels of code generation of a program's parts; None is that of the program."""
    levels: list[int | None] = []

    def add(
        self: CodeQueue, text: str, simplified: Sequence[str] = (), *, last: bool = False,
        level: int | None = None,
    ) -> None:  # fmt: skip
        levels.append(level)

    monkeypatch.setattr(CodeQueue, "add", add)
    program = emit_program(optimize(HloModule.from_text(text)))
    PartStream(CodeQueue(host(), 1)).finish(program.module)
    return levels


def test_a_long_entry_without_loops_is_a_part_that_is_generated_quickly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert levels_of(monkeypatch, CALLED) == [None]
    monkeypatch.setattr(parts, "PART_INSTRUCTIONS", 10)
    assert levels_of(monkeypatch, CALLED) == [None, QUICK]


def test_an_entry_with_a_loop_is_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_INSTRUCTIONS", 10)
    assert levels_of(monkeypatch, REPEATED) == [None]


def test_an_entry_with_a_loop_is_generated_quickly_if_it_is_very_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "LONG_LOOPS", 10)
    assert levels_of(monkeypatch, REPEATED)[-1] == QUICK


def test_the_level_of_the_entry_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).normal(size=(64, 64)).astype(np.float32)
    monkeypatch.setenv("HLOOM_CACHE", "0")
    whole = hloom.compile(HloModule.from_text(CALLED))(x)
    monkeypatch.setattr(parts, "PART_INSTRUCTIONS", 10)
    same(hloom.compile(HloModule.from_text(CALLED))(x), whole)
