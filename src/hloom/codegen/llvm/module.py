"""Modules and functions under construction."""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeAlias, TypeVar

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.control_flow import Branch, CallInstruction, IndirectCall, Jump, Phi, Return, Switch
from hloom.codegen.llvm.declarations import FunctionDeclaration, GlobalConstant, GlobalVariable
from hloom.codegen.llvm.instructions import (
    BinaryInstruction,
    Block,
    CompareInstruction,
    Extract,
    FlaggedBinary,
    Insert,
    Instruction,
    SelectInstruction,
    ShuffleVector,
    UnaryInstruction,
)
from hloom.codegen.llvm.memory_instructions import (
    Argument,
    DynamicStackMemory,
    Load,
    Offset,
    StackMemory,
    Store,
)
from hloom.codegen.llvm.types import I1, I8, I64, PTR, VOID, Type
from hloom.codegen.llvm.values import (
    NUMBERS,
    ConstantKey,
    ConstantValue,
    GlobalAddress,
    Number,
    Operand,
    Poison,
    Value,
)
from hloom.codegen.target import Target

_Appended = TypeVar("_Appended", bound=Instruction)

STREAMED_LINE: Final = 64
"""Bytes of the lines that `Function.stream` stores whole."""
MOST_INLINE: Final = 4096
"""Bytes of the largest constant in the module; the loader places larger ones."""


class Function:
    """A function under construction; instructions are appended to the current block.

    Attributes:
        module: gets the function at `finish`.
        name, result: name and type of the result (``void`` for none).
        parameters: the values that callers pass.
        attributes: of the function.
        internal: whether it has internal linkage.
        blocks: the blocks in order, the entry first.
        block: the current block.
        stack: the allocas.
        prologue: stores that initialize allocas.
        symbols: referenced globals and functions, in the order of first use.
        expansions: number of elementary functions expanded in it.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[Type],
        result: Type | None = None,
        *,
        attributes: Sequence[Attribute] = (),
        internal: bool = True,
    ) -> None:
        self.module = module
        self.name = name
        self.result = result or VOID
        self.attributes: tuple[Attribute, ...] = tuple(attributes)
        self.internal = internal
        self.parameters = [Argument(self, t) for t in parameters]
        self.stack: list[StackMemory] = []
        self.prologue: list[Store] = []
        self.symbols: dict[str, None] = {}
        self.expansions = 0
        self.constants: dict[ConstantKey, ConstantValue] = {}
        self._poisons: dict[Type, Poison] = {}
        self._addresses: dict[str, GlobalAddress] = {}
        self.block = Block()
        self.blocks = [self.block]

    @staticmethod
    def of(value: Value) -> Function:
        """Return the function of a value; emitters of control flow and memory need it."""
        assert isinstance(value.function, Function)
        return value.function

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    @property
    def target(self) -> Target:
        return self.module.target

    @property
    def parameter_types(self) -> Sequence[Type]:
        return [p.type for p in self.parameters]

    @property
    def parameter_attributes(self) -> Sequence[tuple[Attribute, ...]]:
        return [p.attributes for p in self.parameters]

    @property
    def size(self) -> int:
        return len(self.stack) + len(self.prologue) + sum([len(block.instructions) for block in self.blocks])

    # -- constants

    def constant(self, type: Type, value: Number | Sequence[Number]) -> ConstantValue:
        """Return a constant: one number for all lanes, or a sequence of one number per lane."""
        if isinstance(value, NUMBERS):
            key = type, value if value and value == value else _special(type, value)
        else:
            key = type, tuple([n if n and n == n else _special(type, n) for n in value])
        constant = self.constants.get(key)
        if constant is None:
            constant = self.constants[key] = ConstantValue(self, type, _as_element(type, value), key)
        return constant

    def operand(self, type: Type, value: Operand) -> Value:
        """Return an operand as a value; a number becomes a constant of the type."""
        return value if isinstance(value, Value) else self.constant(type, value)

    def poison(self, type: Type) -> Value:
        """Return ``poison``."""
        poison = self._poisons.get(type)
        if poison is None:
            poison = self._poisons[type] = Poison(self, type)
        return poison

    def address(self, symbol: str) -> Value:
        """Return the address of a global or a function."""
        address = self._addresses.get(symbol)
        if address is None:
            self.symbols[symbol] = None
            address = self._addresses[symbol] = GlobalAddress(self, symbol)
        return address

    # -- instructions; values have operators for most of these

    def append(self, instruction: _Appended) -> _Appended:
        """Append an instruction to the current block, and return it."""
        self.block.instructions.append(instruction)
        return instruction

    def binary(self, opcode: str, a: Value, b: Operand) -> Value:
        """Append an instruction on two operands of one type."""
        if not isinstance(b, Value):
            b = self.constant(a.type, b)
        return self.append(BinaryInstruction(self, a.type, opcode, a, b))

    def flagged_binary(self, opcode: str, flags: tuple[str, ...], a: Value, b: Value) -> Value:
        """Append a binary instruction with flags such as ``nsw``."""
        return self.append(FlaggedBinary(self, a.type, opcode, a, b, flags))

    def unary(self, opcode: str, a: Value) -> Value:
        """Append an instruction on one operand of the type of its result."""
        return self.append(UnaryInstruction(self, a.type, opcode, a))

    def compare(self, predicate: str, a: Value, b: Operand) -> Value:
        """Append ``fcmp`` or ``icmp``."""
        if not isinstance(b, Value):
            b = self.constant(a.type, b)
        opcode = "fcmp" if a.type.is_float else "icmp"
        return self.append(CompareInstruction(self, I1.vector(a.type.lanes), opcode, predicate, a, b))

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Append ``select``; at least one of the alternatives is a Value."""
        if not isinstance(yes, Value):
            if not isinstance(no, Value):
                raise TypeError("select needs a Value")
            yes = self.constant(no.type, yes)
        elif not isinstance(no, Value):
            no = self.constant(yes.type, no)
        return self.append(SelectInstruction(self, yes.type, condition, yes, no))

    def convert(self, opcode: str, value: Value, type: Type) -> Value:
        """Append a conversion such as ``sitofp``, ``bitcast`` or ``ptrtoint``."""
        if type is value.type:
            return value
        return self.append(UnaryInstruction(self, type, opcode, value))

    def extract(self, vector: Value, lane: int | Value) -> Value:
        """Append ``extractelement``."""
        return self.append(Extract(self, vector.type.scalar, vector, self.operand(I64, lane)))

    def insert(self, vector: Value, scalar: Value, lane: int | Value) -> Value:
        """Append ``insertelement``."""
        return self.append(Insert(self, vector.type, vector, scalar, self.operand(I64, lane)))

    def shuffle(self, vector: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
        """Append ``shufflevector`` of one or two vectors; -1 makes a lane poison."""
        if other is None:
            other = self.poison(vector.type)
        return self.append(ShuffleVector(self, vector.type.vector(len(lanes)), vector, other, tuple(lanes)))

    def call(
        self,
        result: Type | None,
        callee: Callee | str,
        *arguments: Value,
        attributes: tuple[Attribute, ...] = (),
    ) -> Value:
        """Append a call, and declare the function if the module does not know it."""
        if isinstance(callee, str):
            declaration = self.module.callee(callee)
            callee = declaration or self.module.declare(callee, result, [a.type for a in arguments])
        self.symbols[callee.name] = None
        return self.append(CallInstruction(self, result or VOID, callee.name, arguments, attributes))

    def call_pointer(self, result: Type | None, callee: Value, *arguments: Value) -> Value:
        """Append a call of a function pointer."""
        return self.append(IndirectCall(self, result or VOID, callee, arguments))

    def intrinsic(self, name: str, *arguments: Value, result: Type | None = None) -> Value:
        """Call ``llvm.NAME.TYPE``, overloaded on the first argument's type."""
        type = arguments[0].type
        return self.call(result or type, f"llvm.{name}.{type.suffix}", *arguments)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """Return a * b + c, rounded once."""
        return self.intrinsic("fma", a, self.operand(a.type, b), self.operand(a.type, c))

    # -- memory; see also `hloom.codegen.llvm.memory`

    def offset(self, pointer: Value, index: Operand, element: Type = I8) -> Value:
        """Return the address ``index`` elements past a pointer; a vector of indices gives a vector."""
        if not isinstance(index, Value):
            if not index:
                return pointer
            index = self.constant(I64, index)
        return self.append(Offset(self, PTR.vector(index.type.lanes), element, pointer, index))

    def load(self, type: Type, pointer: Value, *, align: int = 0) -> Value:
        """Load a value; alignment defaults to the size of an element."""
        return self.append(Load(self, type, pointer, align or type.size))

    def store(self, value: Value, pointer: Value, *, align: int = 0) -> None:
        """Store a value; alignment defaults to the size of an element."""
        self.append(Store(self, value, pointer, align or value.type.size))

    def stream(self, value: Value, pointer: Value) -> None:
        """Store whole lines past the caches, at a multiple of `STREAMED_LINE`."""
        self.append(Store(self, value, pointer, STREAMED_LINE, streams=True))

    def allocate(self, type: Type, count: int = 1, *, align: int = 0) -> StackMemory:
        """Append an alloca to the entry block: scratch memory for the whole call.

        Alignment defaults to the module's; ``count`` may change until `finish`.
        """
        instruction = StackMemory(self, PTR, type, count, align or self.module.alignment)
        self.stack.append(instruction)
        return instruction

    def allocate_bytes(self, bytes: Value, *, align: int) -> Value:
        """Append an alloca of a size known at run time; not in loops."""
        return self.append(DynamicStackMemory(self, PTR, bytes, align))

    def initialize(self, memory: StackMemory, value: ConstantValue) -> None:
        """Initialize an alloca with a constant."""
        self.prologue.append(Store(self, value, memory, value.type.size))

    # -- control flow

    def new_block(self) -> Block:
        """Return a new block, which `start` appends."""
        return Block()

    def start(self, block: Block) -> None:
        """Append a block and make it the current one."""
        self.blocks.append(block)
        self.block = block

    def split_block(self) -> None:
        """Continue in a new block.

        LLVM selects instructions block by block, and spends most of that time on long chains of shuffles,
        which it tries to shorten; block boundaries prevent that.
        """
        block = Block()
        self.jump(block)
        self.start(block)

    def jump(self, block: Block) -> None:
        """Append an unconditional branch."""
        self.append(Jump(self, block))

    def branch(self, condition: Value, yes: Block, no: Block) -> None:
        """Append a conditional branch."""
        self.append(Branch(self, condition, yes, no))

    def switch(self, chooser: Value, cases: Sequence[tuple[int, Block]], default: Block) -> None:
        """Append ``switch``."""
        self.append(Switch(self, chooser, cases, default))

    def phi(self, type: Type, incoming: Sequence[tuple[Value, Block]]) -> Value:
        """Append ``phi``."""
        return self.append(Phi(self, type, incoming))

    def loop(self, low: Operand, high: Operand, step: int | Value = 1, carried: Sequence[Value] = ()) -> Loop:
        """Begin ``for index in range(low, high, step)`` with loop-carried values."""
        first, limit, increment = (self.operand(I64, x) for x in (low, high, step))
        return Loop(self, first, limit, increment, tuple(carried))

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Emit the body under a condition; it may end with a terminator.

        Values defined in the body must not be used outside.
        """
        body, after = Block(), Block()
        self.branch(condition, body, after)
        self.start(body)
        yield
        if not self.block.is_terminated:
            self.jump(after)
        self.start(after)

    def return_value(self, value: Operand | None = None) -> None:
        """Return from the function; the body of `when` or of a loop ends here."""
        self.append(Return(self, None if value is None else self.operand(self.result, value)))

    def return_if(self, condition: Value, value: Operand | None = None) -> None:
        """Return a value (or nothing) if the condition holds, else continue."""
        with self.when(condition):
            self.return_value(value)

    def pack_parameters(self, count: int) -> None:
        """Replace the first parameters, all pointers, by the address of an array that holds them."""
        packed, array = self.parameters[:count], Argument(self, PTR)
        loads: list[Instruction] = []
        for number, parameter in enumerate(packed):
            parameter.address = array
            if number:
                parameter.address = Offset(self, PTR, PTR, array, self.constant(I64, number))
                loads.append(parameter.address)
            loads.append(parameter)
        self.parameters = [array, *self.parameters[count:]]
        self.blocks[0].instructions[:0] = loads

    def discard(self) -> None:
        """Drop the code, which reference cycles would keep alive."""
        self.blocks.clear()
        self.constants.clear()
        self.stack.clear()
        self.prologue.clear()

    def finish(self, value: Value | None = None) -> None:
        """Return, and add the function to its module."""
        self.append(Return(self, value))
        self.module.functions[self.name] = self


Callee: TypeAlias = Function | FunctionDeclaration


class Loop:
    """A counted loop under construction: ``with f.loop(low, high, step, carried) as loop``.

    Attributes:
        index: the induction variable.
        values: the loop-carried values of this iteration; after the loop, the final ones.
    """

    __slots__ = (
        "_after",
        "_before",
        "_following",
        "_function",
        "_head",
        "_initial",
        "_phis",
        "_step",
        "index",
        "values",
    )

    def __init__(
        self, function: Function, low: Value, high: Value, step: Value, carried: tuple[Value, ...]
    ) -> None:
        self._function, self._step, self._initial = function, step, (low, *carried)
        self._before = function.block
        self._head, body, self._after = Block(), Block(), Block()
        function.jump(self._head)
        function.start(self._head)
        self._phis = [Phi(function, value.type) for value in self._initial]
        self._head.instructions.extend(self._phis)
        self.index: Value = self._phis[0]
        self.values: tuple[Value, ...] = tuple(self._phis[1:])
        self._following = self.values
        function.branch(self.index.compare("slt", high), body, self._after)
        function.start(body)

    def next(self, *values: Value) -> None:
        """Set the loop-carried values of the next iteration."""
        self._following = values

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the loop."""
        if kind is not None:
            return
        function = self._function
        following = (function.flagged_binary("add", ("nsw",), self.index, self._step), *self._following)
        latch = function.block
        function.jump(self._head)
        for phi, initial, value in zip(self._phis, self._initial, following, strict=True):
            phi.incoming = ((initial, self._before), (value, latch))
        function.start(self._after)


class Module:
    """A module under construction.

    Attributes:
        target: the machine that the code is for.
        functions: the completed functions, by name.
        declarations: external functions; those also in `functions` are not printed.
        globals: constants, by name.
        variables: mutable globals, by name.
        apart: functions that several callers share, by their structure.
        alignment: default alignment of stack memory and constants, in bytes.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, Function] = {}
        self.declarations: dict[str, FunctionDeclaration] = {}
        self.globals: dict[str, GlobalConstant] = {}
        self.variables: dict[str, GlobalVariable] = {}
        self.apart: dict[Hashable, Function] = {}
        self.alignment = target.cache_line_bytes

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return (
            Attribute("nounwind"),
            Attribute("prefer-vector-width", str(8 * self.target.vector_bytes)),
            Attribute("no-trapping-math", "true"),
        )

    @property
    def data(self) -> dict[str, bytes]:
        """Constants that the loader places, by name."""
        return {name: g.data for name, g in self.globals.items() if g.external}

    def function(
        self,
        name: str,
        parameters: Sequence[Type],
        result: Type | None = None,
        *,
        attributes: Sequence[Attribute] = (),
        internal: bool = True,
    ) -> Function:
        """Begin a function; `Function.finish` adds it to the module."""
        return Function(self, name, parameters, result, attributes=attributes, internal=internal)

    def callee(self, name: str) -> Callee | None:
        """Return the function or declaration of a name."""
        return self.functions.get(name) or self.declarations.get(name)

    def declare(
        self,
        name: str,
        result: Type | None,
        parameters: Sequence[Type],
        *,
        attributes: Sequence[Attribute] = (),
        parameter_attributes: Mapping[int, tuple[Attribute, ...]] | None = None,
    ) -> FunctionDeclaration:
        """Declare a function, unless it is declared; attributes of parameters are by number."""
        declaration = self.declarations.get(name)
        if declaration is None:
            declaration = self.declarations[name] = FunctionDeclaration(
                name, result, parameters, attributes=attributes, parameter_attributes=parameter_attributes
            )
        return declaration

    def constant_bytes(self, name: str, data: bytes, *, align: int = 0) -> None:
        """Add a constant, which `Function.address` finds by name."""
        external = len(data) > MOST_INLINE
        self.globals[name] = GlobalConstant(name, data, align=align or self.alignment, external=external)


def _special(type: Type, value: Number) -> Number | bytes:
    """Return a key for a zero or a NaN: -0.0 equals 0.0, and NaN differs from itself."""
    return struct.pack("<d", value) if value or (type.is_float and math.copysign(1.0, value) < 0) else 0


def _as_element(type: Type, value: Number | Sequence[Number]) -> Number | tuple[Number, ...]:
    """Convert numbers to floats or ints, as the type requires."""
    convert = float if type.is_float else int
    return convert(value) if isinstance(value, NUMBERS) else tuple([convert(v) for v in value])
