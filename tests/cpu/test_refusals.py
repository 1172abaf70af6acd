"""Programs and objects that the compiler refuses: operations without a kernel, damaged code."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hloom.codegen import elementwise
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import F32, Module
from hloom.codegen.target import Target, host
from hloom.codegen.types import storage_type
from hloom.cpu.jit import llvm, loader, relocation
from hloom.cpu.jit.loader import Image, LoadedObject
from hloom.cpu.runtime.placeholders import Placeholders
from hloom.errors import HloError
from hloom.ir.affine import Index
from hloom.ir.device import Pending
from hloom.shape import element_type as et
from tests.evaluation import parse
from tests.reducers import comparison

PLUS_ONE = "define i64 @plus_one(i64 %x) {\n %y = add i64 %x, 1\n ret i64 %y\n}\n"
SORT = (
    comparison("LT", name="less")
    + """
ENTRY e { x = f32[4] parameter(0)
          ROOT s = f32[4] sort(x), dimensions={0}, to_apply=less }
"""
)


def rule_of(action: Callable[[], Any]) -> str:
    """Return the rule of the error that an action raises."""
    with pytest.raises(HloError) as caught:
        action()
    return caught.value.rule


def test_an_operation_without_elements() -> None:
    """A sort's element is no function of an index."""
    sort = parse(SORT).entry.root
    elements = Elements(Module(host()).function("f", []), 0, {})
    assert rule_of(lambda: elements.element(sort, (Index(0),))) == "cpu.element-rule"


def test_a_computation_of_scalars_that_is_none() -> None:
    """A sort cannot be part of a computation that is applied to elements."""
    function = Module(host()).function("f", [F32])
    elements = Elements(function, 0, {})
    scalar = SORT.replace("f32[4]", "f32[]").replace("sort(x), dimensions={0}", "custom-call(x)")
    entry = parse(scalar.replace("to_apply=less", 'custom_call_target="f"')).entry
    assert rule_of(lambda: elements.apply(entry, function.parameters)) == "cpu.scalar-computation"


def test_an_operation_without_lowering() -> None:
    """Only elementwise operations are lowered element by element."""
    operation = parse(SORT).entry.root.operation
    lower = elementwise.lower_elementwise
    assert rule_of(lambda: lower(operation, [et.F32], et.F32, [])) == "cpu.lowering-missing"


def test_a_type_without_elements() -> None:
    """Tokens are not kept in memory."""
    assert rule_of(lambda: storage_type(et.TOKEN)) == "cpu.element-type"


def test_llvm_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without llvmlite the compiler raises an error that names it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert rule_of(llvm._Library) == "cpu.llvmlite-missing"


def test_llvm_emits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of LLVM's code generator is raised as hloom's error."""
    monkeypatch.setattr(llvm.library(), "TargetMachineEmitToMemory", lambda *arguments: None)
    assert rule_of(lambda: llvm.generate(PLUS_ONE, host())) == "cpu.llvm-emit"


def test_damaged_objects() -> None:
    """A file that ends early, and sections that cannot be loaded."""
    code = bytearray(llvm.generate(PLUS_ONE, host()))
    assert rule_of(lambda: Image([bytes(code[:70])], {})) == "cpu.object-damaged"
    (table,) = struct.unpack_from("<Q", code, 40)
    struct.pack_into("<Q", code, table + 64 + 8, 0x400)
    assert rule_of(lambda: Image([bytes(code)], {})) == "cpu.object-section"


def test_relocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that are not known, distances out of reach, addresses that are not aligned."""
    text = "@g = external global i64\ndefine i64 @f() {\n %x = load i64, ptr @g\n ret i64 %x\n}\n"
    machine = relocation.X86_64
    code = llvm.generate(text, host())
    known = relocation.RELOCATIONS[machine]
    if struct.unpack_from("<H", code, 18)[0] == machine:
        monkeypatch.setitem(loader.RELOCATIONS, machine, {})
        assert rule_of(lambda: LoadedObject([code], lambda name: 4096)) == "cpu.object-relocation"
    memory = bytearray(8)
    assert rule_of(lambda: known[2](memory, 0, 0, 1 << 40, 0)) == "cpu.object-reach"
    aligned = relocation.RELOCATIONS[relocation.AARCH64][286]
    assert rule_of(lambda: aligned(memory, 0, 0, 3, 0)) == "cpu.object-alignment"


def test_no_new_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that does not allow executable memory."""
    code = llvm.generate(PLUS_ONE, host())
    monkeypatch.setattr(loader, "_protect", lambda: lambda *arguments: -1)
    assert rule_of(lambda: LoadedObject([code], lambda name: None)) == "cpu.object-protect"


def test_too_many_operations_under_way() -> None:
    """There are 255 placeholder ids of one byte; ids of other lengths are independent."""
    placeholders = Placeholders()
    pending = [Pending(lambda: None) for _ in range(257)]
    given = [placeholders.issue(one, 1) for one in pending[:255]]
    assert placeholders.issue(pending[0], 8) == bytes([1, *[0] * 6])
    assert rule_of(lambda: placeholders.issue(pending[255], 1)) == "cpu.placeholder-ids"
    assert placeholders.resolve(given[7], again=False) is pending[7]
    assert rule_of(lambda: placeholders.resolve(given[7], again=False)) == "cpu.placeholder-ids"
    assert placeholders.issue(pending[255], 1) == given[7]
    for number in (3, 5, 3):
        assert placeholders.resolve(given[number], again=True) is pending[number]
    assert placeholders.issue(pending[256], 1) == given[5]
    assert [placeholders.resolve(given[n], again=True) for n in (3, 5, 7)] == [
        pending[n] for n in (3, 256, 255)
    ]


def test_targets_have_names() -> None:
    """LLVM has the name of this machine's processor."""
    assert Target.named("aarch64-linux-gnu", "neoverse-v2").triple.startswith("aarch64")
