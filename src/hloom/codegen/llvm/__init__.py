"""LLVM modules built in memory: types, values with operators, functions made of basic blocks."""

from hloom.codegen.llvm.attributes import ALWAYS_INLINE, Attribute
from hloom.codegen.llvm.instructions import Block
from hloom.codegen.llvm.module import Function, Loop, Module
from hloom.codegen.llvm.printer import print_module
from hloom.codegen.llvm.structure import Structure
from hloom.codegen.llvm.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    MOST_LANES,
    PTR,
    VOID,
    Type,
    make_type,
)
from hloom.codegen.llvm.values import Builder, ConstantValue, Operand, Value

__all__ = [
    "ALWAYS_INLINE",
    "BF16",
    "F16",
    "F32",
    "F64",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "MOST_LANES",
    "PTR",
    "VOID",
    "Attribute",
    "Block",
    "Builder",
    "ConstantValue",
    "Function",
    "Loop",
    "Module",
    "Operand",
    "Structure",
    "Type",
    "Value",
    "make_type",
    "print_module",
]
