"""A module cut into parts computes what the whole does."""

from __future__ import annotations

import ctypes

import pytest

from hloom.cpu import parts
from hloom.cpu.llvm import generate_all
from hloom.cpu.llvm_text import I64, PTR, Module, Value
from hloom.cpu.loader import LoadedObject
from hloom.cpu.target import host


def chain(length: int) -> Module:
    """Functions that call each other, add a constant of their own and one that all of them read."""
    module = Module()
    module.constant_bytes("common", (100).to_bytes(8, "little"))
    for n in range(length):
        module.constant_bytes(f"own{n}", n.to_bytes(8, "little"))
        f = module.function(f"link{n}", [I64], I64, internal=n > 0)
        value = (
            f.parameters[0] + f.load(I64, Value(f, PTR, f"@own{n}")) + f.load(I64, Value(f, PTR, "@common"))
        )
        if n + 1 < length:
            value = f.call(I64, f"link{n + 1}", value)
        f.finish(value)
    return module


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_parts_work_together(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(parts, "PART_CHARACTERS", 1)
    texts = parts.split(chain(6), most)
    assert len(texts) == min(most, 6)
    loaded = LoadedObject(generate_all(texts, host(), 2), lambda name: None)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.symbols["link0"])
    assert call(1000) == 1000 + 15 + 600


def test_little_text_stays_together() -> None:
    module = chain(6)
    assert parts.split(module, 10) == [module.text()]


def test_parts_are_of_similar_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_CHARACTERS", 1)
    lengths = list(map(len, parts.split(chain(40), 4)))
    assert max(lengths) < 1.2 * min(lengths)
