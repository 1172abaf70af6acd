"""Code for every target: vectors of any length, no calls of libraries, no instruction that is missing."""

from __future__ import annotations

import re

import pytest

from hloom.codegen.elementwise.registry import LOWERINGS
from hloom.codegen.llvm import Module
from hloom.codegen.target import Target
from hloom.cpu.jit import llvm
from hloom.ir.operation import REGISTRY
from hloom.shape.element_type import ElementType
from tests.compiled_operation import emit_kernel, instruction_of

TARGETS = {
    "avx512": Target.named("x86_64-linux-gnu", "x86-64-v4"),
    "avx2": Target.named("x86_64-linux-gnu", "x86-64-v3"),
    "sse2": Target.named("x86_64-linux-gnu", "x86-64"),
    "neon": Target.named("aarch64-linux-gnu", "generic"),
}
_CALL = re.compile(r"^\t(?:callq?|jmp|bl|b)\t([A-Za-z_][\w.@$]*)", re.MULTILINE)
_OWN = ("sine.", "cosine.", "tangent.")
"""Functions that the module defines."""
ELEMENTWISE = [opcode for opcode, declared in REGISTRY.items() if declared.elementwise]


def stated(opcode: str, name: str) -> tuple[list[str], str, str]:
    """Return operand types, attributes and result type of an example."""
    operands = [name] * len(REGISTRY[opcode].operand_names)
    match opcode:
        case "select":
            return ["pred", name, name], "", ""
        case "compare":
            return operands, "direction=EQ", ""
        case "reduce-precision":
            return operands, "exponent_bits=4, mantissa_bits=3", ""
        case "convert":
            return operands, "", "bf16" if name != "bf16" else "s32"
        case "stochastic-convert":
            return [name, f"u{ElementType.parse(name).bits}"], "", "s8"
        case _:
            return operands, "", ""


def takes(opcode: str, name: str) -> bool:
    """Return whether the operation takes operands of a type."""
    kind = ElementType.parse(name)
    if opcode == "stochastic-convert":
        return kind.is_floating
    declared = REGISTRY[opcode]
    return opcode in ("select", "copy") or kind in declared.accepts  # type: ignore[attr-defined]


def test_every_elementwise_operation_has_a_lowering() -> None:
    assert [opcode for opcode in ELEMENTWISE if opcode not in LOWERINGS] == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["f32", "f64", "f16", "s32", "c64"])
def test_no_operation_calls_a_library(target: str, name: str) -> None:
    module = Module(TARGETS[target])
    for opcode in ELEMENTWISE:
        if takes(opcode, name):
            operands, attributes, result = stated(opcode, name)
            instruction = instruction_of(opcode, *operands, attributes=attributes, result=result)
            emit_kernel(module, opcode.replace("-", "_"), instruction, 4)
    assembly = llvm.generate_module(module, assembly=True).decode()
    assert [c for c in _CALL.findall(assembly) if not c.startswith(_OWN)] == []
