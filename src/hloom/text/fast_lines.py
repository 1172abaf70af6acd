"""A fast reader of instruction lines in the form that XLA's printer writes.

One regular expression matches the whole line; shapes, metadata and sets of attributes are cached by their
text. A line of any other form, or with an error, is left to the general reader, which locates errors. Both
readers give the same result for a line that this one accepts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hloom.errors import HloError
from hloom.ir.codec import REQUIRED, DeclaredAttribute
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import KEYWORDS, TYPE_NAMES, Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata
from hloom.ir.operation import REGISTRY, Operation, Role
from hloom.ir.sharding import Sharding
from hloom.operations.structure import Constant
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.shape.shape_parser import parse_shape
from hloom.text import asynchronous
from hloom.text.annotations import CONTROL_PREDECESSORS, READERS
from hloom.text.instruction_parser import InstructionParser
from hloom.text.operand_checks import problem
from hloom.text.result_shape import DERIVED

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_KEY: Final = r"[A-Za-z_][A-Za-z0-9_\-]*+"
_QUOTED: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACES_1: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED})*+\}}"
_BRACES_2: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED}|{_BRACES_1})*+\}}"
_BRACES_3: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED}|{_BRACES_2})*+\}}"
_IOTA: Final = r"\[[0-9,]++\]<=\[[0-9,]++\](?:T\([0-9,]++\))?+"
_VALUE: Final = rf"(?:[^\s,{{}}\"()\[\]/]++|{_BRACES_3}|{_QUOTED}|{_IOTA})"
_PARENS_1: Final = r"\([^()\n]*+\)"
_PARENS_2: Final = rf"\((?:[^()\n]++|{_PARENS_1})*+\)"
_PARENS_3: Final = rf"\((?:[^()\n]++|{_PARENS_2})*+\)"
_SHAPE: Final = rf"(?:[a-z][a-z0-9]*+\[[0-9,<=?]*+\](?:\{{[^{{}}\s/]*+\}})?+|{_PARENS_3})"
_LINE: Final = regex(
    rf"[ \t\r\n]*+(ROOT )?+%?({_NAME}) = ({_SHAPE}) ([a-z][a-z0-9\-]*+)"
    rf"\(((?:[^()\"\n]++|{_PARENS_3})*+)\)"
    rf"((?:, (?!metadata=){_KEY}={_VALUE})*+)(?:, metadata=({_BRACES_2}))?+((?:, {_KEY}={_VALUE})*+)"
    r"[ \t\r]*+\n"
    r"(?=[ \t\r\n]*+[A-Za-z_%}])"  # and no attribute continues on the next line
)
_ATTRIBUTE: Final = regex(rf", ({_KEY})=({_VALUE})")
_SHAPED_OPERAND: Final = regex(rf"(?:/\*index=[0-9]++\*/)?+({_SHAPE}) %?({_NAME}(?:#[0-9]++)*+)(?:, |$)")
_ELEMENTS: Final = regex(rf"({_NAME})((?:#[0-9]{{1,18}}+)++)")
_COMPUTATIONS: Final = regex(rf"%?{_NAME}|\{{(?:%?{_NAME}(?:, %?{_NAME})*+)?+\}}")
_RESERVED: Final = KEYWORDS | TYPE_NAMES


class _Declaration(NamedTuple):
    """Facts about an operation's class, computed once."""

    cls: type[Operation]
    least: int
    most: int
    in_parentheses: bool
    attributes: dict[str, DeclaredAttribute]
    roles: dict[str, Role]
    has_canonical_form: bool


class _Plan(NamedTuple):
    """The parsed form of a text of attributes."""

    operation: Operation
    called: tuple[HloComputation, ...]
    annotations: list[tuple[str, str]]


class FastLines:
    """The fast reader of a parser; `read` is its ``read_line``."""

    def __init__(self, parser: InstructionParser) -> None:
        self.parser = parser
        self._declarations: dict[str, _Declaration | None] = {}
        self._plans: dict[tuple[str, str], _Plan] = {}
        self._metadata: dict[str, OpMetadata] = {}
        self._shardings: dict[str, Sharding] = {}
        self._match = _LINE.match

    def read(self, computation: HloComputation, has_root: bool) -> tuple[HloInstruction, bool] | None:
        """Parse the line here and add its instruction; return it and whether it is the root, or None."""
        parser = self.parser
        cursor = parser.cursor
        line = self._match(cursor.text, cursor.position)
        if line is None:
            return None
        root, name, shape, opcode, operands, attributes, metadata, others = line.groups()
        if (root and has_root) or name in parser.names or parser.has_keyword_names:
            return None
        if name in _RESERVED or name.startswith("__"):
            return None
        declaration = self._declarations.get(opcode) or self._declaration(opcode)
        if declaration is None:
            return None
        try:
            about = self._metadata_of(metadata)
            if "#" in operands and not declaration.in_parentheses:
                self._add_elements(computation, operands)
            instruction = self._instruction(
                declaration, name, parse_shape(shape), operands, attributes + others
            )
        except (HloError, KeyError):
            return None
        if instruction is None:
            return None
        start = line.start(2)
        instruction.position = start - (cursor.text[start - 1] == "%")
        instruction.metadata = about
        parser.names[name] = instruction
        computation.add(instruction)
        cursor.position = line.end()
        return instruction, root is not None

    def _metadata_of(self, text: str | None) -> OpMetadata | None:
        if text is None:
            return None
        metadata = self._metadata.get(text)
        if metadata is None:
            metadata = OpMetadata.parse_printed(text) or _whole(Cursor(text), OpMetadata.parse)
            self._metadata[text] = metadata
        return metadata

    def _declaration(self, opcode: str) -> _Declaration | None:
        cls = REGISTRY.get(opcode)
        if cls is None or opcode in asynchronous.OPCODES or (cls in DERIVED and cls is not Constant):
            return None
        names = cls.operand_names
        varies = bool(names) and names[-1].startswith("*")
        declaration = _Declaration(
            cls,
            len(names) - varies,
            1 << 62 if varies else len(names),
            cls.parse_operands is not Operation.parse_operands
            and cls.parse_operands.__func__ is not Operation.parse_operands.__func__,  # type: ignore[attr-defined]
            {a.name: a for a in cls.attributes},
            {role.name: role for role in cls.roles},
            cls.canonical is not Operation.canonical,
        )
        self._declarations[opcode] = declaration
        return declaration

    def _instruction(
        self, declaration: _Declaration, name: str, shape: Shape, operand_text: str, attribute_text: str
    ) -> HloInstruction | None:
        if declaration.in_parentheses:
            if declaration.cls is Constant and not _is_plain(shape):
                return None  # the constant would have another shape
            fields = self._fields(declaration.cls, operand_text, shape)
            operands: list[HloInstruction] = []
            plan = self._plan(declaration, attribute_text, fields)
        else:
            operands = self._operands(operand_text) if operand_text else []
            if not declaration.least <= len(operands) <= declaration.most:
                return None
            plan = self._plans.get((declaration.cls.opcode, attribute_text))
            if plan is None:
                plan = self._plan(declaration, attribute_text, {})
                self._plans[declaration.cls.opcode, attribute_text] = plan
        operation = plan.operation
        if declaration.has_canonical_form:
            operation = operation.canonical(*(operand.shape for operand in operands))
        instruction = HloInstruction(name, operation, shape, operands, plan.called)
        try:
            for key, value in plan.annotations:
                self._annotate(instruction, key, value)
            if problem(instruction):
                raise KeyError(name)
        except (HloError, KeyError):
            instruction.drop_control_dependencies()
            instruction.detach()
            raise
        return instruction

    def _add_elements(self, computation: HloComputation, text: str) -> None:
        """Add the elements of tuples that operands name; `_operands` looks them up as any other name."""
        parser = self.parser
        position = parser.cursor.position
        for name, indices in _ELEMENTS.findall(text):
            value = parser.names[name]
            for index in indices[1:].split("#"):
                value = parser.element(computation, value, name, int(index), position)
                name = f"{name}#{index}"

    def _operands(self, text: str) -> list[HloInstruction]:
        """Return operands between single blanks and commas; raise KeyError for any other text."""
        names = self.parser.names
        if "[" not in text and "*" not in text:
            return [names[o.removeprefix("%")] for o in text.split(", ")]
        if "[" not in text:
            plain = (o.partition("*/")[2] if o.startswith("/*index=") else o for o in text.split(", "))
            return [names[o.removeprefix("%")] for o in plain]
        operands: list[HloInstruction] = []
        position = 0
        while position < len(text):
            match = _SHAPED_OPERAND.match(text, position)
            if match is None:
                raise KeyError(text)
            operand = names[match[2]]
            shape = parse_shape(match[1])
            if shape is not operand.shape and not shape.compatible(operand.shape):
                raise KeyError(text)
            operands.append(operand)
            position = match.end()
        if text.endswith(", "):
            raise KeyError(text)
        return operands

    def _fields(self, cls: type[Operation], text: str, shape: Shape) -> dict[str, Any]:
        if "//" in text:
            raise KeyError(text)  # the comment may extend beyond the parenthesis
        cursor = Cursor(text)
        fields = cls.parse_operands(cursor, shape)
        if fields is None or not cursor.at_end():
            raise KeyError(text)
        return fields

    def _plan(self, declaration: _Declaration, text: str, fields: dict[str, object]) -> _Plan:
        """Return the parsed attributes; raise KeyError or HloError if the general reader is needed."""
        called: dict[str, list[HloComputation]] = {}
        annotations: list[tuple[str, str]] = []
        pairs = _ATTRIBUTE.findall(text)
        if len({key for key, _ in pairs}) < len(pairs):
            raise KeyError(text)
        for key, value in pairs:
            attribute = declaration.attributes.get(key)
            if attribute is not None:
                if attribute.field in fields:
                    raise KeyError(key)
                fields[attribute.field] = _whole(Cursor(value), attribute.codec.parse)
            elif key in declaration.roles:
                called[key] = self._computations(value, many=declaration.roles[key].many)
            elif (key in READERS and key != "metadata") or key == CONTROL_PREDECESSORS:
                annotations.append((key, value))
            else:
                raise KeyError(key)
        for attribute in declaration.attributes.values():
            if attribute.default is REQUIRED and attribute.field not in fields:
                raise KeyError(attribute.name)
        for role in declaration.roles.values():
            if role.required and role.name not in called:
                raise KeyError(role.name)
        computations = tuple(c for name in declaration.roles for c in called.get(name, ()))
        return _Plan(declaration.cls(**fields), computations, annotations)

    def _computations(self, value: str, *, many: bool) -> list[HloComputation]:
        """Return the computations of ``%name`` or ``{%name, %other}``."""
        if _COMPUTATIONS.fullmatch(value) is None or many is not (value[0] == "{"):
            raise KeyError(value)
        names = value.strip("{}").split(", ") if value != "{}" else []
        return [self.parser.pool[name.removeprefix("%")] for name in names]

    def _annotate(self, instruction: HloInstruction, key: str, value: str) -> None:
        if key == "sharding":
            sharding = self._shardings.get(value)
            if sharding is None:
                sharding = self._shardings[value] = _whole(Cursor(value), Sharding.parse)
            instruction.sharding = sharding.for_shape(instruction.shape)
        elif key == CONTROL_PREDECESSORS:
            if _COMPUTATIONS.fullmatch(value) is None or value[0] != "{" or value == "{}":
                raise KeyError(value)
            names = self.parser.names
            for before in [names[name.removeprefix("%")] for name in value[1:-1].split(", ")]:
                before.add_control_dependency_to(instruction)
        else:
            cursor = Cursor(value)
            READERS[key](cursor, instruction)
            if not cursor.at_end():
                raise KeyError(value)


def _whole(cursor: Cursor, parse: Any) -> Any:
    """Return the value that ``parse`` reads from the whole text; raise KeyError if some text is left."""
    value = parse(cursor)
    if not cursor.at_end():
        raise KeyError(cursor.text)
    return value


def _is_plain(shape: Shape) -> bool:
    """Return whether a constant has exactly the stated shape: a static array without an element size."""
    return shape.layout is not None and not shape.layout.element_size_in_bits and not shape.is_dynamic
