"""Parsing of HLO text: modules, headerless computations, lone instructions.

The grammar is XLA's. `InstructionParser` parses instructions, and `FastLines` those lines that have the form
that XLA prints. Errors are ParseErrors with line, column and the name of a rule.
"""

from __future__ import annotations

import re
from typing import Final, cast

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.errors import HloError, ParseError
from hloom.foreign import is_like_hlo, text_refusal
from hloom.ir.collector import collector_paused
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.naming import NameUniquer
from hloom.ir.operation import REGISTRY, ProgramShape
from hloom.ir.stack_frames import StackFrames
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.text.fast_lines import FastLines
from hloom.text.header import parse_header_attributes
from hloom.text.instruction_parser import InstructionParser

_HEADER: Final = regex(r"HloModule(?![A-Za-z0-9_.\-:=])")
_ENTRY: Final = regex(r"ENTRY(?![A-Za-z0-9_.\-:=])")
_FILE_NAMES: Final = regex(r"FileNames(?![A-Za-z0-9_.\-:=])")
_FIRST_WORD: Final = regex(r"%?[A-Za-z_][A-Za-z0-9_.\-]*+:?")
_DIVIDER: Final = regex(r"^// -----[^\n]*$", re.M)


def parse_module(text: str, *, quick: bool = True) -> HloModule:
    """Parse the text of one module; raise ParseError with line, column and caret.

    There are three forms, as in XLA: a module with its ``HloModule`` header; computations without a header
    (the first starts with ``ENTRY``, or has no signature); a single instruction, whose operands become
    parameters. In addition to XLA, operands need not state shapes that follow from the result's, and a fusion
    or call may name an undefined computation, which becomes a custom call of that name. If ``quick`` is
    false, the general reader parses every line.
    """
    if not isinstance(cast("object", text), str):
        raise ParseError(f"HLO text must be a str, got {type(text).__name__}", rule="text.string")
    with collector_paused():
        return ModuleParser(text, quick=quick).module()


def parse_modules(text: str) -> list[HloModule]:
    """Parse a file of modules between lines ``// -----``; parts without a program are left out."""
    modules: list[HloModule] = []
    start = 0
    for end in (*(divider.start() for divider in _DIVIDER.finditer(text)), len(text)):
        # Earlier lines are kept as empty lines, so that errors have the line numbers of the file.
        part = "\n" * text.count("\n", 0, start) + text[start:end]
        if not Cursor(part).at_end():
            modules.append(parse_module(part))
        start = end
    return modules


class ModuleParser:
    """Parser of one module.

    Attributes:
        cursor: the position in the text.
        parser: the parser of instructions and bodies of computations.
        entry: the computation marked as the entry, once it has been parsed.
    """

    def __init__(
        self, text: str, *, quick: bool, instructions: type[InstructionParser] = InstructionParser
    ) -> None:
        self.cursor = Cursor(text)
        self.parser = instructions(self.cursor)
        if quick:
            self.parser.read_line = FastLines(self.parser).read
        self.entry: HloComputation | None = None
        self.entry_is_named_first = False

    def refuse(self, error: ParseError) -> None:
        """Raise an error after which reading could go on; a tolerant parser notes it instead."""
        raise error

    def module(self) -> HloModule:
        """Parse the whole text."""
        cursor = self.cursor
        try:
            cursor.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise cursor.error(
                "a surrogate code point, which UTF-8 cannot encode",
                rule="text.encoding",
                position=error.start,
            ) from None
        module = HloModule("")
        module.source = cursor.text
        start = cursor.start()
        if cursor.match(_HEADER):
            self.header(module)
            self.all_computations()
        else:
            self.without_header(module, start)
        self.assemble(module)
        module.name = module.name or f"module_{module.entry.name}"
        self.finish_config(module, start)
        return module

    def header(self, module: HloModule) -> None:
        """Parse the module's name and attributes, and the tables of stack frames."""
        cursor = self.cursor
        module.name = cursor.name("the module's name")
        parse_header_attributes(cursor, module.config)
        cursor.skip()
        if _FILE_NAMES.match(cursor.text, cursor.position):
            module.config.stack_frames = StackFrames.parse(cursor)

    def without_header(self, module: HloModule, start: int) -> None:
        """Parse computations or a single instruction; say what the text is if it is no HLO at all."""
        cursor = self.cursor
        try:
            if self.is_headerless():
                self.all_computations()
            else:
                self.single_instruction(module)
        except ParseError as error:
            if error.rule not in ("text.syntax", "text.opcode") or is_like_hlo(cursor.text):
                raise
            raise cursor.error(text_refusal(cursor.text), rule="text.no-hlo", position=start) from error

    def is_headerless(self) -> bool:
        """Return whether computations start here: ``ENTRY``, or any word before an opening brace."""
        cursor = self.cursor
        start = cursor.position
        if _ENTRY.match(cursor.text, start):
            return True
        opens = cursor.match(_FIRST_WORD) is not None and cursor.peek("{")
        cursor.position = start
        return opens

    # -- computations

    def all_computations(self) -> None:
        """Parse computations up to the end."""
        while True:
            self.computation()
            if self.cursor.at_end():
                break
        self.entry = self.entry or self.parser.computations[-1]

    def computation(self) -> None:
        """Parse ``ENTRY name (parameters) -> result { instructions }, execution_thread="main"``."""
        cursor = self.cursor
        entry_at = cursor.start()
        is_entry = cursor.match(_ENTRY) is not None
        start = cursor.start()
        name = cursor.name("a computation's name")
        signature = self.signature() if cursor.peek("(") else None
        computation = self.parser.body(name)
        computation.position = start
        self.check_parameters(computation, start)
        if signature is not None and not computation.root.shape.compatible(signature[0]):
            message = f"the result is stated as {signature[0]}, but the root is {computation.root.shape}"
            self.refuse(cursor.error(message, rule="computation.result-shape", position=signature[1]))
        self.execution_thread(computation)
        if is_entry and self.entry is not None:
            self.refuse(
                cursor.error("a module has only one ENTRY", rule="module.one-entry", position=entry_at)
            )
        elif is_entry:
            self.entry = computation
        if name in self.parser.pool:
            message = f"computation {name!r} is defined twice"
            self.refuse(cursor.error(message, rule="text.computation-twice", position=start))
        self.parser.pool[name] = computation

    def signature(self) -> tuple[Shape, int]:
        """Parse ``(name: shape, ...) -> shape``; return the result shape and its position."""
        cursor = self.cursor
        for _ in cursor.items("(", ")"):
            cursor.name("a parameter's name")
            cursor.shape()
        cursor.expect("->")
        start = cursor.start()
        return cursor.shape(), start

    def execution_thread(self, computation: HloComputation) -> None:
        cursor = self.cursor
        seen = False
        while cursor.accept(","):
            start = cursor.start()
            key = cursor.key()
            if key != "execution_thread" or seen:
                message = f"unexpected {key!r}: a computation has one attribute, execution_thread"
                raise cursor.error(message, rule="text.attribute", position=start)
            computation.execution_thread = cursor.string()
            seen = True

    def check_parameters(self, computation: HloComputation, position: int) -> None:
        try:
            _ = computation.parameters
        except HloError as error:
            wrong = self.cursor.error(error.message, rule=error.rule, position=position)
            wrong.__suppress_context__ = True
            self.refuse(wrong)

    # -- a single instruction

    def single_instruction(self, module: HloModule) -> None:
        """Parse ``name = shape opcode(shape operand, ...)``, or only the text after the ``=``."""
        cursor, parser = self.cursor, self.parser
        module.name = "_"
        module.config.is_scheduled = True
        computation = HloComputation("_")
        created: list[HloInstruction] = []

        def create_missing(name: str, shape: Shape) -> HloInstruction:
            operation = REGISTRY["parameter"](parameter_number=len(created))  # type: ignore[call-arg]
            parameter = HloInstruction(name or f"_{len(created)}", operation, shape)
            created.append(parameter)
            parser.names[parameter.name] = parameter
            return computation.add(parameter)

        parser.create_missing = create_missing
        start = cursor.start()
        if cursor.at_shape():
            instruction = parser.right_hand_side(computation, "_", start)
        else:
            instruction, _ = parser.instruction(computation, None)
        if not cursor.at_end():
            message = "expected the end after a single instruction (a module starts with 'HloModule')"
            raise cursor.error(message, rule="text.single-instruction")
        computation.root = instruction
        self.check_parameters(computation, start)
        parser.computations.append(computation)
        self.entry = computation
        self.entry_is_named_first = True

    # -- the module

    def assemble(self, module: HloModule) -> None:
        """Add the computations to the module and make all names unique, as XLA does."""
        computation_names, instruction_names = NameUniquer(), NameUniquer()
        unique = instruction_names.unique_of_sanitized
        computations = self.parser.computations
        for computation in (
            [computations[-1], *computations[:-1]] if self.entry_is_named_first else computations
        ):
            computation.name = computation_names.unique(computation.name)
            for instruction in computation.instructions:
                instruction.name = unique(instruction.name)
        for computation in computations:
            module.add(computation, entry=computation is self.entry)

    def finish_config(self, module: HloModule, start: int) -> None:
        """Set the entry layout if it is not stated; refuse aliases of outputs that do not exist."""
        config = module.config
        if config.entry_layout is None:
            program = module.entry.program_shape
            config.entry_layout = ProgramShape(program.parameters, program.result)
        for output in config.aliases:
            try:
                module.entry.root.shape.subshape(output)
            except HloError as error:
                message = f"input_output_alias of an output that does not exist: {error.message}"
                wrong = self.cursor.error(message, rule="module.alias-output", position=start)
                wrong.__suppress_context__ = True
                self.refuse(wrong)
