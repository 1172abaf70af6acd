"""Atomic memory access."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.types import I1, VOID, Type
from hloom.codegen.llvm.values import Operand, Value
from hloom.records import dataclass

Ordering: TypeAlias = Literal["monotonic", "acquire", "release", "acq_rel", "seq_cst"]
"""LLVM's memory orderings; ``monotonic`` is C's ``relaxed``."""


@dataclass(slots=True, eq=False, repr=False)
class AtomicLoad(Instruction):
    """``load atomic``."""

    pointer: Value
    ordering: Ordering
    opcode: str = field(default="load atomic", init=False)

    def line(self) -> str:
        access = f"{self.type.text}, ptr {self.pointer.name} {self.ordering}, align {self.type.size}"
        return f"  {self.name} = load atomic {access}"


@dataclass(slots=True, eq=False, repr=False)
class AtomicStore(Instruction):
    """``store atomic``."""

    value: Value
    pointer: Value
    ordering: Ordering
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="store atomic", init=False)

    def line(self) -> str:
        value = self.value
        access = f"ptr {self.pointer.name} {self.ordering}, align {value.type.size}"
        return f"  store atomic {value.type.text} {value.name}, {access}"


@dataclass(slots=True, eq=False, repr=False)
class ReadModifyWrite(Instruction):
    """``atomicrmw`` with an operation such as ``add`` or ``xchg``; yields the old value."""

    operation: str
    pointer: Value
    value: Value
    ordering: Ordering
    opcode: str = field(default="atomicrmw", init=False)

    def line(self) -> str:
        value = f"{self.value.type.text} {self.value.name}"
        change = f"{self.operation} ptr {self.pointer.name}, {value} {self.ordering}"
        return f"  {self.name} = atomicrmw {change}"


@dataclass(slots=True, eq=False, repr=False)
class CompareExchange(Instruction):
    """``cmpxchg``, which yields the old value and whether it was the expected one."""

    pointer: Value
    expected: Value
    value: Value
    ordering: Ordering
    opcode: str = field(default="cmpxchg", init=False)

    def line(self) -> str:
        kind = self.value.type.text
        values = f"{kind} {self.expected.name}, {kind} {self.value.name}"
        return f"  {self.name} = cmpxchg ptr {self.pointer.name}, {values} {self.ordering} monotonic"


@dataclass(slots=True, eq=False, repr=False)
class Exchanged(Instruction):
    """``extractvalue`` of the second result of `CompareExchange`."""

    exchange: CompareExchange
    opcode: str = field(default="extractvalue", init=False)

    def line(self) -> str:
        exchange = self.exchange
        return f"  {self.name} = extractvalue {{ {exchange.value.type.text}, i1 }} {exchange.name}, 1"


class Atomic:
    """A number in memory with atomic access.

    Attributes:
        type: the LLVM type.
        pointer: the address.
    """

    __slots__ = ("pointer", "type")

    def __init__(self, type: Type, pointer: Value) -> None:
        self.type, self.pointer = type, pointer

    def load(self, ordering: Ordering) -> Value:
        """Load the number."""
        f = Function.of(self.pointer)
        return f.append(AtomicLoad(f, self.type, self.pointer, ordering))

    def store(self, value: Operand, ordering: Ordering) -> None:
        """Store a number."""
        f = Function.of(self.pointer)
        f.append(AtomicStore(f, f.operand(self.type, value), self.pointer, ordering))

    def add(self, value: Operand, ordering: Ordering) -> Value:
        """Add to the number; return the old one."""
        return self._change("add", value, ordering)

    def subtract(self, value: Operand, ordering: Ordering) -> Value:
        """Subtract from the number; return the old one."""
        return self._change("sub", value, ordering)

    def exchange(self, value: Operand, ordering: Ordering) -> Value:
        """Store a number; return the old one."""
        return self._change("xchg", value, ordering)

    def compare_exchange(self, expected: Operand, value: Operand, ordering: Ordering) -> Value:
        """Store a number if the old one is the expected one; return whether it was."""
        f = Function.of(self.pointer)
        old, new = f.operand(self.type, expected), f.operand(self.type, value)
        exchange = CompareExchange(f, self.type, self.pointer, old, new, ordering)
        f.append(exchange)
        return f.append(Exchanged(f, I1, exchange))

    def _change(self, operation: str, value: Operand, ordering: Ordering) -> Value:
        f = Function.of(self.pointer)
        return f.append(
            ReadModifyWrite(f, self.type, operation, self.pointer, f.operand(self.type, value), ordering)
        )
