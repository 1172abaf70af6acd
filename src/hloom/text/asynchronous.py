"""The short form of asynchronous operations: ``custom-call-start(x), custom_call_target="f"``.

It denotes an ``async-start`` that calls a computation with one custom call in it. The ``-update`` and
``-done`` that follow name the same operation and have none of its attributes.
"""

from __future__ import annotations

from typing import Final, Protocol

from hloom.ir.computation import HloComputation
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction, check_arity
from hloom.ir.operation import REGISTRY, Operation
from hloom.text.attributes import Attributes

START: Final = "async-start"
CHAINED: Final = frozenset(("async-update", "async-done"))
OPCODES: Final = CHAINED | {START}
_SUFFIXES: Final = {"-start": START, "-update": "async-update", "-done": "async-done"}


def split_opcode(word: str) -> tuple[str, str | None]:
    """Return the opcode that a word denotes and, for the short form, the wrapped opcode."""
    if word not in REGISTRY:
        for suffix, opcode in _SUFFIXES.items():
            if word.endswith(suffix):
                return opcode, word.removesuffix(suffix)
    return word, None


def short_opcode(instruction: HloInstruction) -> str | None:
    """Return the opcode of the short form, or None if only the full form is exact."""
    wrapped = wrapped_instruction(instruction)
    if wrapped is None:
        return None
    for suffix, opcode in _SUFFIXES.items():
        if opcode == instruction.opcode:
            return wrapped.opcode + suffix
    return None


def wrapped_instruction(instruction: HloInstruction) -> HloInstruction | None:
    """Return the wrapped instruction of an asynchronous one, or None if it has no short form."""
    start = chain_start(instruction)
    return start.called_computations[0].root if start is not None and is_short(start) else None


def chain_start(instruction: HloInstruction) -> HloInstruction | None:
    """Return the async-start of an asynchronous chain, or None if the chain begins with something else."""
    while instruction.opcode in CHAINED and instruction.operands:
        instruction = instruction.operands[0]
    return instruction if instruction.opcode == START else None


def is_short(start: HloInstruction) -> bool:
    """Return whether an async-start has a short form.

    It does if it calls a single operation that shares no stated attribute with the async-start.
    """
    (computation,) = start.called_computations
    if not is_single(computation):
        return False
    names = {attribute.name for attribute in computation.root.operation.attributes}
    return all(
        getattr(start.operation, attribute.field) == attribute.default
        for attribute in start.operation.attributes
        if attribute.name in names
    )


def is_single(computation: HloComputation) -> bool:
    """Return whether a computation has only parameters besides its root."""
    return all(i.opcode == "parameter" or i is computation.root for i in computation.instructions)


# -- reading


class Parser(Protocol):
    """The parts of the instruction parser that reading asynchronous instructions needs.

    Attributes:
        cursor: the place in the text.
        computations: all computations, in the order in which their bodies ended.
        wrapped: the computations that an async-start calls.
    """

    cursor: Cursor
    computations: list[HloComputation]
    wrapped: set[HloComputation]

    def made(
        self, cls: type[Operation], read: Attributes, position: int
    ) -> tuple[Operation, tuple[HloComputation, ...]]:
        """Return the operation and the called computations in the order of the roles."""
        ...


def wrap(
    parser: Parser,
    instruction: HloInstruction,
    wrapped: type[Operation],
    read: Attributes,
    position: int,
) -> None:
    """Replace an instruction, parsed with attributes of the wrapped operation, by an async-start of it."""
    start = REGISTRY[START]
    _check_form(parser, instruction, position)
    start_fields = {a.field for a in start.attributes} - {a.field for a in wrapped.attributes}
    inner = read._replace(fields={f: v for f, v in read.fields.items() if f not in start_fields})
    operation, called = parser.made(wrapped, inner, position)
    check_arity(wrapped, len(instruction.operands))
    computation = HloComputation("async_wrapped")
    operation = operation.canonical(*(operand.shape for operand in instruction.operands))
    parameters = [
        computation.add(
            HloInstruction("async_param", REGISTRY["parameter"](parameter_number=number), operand.shape)  # type: ignore[call-arg]
        )
        for number, operand in enumerate(instruction.operands)
    ]
    root = HloInstruction(wrapped.opcode, operation, instruction.shape.tuple_shapes[1], parameters, called)
    computation.add(root, root=True)
    parser.computations.append(computation)
    instruction.operation = start(**{f: v for f, v in read.fields.items() if f in start_fields})
    instruction.called_computations = (computation,)


def check(
    parser: Parser,
    instruction: HloInstruction,
    wrapped: str | None,
    read: Attributes,
    position: int,
) -> None:
    """Refuse inconsistent chains; copy the thread and annotations to the wrapped operation."""
    computation = _start(parser, instruction, position) if instruction.opcode == START else None
    if computation is None:
        computation = _continuation(parser, instruction, wrapped, read, position)
    root = computation.root
    root.metadata = instruction.metadata or root.metadata
    root.original_value = instruction.original_value or root.original_value
    root.backend_config = instruction.backend_config or root.backend_config
    root.frontend_attributes = instruction.frontend_attributes or root.frontend_attributes
    root.statistics = instruction.statistics or root.statistics


def _start(parser: Parser, instruction: HloInstruction, position: int) -> HloComputation:
    _check_form(parser, instruction, position)
    (computation,) = instruction.called_computations
    if computation in parser.wrapped:
        message = f"computation {computation.name!r} is called by two async-starts"
        raise parser.cursor.error(message, rule="async-start.one-caller", position=position)
    parser.wrapped.add(computation)
    set_thread(computation, instruction.operation.async_execution_thread)  # type: ignore[attr-defined]
    return computation


def _check_form(parser: Parser, instruction: HloInstruction, position: int) -> None:
    shape = instruction.shape
    if not shape.is_tuple or len(shape.tuple_shapes) < 2 or not shape.tuple_shapes[0].is_tuple:
        message = f"the shape of an async-start must be ((operands), result, contexts ...), got {shape}"
        raise parser.cursor.error(message, rule="async-start.shape-form", position=position)


def _continuation(
    parser: Parser,
    instruction: HloInstruction,
    wrapped: str | None,
    read: Attributes,
    position: int,
) -> HloComputation:
    """Return the computation of the chain that an async-update or async-done continues."""
    before = instruction.operands[0]
    if before.opcode not in OPCODES or before.opcode == "async-done":
        message = f"the operand of {instruction.opcode} must be an async-start or async-update"
        raise parser.cursor.error(message, rule="async.chain", position=position)
    if instruction.opcode == "async-update" and instruction.shape != before.shape:
        message = f"async-update must have its operand's shape {before.shape}, got {instruction.shape}"
        raise parser.cursor.error(message, rule="async-update.shape", position=position)
    start = chain_start(before)
    assert start is not None
    (computation,) = start.called_computations
    thread: str = start.operation.async_execution_thread  # type: ignore[attr-defined]
    if wrapped is not None and computation.root.opcode != wrapped:
        message = f"the chain runs {computation.root.opcode}, not {wrapped}"
        raise parser.cursor.error(message, rule="async.wrapped-opcode", position=position)
    if read.thread is not None and read.thread != thread:
        message = f"the chain runs on thread {thread!r}, not {read.thread!r}"
        raise parser.cursor.error(message, rule="async.thread", position=position)
    if read.called and read.called["calls"] != [computation]:
        message = f"the chain calls {computation.name!r}, not {read.called['calls'][0].name!r}"
        raise parser.cursor.error(message, rule="async.calls", position=position)
    return computation


def set_thread(computation: HloComputation, thread: str) -> None:
    """Set the execution thread of a computation and of all computations that it calls."""
    pending = [computation]
    seen: set[HloComputation] = set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        current.execution_thread = thread
        for instruction in current.instructions:
            if instruction.opcode == START:
                instruction.operation = instruction.operation.replace(async_execution_thread=thread)
            pending.extend(instruction.called_computations)
