"""Compile one elementwise operation and run it on arrays, in tests: nothing but a loop over vectors."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from hloom.cpu import llvm
from hloom.cpu.elementwise import lower_elementwise
from hloom.cpu.llvm_text import I64, PTR, Function, Module, Value
from hloom.cpu.loader import LoadedObject
from hloom.cpu.target import Target, host
from hloom.cpu.types import Element, from_storage, storage_type, to_storage
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from one_operation import program

LANES = 8


def compiled(opcode: str, *operands: Any, attributes: str = "", result: str = "", lanes: int = LANES) -> Any:
    """The value of ``opcode(operands)`` by compiled code; ``result`` is the element type if stated."""
    arrays = [np.asarray(o) for o in operands]
    shape = arrays[0].shape
    types = [ElementType.from_dtype(a.dtype) for a in arrays]
    names = ",".join(t.name for t in types)
    run, kind = _kernel(opcode, names, attributes, result, lanes)
    count = arrays[0].size
    padded = -(-count // max(lanes, 1)) * max(lanes, 1)
    held = [np.concatenate([a.reshape(-1), np.repeat(a.reshape(-1)[-1:], padded - count)]) for a in arrays]
    made = np.empty(padded, kind.numpy_dtype)
    run(*[a.ctypes.data for a in held], made.ctypes.data, padded)
    return made[:count].reshape(shape)


@cache
def _kernel(opcode: str, names: str, attributes: str, result: str, lanes: int) -> tuple[Any, ElementType]:
    instruction = _instruction(opcode, names, attributes, result)
    text = kernel_text(instruction, lanes, host())
    loaded = LoadedObject([llvm.generate(text, host())], {}.get)
    count = len(instruction.operands) + 1
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)
    function = prototype(loaded.symbols["kernel"])
    function.held = loaded  # type: ignore[attr-defined]
    return function, instruction.shape.element_type


def _instruction(opcode: str, names: str, attributes: str, result: str) -> HloInstruction:
    shapes = [f"{name}[8]" for name in names.split(",")]
    stated = f"{result}[8]" if result else ""
    body = program(opcode, *shapes, attributes=attributes, result=stated)
    return HloModule.from_text(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n").entry.root


def kernel_text(instruction: HloInstruction, lanes: int, target: Target) -> str:
    """LLVM IR of a function ``kernel(operands..., result, count)`` for multiples of the lanes."""
    module = Module(target=target)
    types = [o.shape.element_type for o in instruction.operands]
    f = module.function("kernel", [PTR] * (len(types) + 1) + [I64], internal=False)
    *sources, destination, count = f.parameters
    with f.loop(0, count, max(lanes, 1)) as loop:
        operands = [_load(f, p, loop.index, t, lanes) for p, t in zip(sources, types)]
        value = lower_elementwise(instruction.operation, types, instruction.shape.element_type, operands)
        _store(f, destination, loop.index, instruction.shape.element_type, value)
    f.finish()
    return module.text()


def instruction_of(opcode: str, *types: str, attributes: str = "", result: str = "") -> HloInstruction:
    """An instruction on operands of these element types."""
    return _instruction(opcode, ",".join(types), attributes, result)


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
