"""A module compiled in parts, while it is being built, computes the same as the whole."""

from __future__ import annotations

import ctypes

import pytest

from hloom.codegen.llvm import I64, Module
from hloom.codegen.target import host
from hloom.cpu.jit import parts
from hloom.cpu.jit.llvm import CodeQueue
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.parts import PartStream


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
