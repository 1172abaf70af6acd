"""The general parser of instructions and bodies of computations, which locates errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hloom.errors import HloError, did_you_mean, plural
from hloom.ir.codec import REQUIRED
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import KEYWORDS, Cursor
from hloom.ir.instruction import HloInstruction, check_arity
from hloom.ir.naming import NameUniquer, sanitized
from hloom.ir.operation import REGISTRY, Operation, ProgramShape, Role
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.text import asynchronous
from hloom.text.annotations import CONTROL_PREDECESSORS, NAMES, READERS
from hloom.text.attributes import Attributes
from hloom.text.operand_checks import problem
from hloom.text.result_shape import DERIVED, inferred_shape

_OPCODE: Final = regex(r"[a-z][A-Za-z0-9_\-]*+")
_LONGEST_OPCODE: Final = 100
"""Limit of the characters of an unknown opcode in its message."""
_CALL_AHEAD: Final = regex(r"[a-z][A-Za-z0-9_\-]*+[ \t\r\n]*+\(")
ROOT: Final = regex(r"ROOT(?![A-Za-z0-9_.\-:=])")
_DEEPEST: Final = 100


class Unfinished(Operation):
    """Placeholder for the operation of an instruction whose attributes are being parsed."""

    opcode = "unfinished"


UNFINISHED: Final = Unfinished()
NO_SHAPE: Final = Shape.token()


Kind: TypeAlias = type[Operation]
LineReader: TypeAlias = Callable[[HloComputation, bool], "tuple[HloInstruction, bool] | None"]


def _read_nothing(computation: HloComputation, has_root: bool) -> None:
    return None


class InstructionParser:
    """Parser of instructions at a cursor.

    Attributes:
        cursor: the position in the text.
        pool: the named computations parsed so far.
        computations: all computations in the order in which they ended, including unnamed and wrapped ones.
        names: the instructions of the computation being parsed.
        create_missing: makes an instruction for an undefined operand, where that is allowed.
        wrapped: the computations that an async-start calls.
        has_keyword_names: some instruction has a name such as ``%true``, which is a name only with its ``%``.
        read_line: a fast reader of whole lines; if it returns None, the line is parsed in general.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.pool: dict[str, HloComputation] = {}
        self.computations: list[HloComputation] = []
        self.names: dict[str, HloInstruction] = {}
        self.create_missing: Callable[[str, Shape], HloInstruction] | None = None
        self.wrapped: set[HloComputation] = set()
        self.has_keyword_names = False
        self.read_line: LineReader = _read_nothing
        self._anonymous: NameUniquer | None = None
        self._all_names: list[dict[str, HloInstruction]] = []
        self._depth = 0
        self._callee: ProgramShape | None = None

    # -- bodies

    def body(self, name: str) -> HloComputation:
        """Parse a computation from its instructions in braces."""
        cursor = self.cursor
        cursor.expect("{")
        computation = HloComputation(name)
        outer, self.names = self.names, {}
        missing, self.create_missing = self.create_missing, None
        self._all_names.append(self.names)
        self._enter()
        root: HloInstruction | None = None
        last: HloInstruction | None = None
        while True:
            line = self.read_line(computation, root is not None)
            if line is None:
                if last is not None and cursor.accept("}"):
                    break
                line = self.instruction(computation, root)
            last, is_root = line
            root = last if is_root else root
        computation.root = root or last
        self.names, self.create_missing = outer, missing
        self._depth -= 1
        self.computations.append(computation)
        return computation

    def instruction(
        self, computation: HloComputation, root: HloInstruction | None
    ) -> tuple[HloInstruction, bool]:
        """Parse ``ROOT name = ...`` and return the instruction and whether it is the root."""
        cursor = self.cursor
        start = cursor.start()
        is_root = cursor.match(ROOT) is not None
        if is_root and root is not None:
            raise cursor.error("a computation has only one ROOT", rule="computation.one-root", position=start)
        start = cursor.start()
        name = cursor.name("an instruction's name")
        cursor.expect("=")
        return self.right_hand_side(computation, name, start), is_root

    # -- one instruction

    def right_hand_side(
        self, computation: HloComputation, name: str, start: int, *, nested: bool = False
    ) -> HloInstruction:
        """Parse the text after ``name =``; ``nested`` for an operand that is an instruction itself."""
        cursor = self.cursor
        self._enter()
        try:
            instruction = self._right_hand_side(computation, name, nested)
        except HloError as error:
            raise cursor.locate(error, start).at(instruction=name or None) from error.__cause__
        self._depth -= 1
        if nested:
            instruction.name = self._anonymous_name(instruction.opcode)
        elif name in self.names:
            message = f"instruction {name!r} is defined twice"
            raise cursor.error(message, rule="text.instruction-twice", position=start)
        elif sanitized(name) != name:
            message = f"{name!r} is not a well-formed name; {sanitized(name)!r} is"
            raise cursor.error(message, rule="text.name", position=start)
        self.has_keyword_names |= name in KEYWORDS
        instruction.position = start
        self.names[instruction.name] = instruction
        return computation.add(instruction)

    def _right_hand_side(self, computation: HloComputation, name: str, nested: bool) -> HloInstruction:
        cursor = self.cursor
        shape = cursor.shape() if cursor.at_shape() else None
        opcode_at = cursor.start()
        word = cursor.take(_OPCODE, "an opcode")[0]
        opcode, wrapped = asynchronous.split_opcode(word)
        if opcode not in REGISTRY or (wrapped is not None and wrapped not in REGISTRY):
            message = f"unknown opcode {word[:_LONGEST_OPCODE]!r}{did_you_mean(word, REGISTRY)}"
            raise cursor.error(message, rule="text.opcode", position=opcode_at)
        cls = REGISTRY[opcode]
        if shape is None and not cls.infers:
            message = f"the shape of {word} must be stated"
            raise cursor.error(message, rule="text.shape-stated", position=opcode_at)
        cursor.expect("(")
        fields = cls.parse_operands(cursor, shape)
        likely = None if shape is None or nested else cls.operand_of(shape)
        operands = [] if fields is not None else self._operands(computation, likely)
        cursor.expect(")")
        instruction = HloInstruction(name, UNFINISHED, shape or NO_SHAPE, operands)
        target = REGISTRY[wrapped] if wrapped is not None and opcode == asynchronous.START else cls
        read = Attributes(dict(fields or {}), {})
        if not nested:
            read = self._attributes(instruction, cls, target, read, short=wrapped is not None)
        if target is cls:
            self._finish(instruction, cls, read, opcode_at)
        else:
            asynchronous.wrap(self, instruction, target, read, opcode_at)
        derived = DERIVED.get(type(instruction.operation))
        if derived is not None:
            instruction.shape = derived(instruction)
        elif shape is None:
            instruction.shape = inferred_shape(instruction)
        if instruction.shape is not shape and instruction.sharding is not None:
            instruction.sharding = instruction.sharding.for_shape(instruction.shape)
        wrong = problem(instruction)
        if wrong is not None:
            raise cursor.error(wrong[1], rule=wrong[0], position=opcode_at)
        if opcode in asynchronous.OPCODES:
            asynchronous.check(self, instruction, wrapped, read, opcode_at)
        return instruction

    def _finish(
        self, instruction: HloInstruction, cls: type[Operation], read: Attributes, position: int
    ) -> None:
        """Set the operation and called computations of an instruction whose attributes have been parsed."""
        instruction.operation, instruction.called_computations = self.made(cls, read, position)
        try:
            check_arity(cls, len(instruction.operands))
        except HloError as error:
            raise self.cursor.error(error.message, rule=error.rule, position=position) from None
        shapes = [operand.shape for operand in instruction.operands]
        instruction.operation = instruction.operation.canonical(*shapes)

    def made(
        self, cls: type[Operation], read: Attributes, position: int
    ) -> tuple[Operation, tuple[HloComputation, ...]]:
        """Return the operation and the called computations by role; raise ParseError if one is missing."""
        required = [a.name for a in cls.attributes if a.default is REQUIRED and a.field not in read.fields]
        required += [role.name for role in cls.roles if role.required and role.name not in read.called]
        if required:
            message = f"{cls.opcode} needs {', '.join(required)}"
            raise self.cursor.error(message, rule="text.attribute-missing", position=position)
        called = tuple(c for role in cls.roles for c in read.called.get(role.name, ()))
        return cls(**read.fields), called

    def _anonymous_name(self, opcode: str) -> str:
        """Return a name for an unnamed instruction that differs from all names parsed so far."""
        if self._anonymous is None:
            self._anonymous = NameUniquer()
        while True:
            name = self._anonymous.unique(f"{opcode}.anon")
            if not any(name in names for names in self._all_names):
                return name

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.cursor.error(f"more than {_DEEPEST} levels of nesting", rule="text.depth")

    # -- operands

    def _operands(self, computation: HloComputation, likely: Shape | None) -> list[HloInstruction]:
        """Parse operands up to the closing parenthesis; ``likely`` is the shape of those that state none."""
        cursor = self.cursor
        operands: list[HloInstruction] = []
        if cursor.peek(")"):
            return operands
        while True:
            if not cursor.peek(",") and not cursor.peek(")"):  # XLA accepts superfluous commas
                operands.append(self._operand(computation, likely))
            if not cursor.accept(","):
                return operands

    def _operand(self, computation: HloComputation, likely: Shape | None) -> HloInstruction:
        """Parse a name with or without its shape before it, or an instruction without attributes."""
        cursor = self.cursor
        start = cursor.start()
        shape = cursor.shape() if cursor.at_shape() else None
        cursor.skip()
        if _CALL_AHEAD.match(cursor.text, cursor.position):
            cursor.position = start
            return self.right_hand_side(computation, "", start, nested=True)
        named_at = cursor.position
        if self.create_missing is not None and shape is not None and (cursor.peek(",") or cursor.peek(")")):
            return self.create_missing("", shape)
        name = cursor.name("an operand")
        operand = self.names.get(name)
        if operand is None:
            expected = likely if shape is None else shape
            if self.create_missing is not None and expected is not None:
                return self.create_missing(name, expected)
            message = f"instruction {name!r} does not exist{did_you_mean(name, self.names)}"
            raise cursor.error(message, rule="text.operand", position=named_at)
        while (index := cursor.element_index()) is not None:
            operand = self.element(computation, operand, name, index, named_at)
            name = f"{name}#{index}"
        if shape is not None and not shape.compatible(operand.shape):
            message = f"the operand is stated as {shape}, but {name!r} is {operand.shape}"
            raise cursor.error(message, rule="text.operand-shape", position=start)
        return operand

    def element(
        self, computation: HloComputation, value: HloInstruction, name: str, index: int, position: int
    ) -> HloInstruction:
        """Return the instruction for ``name#index``: one for each element of a value, made at its first use.

        It is in `names` under that text, which is not the name of any other instruction.
        """
        existing = self.names.get(f"{name}#{index}")
        if existing is not None:
            return existing
        shape = value.shape
        if not shape.is_tuple or index >= len(shape.tuple_shapes):
            why = plural(len(shape.tuple_shapes), "element") if shape.is_tuple else f"the shape {shape}"
            message = f"{name}#{index} does not exist: {name!r} has {why}"
            raise self.cursor.error(message, rule="text.element", position=position)
        operation = REGISTRY["get-tuple-element"](index=index)  # type: ignore[call-arg]
        element = HloInstruction(f"{value.name}_{index}", operation, shape.tuple_shapes[index], [value])
        self.names[f"{name}#{index}"] = element
        return computation.add(element)

    # -- attributes

    def _attributes(
        self, instruction: HloInstruction, cls: Kind, target: Kind, read: Attributes, *, short: bool
    ) -> Attributes:
        """Parse attributes in any order, each at most once, into ``read`` or the instruction.

        The short form of an async-start takes the attributes of the wrapped operation in addition to its own.
        """
        cursor = self.cursor
        by_name = {a.name: a for a in (*cls.attributes, *target.attributes) if a.field not in read.fields}
        roles = {role.name: role for role in target.roles}
        chained = cls.opcode in asynchronous.CHAINED
        if chained and not short:
            roles["calls"] = Role("calls")
        seen: set[str] = set()
        while cursor.accept(","):
            start = cursor.start()
            key = cursor.key()
            if key in seen:
                message = f"attribute {key!r} is given twice"
                raise cursor.error(message, rule="text.attribute-twice", position=start)
            seen.add(key)
            if key in by_name:
                read.fields[by_name[key].field] = by_name[key].codec.parse(cursor)
            elif key in roles:
                self._callee = self._signature(instruction, target)
                read.called[key] = self._computations(many=roles[key].many)
            elif key in READERS:
                READERS[key](cursor, instruction)
            elif key == CONTROL_PREDECESSORS:
                self._control_predecessors(instruction)
            elif chained and key == "async_execution_thread":
                read = read._replace(thread=cursor.string())
            else:
                allowed = sorted({*by_name, *roles, *NAMES})
                message = (
                    f"unexpected attribute {key!r}; {cls.opcode} takes {', '.join(allowed)}"
                    f"{did_you_mean(key, allowed)}"
                )
                raise cursor.error(message, rule="text.attribute", position=start)
        return read

    def _signature(self, instruction: HloInstruction, target: type[Operation]) -> ProgramShape | None:
        """Return the signature of a computation that a lone instruction calls by name only."""
        if self.create_missing is None or instruction.shape is NO_SHAPE:
            return None
        return target.callee_of([operand.shape for operand in instruction.operands], instruction.shape)

    def _control_predecessors(self, instruction: HloInstruction) -> None:
        """Parse ``{%a, %b}``, which has at least one name."""
        cursor = self.cursor
        cursor.expect("{")
        while True:
            start = cursor.start()
            name = cursor.name("an instruction")
            if name not in self.names:
                message = f"instruction {name!r} does not exist{did_you_mean(name, self.names)}"
                raise cursor.error(message, rule="text.operand", position=start)
            self.names[name].add_control_dependency_to(instruction)
            if not cursor.accept(","):
                break
        cursor.expect("}")

    def _computations(self, *, many: bool) -> list[HloComputation]:
        """Parse a computation or, if ``many``, any number of them in braces."""
        cursor = self.cursor
        if not many:
            return [self._computation()]
        return [self._computation() for _ in cursor.items()]

    def _computation(self) -> HloComputation:
        """Parse the name of a computation that was defined before, or a body in braces."""
        cursor = self.cursor
        if cursor.peek("{"):
            return self.body("_")
        start = cursor.position
        name = cursor.name("a computation")
        if name not in self.pool and self._callee is not None:
            self.pool[name] = named_only(name, self._callee)
            self.computations.append(self.pool[name])
        if name not in self.pool:
            message = f"computation {name!r} is not defined before this one{did_you_mean(name, self.pool)}"
            raise cursor.error(message, rule="text.computation", position=start)
        return self.pool[name]


def named_only(name: str, signature: ProgramShape) -> HloComputation:
    """Return a stand-in for a computation whose body is not in the text: a custom call of the same name."""
    computation = HloComputation(name)
    parameters = [
        computation.add(HloInstruction(f"p{number}", REGISTRY["parameter"](parameter_number=number), shape))  # type: ignore[call-arg]
        for number, shape in enumerate(signature.parameters)
    ]
    call = REGISTRY["custom-call"](custom_call_target=name)  # type: ignore[call-arg]
    computation.root = computation.add(HloInstruction("r", call, signature.result, parameters))
    return computation
