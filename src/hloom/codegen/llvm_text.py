"""LLVM IR as text: types, values with operators, and a builder of functions.

Text is the fastest way from Python to machine code (LLVM parses it in less time than object builders need to
make it), and it can be read. Loops are built with phi nodes, never with stack slots, so that the code needs
no optimization passes.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

from hloom.codegen.target import Target, host

MOST_INLINE: Final = 4096
"""Bytes of a constant that is part of the text; longer ones stay outside of what LLVM sees."""


class Type:
    """An LLVM first-class type: a scalar, or a vector of ``lanes`` scalars. Interned: compare by identity."""

    __slots__ = ("bits", "element", "is_float", "lanes", "text")

    element: str
    lanes: int
    text: str
    bits: int
    is_float: bool

    def __repr__(self) -> str:
        return self.text

    @property
    def scalar(self) -> Type:
        """The element type."""
        return make_type(self.element)

    def vector(self, lanes: int) -> Type:
        """The vector of ``lanes`` elements; 0 gives the scalar."""
        return make_type(self.element, lanes)

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def suffix(self) -> str:
        """The name of the type in intrinsics: ``v16f32``."""
        scalar = _SUFFIXES.get(self.element, self.element)
        return f"v{self.lanes}{scalar}" if self.lanes else scalar


_BITS: Final = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}
_SUFFIXES: Final = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


def make_type(element: str, lanes: int = 0) -> Type:
    """The type with this element and number of lanes."""
    return _interned(element, lanes)


@cache
def _interned(element: str, lanes: int) -> Type:
    made = Type()
    made.element, made.lanes = element, lanes
    made.text = f"<{lanes} x {element}>" if lanes else element
    made.bits = _BITS[element] if element in _BITS else int(element[1:])
    made.is_float = element in ("float", "double", "half", "bfloat")
    return made


I1: Final = make_type("i1")
I8: Final = make_type("i8")
I16: Final = make_type("i16")
I32: Final = make_type("i32")
I64: Final = make_type("i64")
F16: Final = make_type("half")
BF16: Final = make_type("bfloat")
F32: Final = make_type("float")
F64: Final = make_type("double")
PTR: Final = make_type("ptr")


class Value:
    """An SSA value or a constant. Arithmetic operators append instructions to its function."""

    __slots__ = ("function", "text", "type")

    def __init__(self, function: Function, type: Type, text: str) -> None:
        self.function = function
        self.type = type
        self.text = text

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"

    def _binary(self, other: Operand, float_op: str, integer_op: str, reverse: bool = False) -> Value:
        right = self.function.constant(self.type, other) if not isinstance(other, Value) else other
        a, b = (right, self) if reverse else (self, right)
        return self.function.binary(float_op if self.type.is_float else integer_op, a, b)

    def __add__(self, other: Operand) -> Value:
        return self._binary(other, "fadd", "add")

    def __radd__(self, other: Operand) -> Value:
        return self._binary(other, "fadd", "add", True)

    def __sub__(self, other: Operand) -> Value:
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Operand) -> Value:
        return self._binary(other, "fsub", "sub", True)

    def __mul__(self, other: Operand) -> Value:
        return self._binary(other, "fmul", "mul")

    def __rmul__(self, other: Operand) -> Value:
        return self._binary(other, "fmul", "mul", True)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary(other, "fdiv", "sdiv", True)

    def __and__(self, other: Operand) -> Value:
        return self._binary(other, "and", "and")

    def __or__(self, other: Operand) -> Value:
        return self._binary(other, "or", "or")

    def __xor__(self, other: Operand) -> Value:
        return self._binary(other, "xor", "xor")

    def __lshift__(self, other: Operand) -> Value:
        return self._binary(other, "shl", "shl")

    def __rshift__(self, other: Operand) -> Value:
        return self._binary(other, "ashr", "ashr")

    def logical_shift_right(self, other: Operand) -> Value:
        """The unsigned shift."""
        return self._binary(other, "lshr", "lshr")

    def unsigned_divide(self, other: Operand) -> Value:
        """The unsigned quotient; the divisor must not be 0."""
        return self._binary(other, "udiv", "udiv")

    def unsigned_remainder(self, other: Operand) -> Value:
        """The unsigned remainder; the divisor must not be 0."""
        return self._binary(other, "urem", "urem")

    def signed_remainder(self, other: Operand) -> Value:
        """The signed remainder; the divisor must not be 0, nor -1 for the smallest number."""
        return self._binary(other, "srem", "srem")

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.append(self.type, f"fneg {self.type.text} {self.text}")
        return self.function.constant(self.type, 0) - self

    def __invert__(self) -> Value:
        return self ^ -1 if self.type.element != "i1" else self ^ 1

    def compare(self, predicate: str, other: Operand) -> Value:
        """``fcmp`` or ``icmp`` with an LLVM predicate such as ``olt`` or ``ult``."""
        right = self.function.constant(self.type, other) if not isinstance(other, Value) else other
        kind = "fcmp" if self.type.is_float else "icmp"
        text = f"{kind} {predicate} {self.type.text} {self.text}, {right.text}"
        return self.function.append(make_type("i1", self.type.lanes), text)

    def select(self, yes: Operand, no: Operand) -> Value:
        """``yes`` where this (i1) holds, else ``no``; at least one of them is a Value."""
        if not isinstance(yes, Value):
            if not isinstance(no, Value):
                raise TypeError("select needs a Value")
            yes = self.function.constant(no.type, yes)
        elif not isinstance(no, Value):
            no = self.function.constant(yes.type, no)
        text = f"select {self.type.text} {self.text}, {yes.type.text} {yes.text}, {no.type.text} {no.text}"
        return self.function.append(yes.type, text)

    def cast(self, operation: str, element: Type) -> Value:
        """A conversion instruction (``sitofp``, ``trunc`` ...) to the element type, lanes kept."""
        target = element.vector(self.type.lanes)
        if target is self.type:
            return self
        return self.function.append(target, f"{operation} {self.type.text} {self.text} to {target.text}")

    def bitcast(self, type: Type) -> Value:
        """The same bits as another type."""
        if type is self.type:
            return self
        return self.function.append(type, f"bitcast {self.type.text} {self.text} to {type.text}")

    def splat(self, lanes: int) -> Value:
        """A vector with this scalar in every lane; lanes 0 gives the scalar itself."""
        if not lanes:
            return self
        vector = self.type.vector(lanes)
        if not self.text.startswith("%"):
            return Value(self.function, vector, f"splat ({self.type.text} {self.text})")
        first = self.function.append(vector, f"insertelement {vector.text} poison, {self}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.function.append(vector, f"shufflevector {first}, {vector.text} poison, {zeros}")

    def extract(self, lane: int | Value) -> Value:
        """One lane of a vector."""
        index = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self.function.append(self.type.scalar, f"extractelement {self}, {index}")

    def insert(self, scalar: Value, lane: int | Value) -> Value:
        """The vector with one lane replaced."""
        index = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self.function.append(self.type, f"insertelement {self}, {scalar}, {index}")

    def shuffle(self, lanes: Sequence[int], other: Value | None = None) -> Value:
        """Lanes chosen from this vector and ``other``; -1 leaves a lane undefined."""
        second = f"{self.type.text} poison" if other is None else str(other)
        mask = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {self}, {second}, <{len(lanes)} x i32> <{mask}>"
        return self.function.append(self.type.vector(len(lanes)), text)


Operand: TypeAlias = "Value | int | float"


def constant_text(type: Type, value: float) -> str:
    """The text of a number as an element constant of a type, exact for every value."""
    element = type.element
    if element == "float":
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if element == "ptr":
        return "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    return str(int(value))


class Loop:
    """A loop under construction: its index, the carried values, and what they become in the next round."""

    __slots__ = ("following", "index", "values")

    def __init__(self, index: Value, values: tuple[Value, ...]) -> None:
        self.index = index
        self.values = values
        self.following: tuple[Value, ...] = values

    def next(self, *values: Value) -> None:
        """Set the carried values of the next round; after the loop ``values`` holds the last ones."""
        self.following = values


class Function:
    """A function under construction."""

    def __init__(
        self, module: Module, name: str, parameters: Sequence[Type], result: Type | None = None, *,
        attributes: str = "", internal: bool = True,
    ) -> None:  # fmt: skip
        self.module = module
        self.name = name
        self.result = result
        self.attributes = attributes
        self.internal = internal
        self.lines: list[str] = []
        self.entry_lines: list[str] = []
        self.count = 0
        self.block = "entry"
        self.parameters = [Value(self, t, f"%a{i}") for i, t in enumerate(parameters)]

    # -- instructions

    def append(self, type: Type, text: str) -> Value:
        """Append an instruction that yields a value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, type, name)

    def do(self, text: str) -> None:
        """Append an instruction without a value."""
        self.lines.append("  " + text)

    def constant(self, type: Type, value: Any) -> Value:
        """A number as a constant, in every lane of a vector; a sequence gives a lane each."""
        if type.lanes:
            if isinstance(value, int | float):
                return Value(self, type, f"splat ({type.element} {constant_text(type, value)})")
            lanes = ", ".join(f"{type.element} {constant_text(type, v)}" for v in value)
            return Value(self, type, f"<{lanes}>")
        return Value(self, type, constant_text(type, value))

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """A two-operand instruction on values of one type."""
        return self.append(a.type, f"{operation} {a.type.text} {a.text}, {b.text}")

    def call(self, result: Type | None, name: str, *arguments: Value) -> Value:
        """Call a function by name; it is declared if the module does not define it."""
        self.module.declare(name, result, [a.type for a in arguments])
        text = f"call {result.text if result else 'void'} @{name}({', '.join(map(str, arguments))})"
        if result is None:
            self.do(text)
            return arguments[0] if arguments else Value(self, I64, "0")
        return self.append(result, text)

    def call_pointer(self, result: Type | None, target: Value, *arguments: Value) -> Value | None:
        """Call through a pointer."""
        text = f"call {result.text if result else 'void'} {target.text}({', '.join(map(str, arguments))})"
        if result is None:
            self.do(text)
            return None
        return self.append(result, text)

    def intrinsic(self, name: str, *arguments: Value, result: Type | None = None) -> Value:
        """Call ``llvm.NAME.TYPE`` overloaded on the type of the first argument."""
        return self.call(result or arguments[0].type, f"llvm.{name}.{arguments[0].type.suffix}", *arguments)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """A * b + c, rounded once."""
        right = b if isinstance(b, Value) else self.constant(a.type, b)
        plus = c if isinstance(c, Value) else self.constant(a.type, c)
        return self.intrinsic("fma", a, right, plus)

    # -- memory

    def offset(self, pointer: Value, index: Operand, element: Type = I8) -> Value:
        """The address ``index`` elements behind a pointer."""
        if isinstance(index, int) and index == 0:
            return pointer
        shown = f"i64 {index}" if not isinstance(index, Value) else str(index)
        return self.append(PTR, f"getelementptr {element.text}, ptr {pointer.text}, {shown}")

    def load(self, type: Type, pointer: Value, *, align: int = 0, note: str = "") -> Value:
        """Load a value; alignment defaults to that of one element."""
        return self.append(type, f"load {type.text}, ptr {pointer.text}, align {align or type.size}{note}")

    def store(self, value: Value, pointer: Value, *, align: int = 0, note: str = "") -> None:
        """Store a value; alignment defaults to that of one element."""
        self.do(f"store {value}, ptr {pointer.text}, align {align or value.type.size}{note}")

    def masked_load(self, type: Type, pointer: Value, mask: Value, default: Value | None = None) -> Value:
        """The lanes whose mask bit is set; the others take ``default`` (zero)."""
        other = default or Value(self, type, "zeroinitializer")
        return self.call(
            type, f"llvm.masked.load.{type.suffix}.p0", pointer, Value(self, I32, str(type.size)), mask, other
        )

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes whose mask bit is set."""
        if value.type.bits < 64 and not value.type.is_float:
            # LLVM (seen in 22) makes of a truncation that is stored under a constant mask of one lane a store
            # of the value before it, which overwrites the neighbours; not so under a mask it cannot fold.
            mask = mask & pointer.compare("ne", 0).splat(value.type.lanes)
        size = Value(self, I32, str(value.type.size))
        self.call(None, f"llvm.masked.store.{value.type.suffix}.p0", value, pointer, size, mask)

    def allocate(self, type: Type, count: int = 1, *, align: int = 64) -> Value:
        """Stack memory for the whole call; for scratch rows, never for loop variables."""
        self.count += 1
        name = f"%s{self.count}"
        self.entry_lines.append(f"  {name} = alloca {type.text}, i64 {count}, align {align}")
        return Value(self, PTR, name)

    # -- control flow

    def label(self) -> str:
        """A new label."""
        self.count += 1
        return f"b{self.count}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def turn_page(self) -> None:
        """Go on in a new block.

        Instructions are selected block by block; in long chains of shuffles most of that time goes into a
        search for shorter ones, which finds none across blocks.
        """
        label = self.label()
        self.jump(label)
        self.start(label)

    def jump(self, label: str) -> None:
        """Branch always."""
        self.do(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Branch on an i1."""
        self.do(f"br i1 {condition.text}, label %{yes}, label %{no}")

    def phi(self, type: Type, incoming: Sequence[tuple[Value, str]]) -> Value:
        """The value that belongs to the block control came from."""
        pairs = ", ".join(f"[ {value.text}, %{label} ]" for value, label in incoming)
        return self.append(type, f"phi {type.text} {pairs}")

    @contextmanager
    def loop(
        self, low: Operand, high: Operand, step: int | Value = 1, carried: Sequence[Value] = ()
    ) -> Generator[Loop]:
        """``for index in range(low, high, step)`` with carried values; no round at all if low >= high."""
        first = low if isinstance(low, Value) else self.constant(I64, low)
        limit = high if isinstance(high, Value) else self.constant(I64, high)
        before, head, body, after = self.block, self.label(), self.label(), self.label()
        self.jump(head)
        self.start(head)
        slots = [first, *carried]
        phis: list[Value] = []
        positions: list[int] = []
        for value in slots:
            self.count += 1
            phis.append(Value(self, value.type, f"%p{self.count}"))
            positions.append(len(self.lines))
            self.lines.append("")
        loop = Loop(phis[0], tuple(phis[1:]))
        self.branch(loop.index.compare("slt", limit), body, after)
        self.start(body)
        yield loop
        following = [
            self.append(
                I64, f"add nsw i64 {loop.index.text}, {step.text if isinstance(step, Value) else step}"
            ),
            *loop.following,
        ]
        latch = self.block
        self.jump(head)
        for position, phi, start, then in zip(positions, phis, slots, following, strict=True):
            incoming = f"[ {start.text}, %{before} ], [ {then.text}, %{latch} ]"
            self.lines[position] = f"  {phi.text} = phi {phi.type.text} {incoming}"
        self.start(after)

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Run the body if the condition holds; values made inside stay inside."""
        body, after = self.label(), self.label()
        self.branch(condition, body, after)
        self.start(body)
        yield
        self.jump(after)
        self.start(after)

    def finish(self, value: Value | None = None) -> None:
        """Return, and add the function to its module."""
        self.do("ret void" if value is None else f"ret {value}")
        self.module.functions[self.name] = self.text()

    def text(self) -> str:
        """The whole definition."""
        linkage = "internal " if self.internal else ""
        result = self.result.text if self.result else "void"
        parameters = ", ".join(map(str, self.parameters))
        head = f"define {linkage}{result} @{self.name}({parameters}) {self.attributes} #0 {{\nentry:\n"
        lines = self.lines
        if self.entry_lines:
            lines = [*self.entry_lines, *lines]
        return head + "\n".join(lines) + "\n}\n"


class Module:
    """A module under construction: functions, globals, declarations.

    Attributes:
        vector_bits: width of the target's vectors.
        target: the machine that the code is for; what it lacks is put together from what every one has.
        data: constants too long for the text, by name; the loader puts them where the code looks.
    """

    def __init__(self, vector_bits: int = 512, target: Target | None = None) -> None:
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.data: dict[str, bytes] = {}
        self.vector_bits = vector_bits
        self.target = target or host()

    def function(
        self, name: str, parameters: Sequence[Type], result: Type | None = None, *, attributes: str = "",
        internal: bool = True,
    ) -> Function:  # fmt: skip
        """Begin a function; ``finish`` adds it."""
        return Function(self, name, parameters, result, attributes=attributes, internal=internal)

    def declare(self, name: str, result: Type | None, parameters: Sequence[Type]) -> None:
        """Declare a function unless it is declared already."""
        if name not in self.declarations:
            types = ", ".join(t.text for t in parameters)
            self.declarations[name] = f"declare {result.text if result else 'void'} @{name}({types})"

    def constant_bytes(self, name: str, data: bytes, *, align: int = 64) -> str:
        """A private constant of raw bytes; returns its address as text."""
        if len(data) > MOST_INLINE:
            self.data[name] = data
            self.globals[name] = f"@{name} = external hidden constant [{len(data)} x i8], align {align}"
            return f"@{name}"
        body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
        self.globals[name] = (
            f'@{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}", align {align}'
        )
        return f"@{name}"

    def text(self) -> str:
        """The module's text."""
        declared = [text for name, text in self.declarations.items() if name not in self.functions]
        return "\n".join(
            [
                *self.globals.values(),
                *self.functions.values(),
                *declared,
                f'attributes #0 = {{ nounwind "prefer-vector-width"="{self.vector_bits}" '
                '"no-trapping-math"="true" }',
                "",
            ]
        )
