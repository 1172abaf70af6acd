"""Arguments that a program reads in packed form, which its caller keeps from run to run.

Products and convolutions copy a factor into the order in which their kernels read it. If the factor is an
argument, the caller may keep the copy: the table of the addresses of the arguments goes on with a word for
each packed argument. Null: the program packs the argument in every run. The address of the packed form: it
reads that. This address with its lowest bit set: it fills the packed form first. Results have the same bits
in all three cases.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from hashlib import blake2b
from typing import Final, Protocol

from hloom.analysis.subviews import part_of
from hloom.buffers.assignment import Assignment
from hloom.buffers.buffers import Buffer
from hloom.codegen.llvm import I64, PTR, Block, Function, Value
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.records import dataclass

LEAST_BYTES: Final = 1 << 16
"""Fewest bytes of an argument whose packed form is worth keeping."""


@dataclass(frozen=True, slots=True)
class PackedArgument:
    """An argument of which a program can read a copy whose elements are in the order in which a kernel reads.

    The program's caller keeps the copy from run to run.

    Attributes:
        argument: the index of the argument among the array leaves of all arguments.
        bytes: the size of the packed copy.
        form: a digest of the order of the elements in the copy; copies of one argument with equal digests are
            equal.
    """

    argument: int
    bytes: int
    form: int


@dataclass(frozen=True, slots=True)
class ArgumentOperand:
    """An operand of a dot or convolution that is an argument, or a slice that is one of its equal parts.

    Attributes:
        argument: the index of the argument among the array leaves of all arguments.
        parts: the number of equal parts in the argument; 1 if the operand is the whole argument.
        instruction: the operand, whose value lies in the argument's memory.
    """

    argument: int
    parts: int
    instruction: HloInstruction


class EntryEmitter(Protocol):
    """The attributes and methods that `PackedArguments` uses of the emitter of a program's entry function.

    Attributes:
        hlo: the HLO module of the program.
        function: the entry function.
        assignment: the buffers of all values.
    """

    hlo: HloModule
    function: Function
    assignment: Assignment

    @property
    def arguments(self) -> Value:
        """Return the entry function's parameter that points to the table of the arguments' addresses."""
        ...

    def argument(self, number: int) -> Value:
        """Emit a load of the address of an argument's array: leaf ``number`` of all arguments' leaves."""
        ...

    def pointer(self, instruction: HloInstruction) -> Value:
        """Return the address of an instruction's array, as a value of the emitted code."""
        ...

    def uncounted(self) -> AbstractContextManager[None]:
        """Return a context manager for emitting kernels that do not count as work of the program.

        They run in place of other kernels, which are counted.
        """
        ...


class PackedArguments:
    """Emits the code of a program that reads arguments from packed copies, and the code that fills these.

    Packed copies have their elements in the order in which a kernel reads them; the program's caller keeps
    them between runs.
    """

    def __init__(self, program: EntryEmitter) -> None:
        self._program = program
        self._fill, self._body = Block(), Block()
        self._packing: dict[int, tuple[PackedArgument, Callable[[Value, Value], None]]] = {}

    @property
    def arguments(self) -> tuple[PackedArgument, ...]:
        """Return the packed arguments in the order in which their copies are passed to the program.

        In the table of argument addresses, a word for the copy of each packed argument follows the addresses
        of all arguments.
        """
        return tuple(packed for packed, _ in self._packing.values())

    def argument_operand(self, i: HloInstruction) -> ArgumentOperand | None:
        """Return the argument, or the part of an argument, in whose memory the array of operand ``i`` lies.

        Returns None if the array lies in other memory, or if the argument is too small to pack, or donated.
        """
        buffer = self._program.assignment.buffer(i)
        memory = buffer.memory
        if memory.kind != "argument" or memory.size < LEAST_BYTES or memory.number in self._donated:
            return None
        if buffer is memory:
            return ArgumentOperand(memory.number, 1, i)
        is_stack = buffer.base is not None and buffer.base.find() is memory and self._is_part(buffer)
        return ArgumentOperand(memory.number, memory.size // buffer.size, i) if is_stack else None

    @cached_property
    def _donated(self) -> frozenset[int]:
        """The parameter numbers of donated arguments, not to be packed: results may take their memory."""
        config = self._program.hlo.config
        aliased = [alias.parameter_number for alias in config.aliases.values()]
        return frozenset([*aliased, *(number for number, _ in config.buffer_donors)])

    @cached_property
    def _slices(self) -> dict[Buffer, HloInstruction]:
        """For each buffer that lies inside another one as a dynamic slice, the dynamic-slice instruction.

        The start indices of the instruction determine where in the other buffer it lies.
        """
        views = [view for views in self._program.assignment.subviews.values() for view in views]
        return {view.find(): i for view, i in views if isinstance(i.operation, DynamicSlice)}

    def _is_part(self, buffer: Buffer) -> bool:
        """Return whether ``buffer`` lies inside another buffer as one of its equal, consecutive parts.

        It does if it is a contiguous dynamic slice that starts at a multiple of its own size.
        """
        instruction = self._slices.get(buffer)
        if instruction is None:
            return False
        part, array = part_of(instruction).dimensions, instruction.operands[0].shape.dimensions
        outer = next((d for d, size in enumerate(part) if size != 1), len(part) - 1)
        return part[outer:] == array[outer:]

    def address(
        self, operand: ArgumentOperand, part_bytes: int, form: str, pack: Callable[[Value, Value], None]
    ) -> Value | None:
        """Emit the computation of the address of an operand's packed copy; return the address.

        The address is null in a run whose caller keeps no copy. Returns None, with nothing emitted, if the
        program already reads the argument from a copy with a different order of elements.

        Args:
            operand: an argument, or one of the equal parts of an argument.
            part_bytes: the size of the packed copy of one part.
            form: a text that describes the order of the elements in the copy.
            pack: emits the packing of all parts, given the addresses of the argument and of its packed copy.
        """
        program, f = self._program, self._program.function
        digest = int.from_bytes(blake2b(form.encode(), digest_size=7).digest(), "little") | 1
        packed = PackedArgument(operand.argument, operand.parts * part_bytes, digest)
        if self._packing.setdefault(operand.argument, (packed, pack))[0] != packed:
            return None
        address = self._word(operand.argument) & -2
        if operand.parts == 1:
            return f.convert("inttoptr", address, PTR)
        first = program.argument(operand.argument)
        distance = f.convert("ptrtoint", program.pointer(operand.instruction), I64)
        distance = distance - f.convert("ptrtoint", first, I64)
        bytes = program.assignment.buffer(operand.instruction).size
        moved = address + distance.unsigned_divide(bytes) * part_bytes
        return f.convert("inttoptr", address.compare("eq", 0).select(address, moved), PTR)

    def _word(self, argument: int) -> Value:
        """Emit a load of the word by which the caller tells where the packed copy of an argument is.

        The word is 0 for no copy, else the address of the copy, plus 1 if the program is to fill it.
        """
        program, f = self._program, self._program.function
        number = len(program.assignment.arguments) + list(self._packing).index(argument)
        return f.load(I64, f.offset(program.arguments, number, PTR))

    def begin(self) -> None:
        """Emit a jump to the code that fills packed copies, and start the block that runs after that code.

        `finish` emits that code at the end of the program.
        """
        f = self._program.function
        f.jump(self._fill)
        f.start(self._body)

    def finish(self) -> None:
        """Emit the code that fills packed copies, to which `begin` has emitted a jump at the program's start.

        It fills the copies for which the caller asks, then jumps back to the program.
        """
        program, f, after = self._program, self._program.function, Block()
        f.jump(after)
        f.start(self._fill)
        for argument, (_, pack) in self._packing.items():
            word = self._word(argument)
            with f.when((word & 1).compare("ne", 0)), program.uncounted():
                pack(program.argument(argument), f.convert("inttoptr", word - 1, PTR))
        f.jump(self._body)
        f.start(after)
