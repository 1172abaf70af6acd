"""Modules and functions under construction."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeAlias, TypeVar

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.blocks import Block
from hloom.codegen.llvm.control_flow import Branch, CallInstruction, IndirectCall, Jump, Phi, Return, Switch
from hloom.codegen.llvm.declarations import Declaration, GlobalConstant, GlobalVariable
from hloom.codegen.llvm.instructions import (
    BinaryInstruction,
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

MOST_INLINE: Final = 4096
"""Maximum size in bytes of a constant inside the module; the loader places longer ones."""


class Function:
    """A function under construction; instructions are appended to the current block.

    Attributes:
        module: the module that it is added to by `finish`.
        name, result: name and type of the result (``void`` for none).
        parameters: the values that callers pass.
        attributes: of the function.
        internal: whether it is visible only in its module.
        blocks: the blocks in order, the entry first.
        block: the current block.
        stack: the stack memory.
        prologue: the first instructions of the function, after its stack memory.
        symbols: the globals and functions that it refers to, in the order of first use.
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
        self.constants: dict[ConstantKey, ConstantValue] = {}
        self._poisons: dict[Type, Poison] = {}
        self._addresses: dict[str, GlobalAddress] = {}
        self.block = Block()
        self.blocks = [self.block]
        self._append: Callable[[Instruction], None] = self.block.instructions.append

    @staticmethod
    def of(value: Value) -> Function:
        """Return the function that a value belongs to; emitters of control flow and memory need it."""
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
        """Return a number as a constant, in every lane of a vector; a sequence has one number per lane."""
        if isinstance(value, NUMBERS):
            key = type, value if value and value == value else _special(type, value)
        else:
            key = type, tuple([n if n and n == n else _special(type, n) for n in value])
        constant = self.constants.get(key)
        if constant is None:
            constant = self.constants[key] = ConstantValue(self, type, _as_element(type, value), key)
        return constant

    def operand(self, type: Type, value: Operand) -> Value:
        """Return an operand as a value: numbers become constants of the type."""
        return value if isinstance(value, Value) else self.constant(type, value)

    def poison(self, type: Type) -> Value:
        """Return an undefined value."""
        poison = self._poisons.get(type)
        if poison is None:
            poison = self._poisons[type] = Poison(self, type)
        return poison

    def address(self, symbol: str) -> Value:
        """Return the address of a global constant or a function of the module."""
        address = self._addresses.get(symbol)
        if address is None:
            self.symbols[symbol] = None
            address = self._addresses[symbol] = GlobalAddress(self, symbol)
        return address

    # -- instructions; values have operators for most of these

    def append(self, instruction: _Appended) -> _Appended:
        """Append an instruction to the current block, and return it."""
        self._append(instruction)
        return instruction

    def binary(self, opcode: str, a: Value, b: Operand) -> Value:
        """Append a two-operand instruction on values of one type."""
        if not isinstance(b, Value):
            b = self.constant(a.type, b)
        instruction = BinaryInstruction(self, a.type, opcode, a, b)
        self._append(instruction)
        return instruction

    def flagged_binary(self, opcode: str, flags: tuple[str, ...], a: Value, b: Value) -> Value:
        """Append a two-operand instruction with flags, such as ``nsw``."""
        instruction = FlaggedBinary(self, a.type, opcode, a, b, flags)
        self._append(instruction)
        return instruction

    def unary(self, opcode: str, a: Value) -> Value:
        """Append a one-operand instruction whose result has the operand's type."""
        instruction = UnaryInstruction(self, a.type, opcode, a)
        self._append(instruction)
        return instruction

    def compare(self, predicate: str, a: Value, b: Operand) -> Value:
        """Append ``fcmp`` or ``icmp``."""
        if not isinstance(b, Value):
            b = self.constant(a.type, b)
        type = a.type
        opcode = "fcmp" if type.is_float else "icmp"
        instruction = CompareInstruction(
            self, I1.vector(type.lanes) if type.lanes else I1, opcode, predicate, a, b
        )
        self._append(instruction)
        return instruction

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Append a choice; at least one of the alternatives is a Value."""
        if not isinstance(yes, Value):
            if not isinstance(no, Value):
                raise TypeError("select needs a Value")
            yes = self.constant(no.type, yes)
        elif not isinstance(no, Value):
            no = self.constant(yes.type, no)
        instruction = SelectInstruction(self, yes.type, condition, yes, no)
        self._append(instruction)
        return instruction

    def convert(self, opcode: str, value: Value, type: Type) -> Value:
        """Append a conversion: ``sitofp``, ``bitcast``, ``ptrtoint``, ..."""
        if type is value.type:
            return value
        instruction = UnaryInstruction(self, type, opcode, value)
        self._append(instruction)
        return instruction

    def extract(self, vector: Value, lane: int | Value) -> Value:
        """Append ``extractelement``."""
        instruction = Extract(self, vector.type.scalar, vector, self.operand(I64, lane))
        self._append(instruction)
        return instruction

    def insert(self, vector: Value, scalar: Value, lane: int | Value) -> Value:
        """Append ``insertelement``."""
        instruction = Insert(self, vector.type, vector, scalar, self.operand(I64, lane))
        self._append(instruction)
        return instruction

    def shuffle(self, vector: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
        """Append a choice of lanes of two vectors; -1 leaves a lane undefined."""
        if other is None:
            other = self.poison(vector.type)
        instruction = ShuffleVector(self, vector.type.vector(len(lanes)), vector, other, tuple(lanes))
        self._append(instruction)
        return instruction

    def call(
        self,
        result: Type | None,
        callee: Callee | str,
        *arguments: Value,
        attributes: tuple[Attribute, ...] = (),
    ) -> Value:
        """Append a call; a function that the module does not know by its name is declared."""
        if isinstance(callee, str):
            declaration = self.module.callee(callee)
            callee = declaration or self.module.declare(callee, result, [a.type for a in arguments])
        self.symbols[callee.name] = None
        instruction = CallInstruction(self, result or VOID, callee.name, arguments, attributes)
        self._append(instruction)
        return instruction

    def call_pointer(self, result: Type | None, callee: Value, *arguments: Value) -> Value:
        """Append a call of the function at an address."""
        return self.append(IndirectCall(self, result or VOID, callee, arguments))

    def intrinsic(self, name: str, *arguments: Value, result: Type | None = None) -> Value:
        """Call ``llvm.NAME.TYPE``, overloaded on the type of the first argument."""
        type = arguments[0].type
        return self.call(result or type, f"llvm.{name}.{type.suffix}", *arguments)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """Return a * b + c, rounded once."""
        return self.intrinsic("fma", a, self.operand(a.type, b), self.operand(a.type, c))

    # -- memory; see also `hloom.codegen.llvm.memory`

    def offset(self, pointer: Value, index: Operand, element: Type = I8) -> Value:
        """Return the address ``index`` elements behind a pointer; a vector of indices gives one of these."""
        if not isinstance(index, Value):
            if not index:
                return pointer
            index = self.constant(I64, index)
        lanes = index.type.lanes
        instruction = Offset(self, PTR.vector(lanes) if lanes else PTR, element, pointer, index)
        self._append(instruction)
        return instruction

    def load(self, type: Type, pointer: Value, *, align: int = 0) -> Value:
        """Load a value; alignment defaults to that of one element."""
        instruction = Load(self, type, pointer, align or type.size)
        self._append(instruction)
        return instruction

    def store(self, value: Value, pointer: Value, *, align: int = 0) -> None:
        """Store a value; alignment defaults to that of one element."""
        self._append(Store(self, value, pointer, align or value.type.size))

    def allocate(self, type: Type, count: int = 1, *, align: int = 0) -> StackMemory:
        """Reserve stack memory for the whole call: for scratch rows, never for loop variables.

        Its alignment defaults to that of the module's memory; the count may be changed until `finish`.
        """
        instruction = StackMemory(self, PTR, type, count, align or self.module.alignment)
        self.stack.append(instruction)
        return instruction

    def allocate_bytes(self, bytes: Value, *, align: int) -> Value:
        """Reserve a number of bytes of stack memory, outside of loops."""
        return self.append(DynamicStackMemory(self, PTR, bytes, align))

    def initialize(self, memory: StackMemory, value: ConstantValue) -> None:
        """Store a constant in stack memory in the function's prologue."""
        self.prologue.append(Store(self, value, memory, value.type.size))

    # -- control flow

    def new_block(self) -> Block:
        """Return a new block, which `start` appends."""
        return Block()

    def start(self, block: Block) -> None:
        """Append a block, and append instructions to it from now on."""
        self.blocks.append(block)
        self.block = block
        self._append = block.instructions.append

    def split_block(self) -> None:
        """Continue in a new block.

        LLVM selects instructions per block. In long chains of shuffles most of that time is spent searching
        for shorter chains, which block boundaries prevent.
        """
        block = Block()
        self.jump(block)
        self.start(block)

    def jump(self, block: Block) -> None:
        """Branch always."""
        self._append(Jump(self, block))

    def branch(self, condition: Value, yes: Block, no: Block) -> None:
        """Branch on an i1."""
        self._append(Branch(self, condition, yes, no))

    def switch(self, chooser: Value, cases: Sequence[tuple[int, Block]], default: Block) -> None:
        """Branch to the block of the case that an integer equals."""
        self._append(Switch(self, chooser, cases, default))

    def phi(self, type: Type, incoming: Sequence[tuple[Value, Block]]) -> Value:
        """Return the value that belongs to the block control came from."""
        instruction = Phi(self, type, incoming)
        self._append(instruction)
        return instruction

    def loop(self, low: Operand, high: Operand, step: int | Value = 1, carried: Sequence[Value] = ()) -> Loop:
        """Begin ``for index in range(low, high, step)`` with carried values; no iteration if low >= high."""
        first, limit, increment = (self.operand(I64, x) for x in (low, high, step))
        return Loop(self, first, limit, increment, tuple(carried))

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """Emit the body under the condition; values defined inside must not be used outside.

        A body may end with a return or a jump.
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
        self._append(Return(self, None if value is None else self.operand(self.result, value)))

    def return_if(self, condition: Value, value: Operand | None = None) -> None:
        """Return a value (or nothing) if the condition holds, else continue."""
        with self.when(condition):
            self.return_value(value)

    def pack_parameters(self, count: int) -> None:
        """Take the first parameters, pointers, from an array whose address replaces them."""
        packed, array = self.parameters[:count], Argument(self, PTR)
        loads: list[Instruction] = []
        for number, parameter in enumerate(packed):
            parameter.place = array
            if number:
                parameter.place = Offset(self, PTR, PTR, array, self.constant(I64, number))
                loads.append(parameter.place)
            loads.append(parameter)
        self.parameters = [array, *self.parameters[count:]]
        self.blocks[0].instructions[:0] = loads

    def discard(self) -> None:
        """Drop the code, so that no references in circles keep its values alive."""
        self.blocks.clear()
        self.constants.clear()
        self.stack.clear()
        self.prologue.clear()

    def finish(self, value: Value | None = None) -> None:
        """Return, and add the function to its module."""
        self._append(Return(self, value))
        self.module.functions[self.name] = self


Callee: TypeAlias = Function | Declaration


class Loop:
    """A counted loop under construction: ``with f.loop(low, high, step, carried) as loop``.

    Attributes:
        index: the induction variable.
        values: the carried values in this iteration; after the loop, the last ones.
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
        """Set the carried values of the next iteration."""
        self._following = values

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the loop; code that follows is executed after it."""
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
        declarations: called functions; those defined in `functions` are not declared in the text.
        globals: constants in memory, by name.
        variables: memory that functions write, by name.
        alignment: default alignment of stack memory and constants, in bytes.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, Function] = {}
        self.declarations: dict[str, Declaration] = {}
        self.globals: dict[str, GlobalConstant] = {}
        self.variables: dict[str, GlobalVariable] = {}
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
        """Begin a function; its ``finish`` adds it to the module."""
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
    ) -> Declaration:
        """Declare a function unless it is declared already; attributes of parameters are by number."""
        declaration = self.declarations.get(name)
        if declaration is None:
            declaration = self.declarations[name] = Declaration(
                name, result, parameters, attributes=attributes, parameter_attributes=parameter_attributes
            )
        return declaration

    def constant_bytes(self, name: str, data: bytes, *, align: int = 0) -> None:
        """Add constant bytes, which `Function.address` refers to by name."""
        external = len(data) > MOST_INLINE
        self.globals[name] = GlobalConstant(name, data, align=align or self.alignment, external=external)


def _special(type: Type, value: Number) -> Number | bytes:
    """Return the bits of a zero or a NaN for keys, since comparing numbers does not distinguish them."""
    return struct.pack("<d", value) if value or (type.is_float and math.copysign(1.0, value) < 0) else 0


def _as_element(type: Type, value: Number | Sequence[Number]) -> Number | tuple[Number, ...]:
    """Return numbers as a type has them: floats or ints."""
    convert = float if type.is_float else int
    return convert(value) if isinstance(value, NUMBERS) else tuple([convert(v) for v in value])
