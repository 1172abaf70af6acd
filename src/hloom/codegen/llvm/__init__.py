"""LLVM modules under construction: types, values with operators, functions of blocks of instructions."""

from hloom.codegen.llvm.attributes import ALWAYS_INLINE, Attribute
from hloom.codegen.llvm.blocks import Block, Loop
from hloom.codegen.llvm.function import Function
from hloom.codegen.llvm.module import Module
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
from hloom.codegen.llvm.values import Constant, Operand, Value

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
    "Constant",
    "Function",
    "Loop",
    "Module",
    "Operand",
    "Structure",
    "Type",
    "Value",
    "make_type",
]
