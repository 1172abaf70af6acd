"""Compile elementwise operations in tests, as loops over vectors, and run them on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.codegen.elementwise import lower_elementwise
from hloom.codegen.llvm import I64, PTR, Function, Module, Value, print_module
from hloom.codegen.target import Target, host
from hloom.codegen.types import Element, from_storage, storage_type, to_storage
from hloom.cpu.jit import llvm
from hloom.cpu.jit.loader import LoadedObject
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from tests.native_runs import object_of
from tests.one_operation import apply, program
from tests.samples import assert_equal_bits

Array = np.ndarray[Any, Any]
LANES = 8
_NAMED = [Target.named("x86_64-linux-gnu", cpu) for cpu in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")]
TARGETS = {"host": host()} | {
    t.cpu: t for t in _NAMED if t.architecture == host().architecture and t.features <= host().features
}
"""This machine, and every named target whose code it can run."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """An operation on arrays of equal length; ``result`` is the element type, if it is stated."""

    opcode: str
    operands: tuple[Array, ...]
    attributes: str = ""
    result: str = ""

    @property
    def instruction(self) -> HloInstruction:
        """Return the operation on arrays of these element types."""
        types = [ElementType.from_dtype(o.dtype).name for o in self.operands]
        return instruction_of(self.opcode, *types, attributes=self.attributes, result=self.result)

    def evaluated(self) -> Array:
        """Return the evaluator's result."""
        stated = f"{self.result}[{len(self.operands[0])}]" if self.result else ""
        return apply(self.opcode, *self.operands, attributes=self.attributes, result=stated)


def case(opcode: str, *operands: Array, attributes: str = "", result: str = "") -> Case:
    """Return a case of an operation on arrays."""
    return Case(opcode, operands, attributes, result)


def assert_as_evaluated(cases: Sequence[Case], lanes: int = LANES) -> None:
    """Assert that compiled results equal those of the evaluator bit for bit."""
    for wanted, got in zip(cases, run_compiled(cases, lanes), strict=True):
        try:
            assert_equal_bits(got, wanted.evaluated(), *wanted.operands)
        except AssertionError as error:
            types = [ElementType.from_dtype(o.dtype).name for o in wanted.operands]
            message = (
                f"{wanted.opcode} of {types} {wanted.attributes} to {wanted.result or 'its type'}: {error}"
            )
            raise AssertionError(message) from None


def compiled(opcode: str, *operands: Any, attributes: str = "", result: str = "", lanes: int = LANES) -> Any:
    """Return the value of one operation by compiled code."""
    return run_compiled([case(opcode, *operands, attributes=attributes, result=result)], lanes)[0]


def run_compiled(cases: Sequence[Case], lanes: int = LANES, target: Target | None = None) -> list[Array]:
    """Return the results of operations, all compiled in one module."""
    module = Module(target or host())
    instructions = [c.instruction for c in cases]
    for number, instruction in enumerate(instructions):
        emit_kernel(module, f"kernel{number}", instruction, lanes)
    llvm.check_intrinsics(module, module.target)
    code = object_of(print_module(module), module.target, tuple(llvm.simplified_names(module)))
    loaded = LoadedObject([code], {}.get, module.data)
    return [
        _run(loaded.symbols[f"kernel{number}"], c.operands, i.shape.element_type, max(lanes, 1))
        for number, (c, i) in enumerate(zip(cases, instructions, strict=True))
    ]


def _run(address: int, operands: Sequence[Array], kind: ElementType, lanes: int) -> Array:
    count = len(operands[0])
    padded = -(-count // lanes) * lanes
    held = [np.concatenate([a, np.repeat(a[-1:], padded - count)]) for a in operands]
    made = np.empty(padded, kind.numpy_dtype)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(held) + 1), ctypes.c_int64)(address)
    function(*[a.ctypes.data for a in held], made.ctypes.data, padded)
    return made[:count]


def instruction_of(opcode: str, *types: str, attributes: str = "", result: str = "") -> HloInstruction:
    """Return an instruction on operands of these element types."""
    shapes = [f"{name}[8]" for name in types]
    stated = f"{result}[8]" if result else ""
    body = program(opcode, *shapes, attributes=attributes, result=stated)
    return HloModule.from_text(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n").entry.root


def emit_kernel(module: Module, name: str, instruction: HloInstruction, lanes: int) -> None:
    """Add a function (operands..., result, count); the count is a multiple of the lanes."""
    types = [o.shape.element_type for o in instruction.operands]
    f = module.function(name, [PTR] * (len(types) + 1) + [I64], internal=False)
    *sources, destination, count = f.parameters
    with f.loop(0, count, max(lanes, 1)) as loop:
        operands = [_load(f, p, loop.index, t, lanes) for p, t in zip(sources, types, strict=True)]
        value = lower_elementwise(instruction.operation, types, instruction.shape.element_type, operands)
        _store(f, destination, loop.index, instruction.shape.element_type, value)
    f.finish()


def _load(f: Function, base: Value, index: Value, element_type: ElementType, lanes: int) -> Element:
    stored = storage_type(element_type)
    if not element_type.is_complex:
        return from_storage(f.load(stored.vector(lanes), f.offset(base, index, stored)), element_type)
    pointer = f.offset(base, index * 2, stored)
    if not lanes:
        return f.load(stored, pointer), f.load(stored, f.offset(pointer, 1, stored))
    both = f.load(stored.vector(2 * lanes), pointer)
    return both.shuffle(range(0, 2 * lanes, 2)), both.shuffle(range(1, 2 * lanes, 2))


def _store(f: Function, base: Value, index: Value, element_type: ElementType, value: Element) -> None:
    stored = storage_type(element_type)
    if not isinstance(value, tuple):
        f.store(to_storage(value, element_type), f.offset(base, index, stored))
        return
    pointer = f.offset(base, index * 2, stored)
    if value[0].type.lanes:
        lanes = value[0].type.lanes
        order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
        f.store(value[0].shuffle(order, value[1]), pointer)
        return
    for number, part in enumerate(value):
        f.store(part, f.offset(pointer, number, stored))
