"""HLO text in: a general reader, and a fast one for the lines that XLA's printer writes.

Both derive from the declarations: an attribute is read by its codec. The fast reader recognizes a whole
instruction line with one regular expression and remembers operations and shapes by their text; whatever it
does not recognize, or gets wrong, is read again by the general reader, which gives the errors their place.
"""

from __future__ import annotations

import re
from typing import Any, Final

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import HloError
from hloom.ir.codec import REQUIRED
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata, parse_frontend_attributes
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY, Operation, ProgramShape
from hloom.ir.sharding import Sharding
from hloom.shape.shape import Shape

_QUOTED: Final = r'"(?:[^"\\]++|\\.)*+"'
_BRACES_1: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED})*+\}}"
_BRACES_2: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED}|{_BRACES_1})*+\}}"
_BRACES_3: Final = rf"\{{(?:[^{{}}\"]++|{_QUOTED}|{_BRACES_2})*+\}}"
_VALUE: Final = rf"(?:{_QUOTED}|{_BRACES_3}|[^\s,{{}}\"()\[\]]++)"
_PARENS_1: Final = r"\([^()\n]*+\)"
_PARENS_2: Final = rf"\((?:[^()\n]++|{_PARENS_1})*+\)"
_PARENS_3: Final = rf"\((?:[^()\n]++|{_PARENS_2})*+\)"
_SHAPE: Final = rf"(?:[a-z]\w*+\[[^\]\n]*+\](?:\{{[^{{}}\n]*+\}})?+|{_PARENS_3})"
_LINE: Final = re.compile(
    rf"[ \t]*+(ROOT )?%?([\w.\-]++) = ({_SHAPE}) ([a-z][\w\-]*+)\(([^()\"\n\[]*+)\)((?:, [\w\-]++={_VALUE})*+)[ \t]*+\n"
)
_ATTRIBUTE: Final = re.compile(rf", ([\w\-]++)=({_VALUE})")
_OPCODE: Final = re.compile(r"[a-z][a-z0-9\-]*")
_KEY: Final = re.compile(r"[A-Za-z_][\w\-]*")
_ANNOTATIONS: Final = frozenset(
    ("metadata", "sharding", "frontend_attributes", "backend_config", "control-predecessors", "origin", "statistics")
)


def parse_module(text: str) -> HloModule:
    """Parse the text of one module; raises ParseError with line, column and caret."""
    return _ModuleParser(text).module()


class _ModuleParser:
    """Parses one module."""

    def __init__(self, text: str) -> None:
        self.cursor = Cursor(text)
        self.computations: dict[str, HloComputation] = {}
        self.names: dict[str, HloInstruction] = {}
        self.operations: dict[tuple[str, str], Operation] = {}
        self.metadata: dict[str, OpMetadata] = {}

    # -- module and computations

    def module(self) -> HloModule:
        cursor = self.cursor
        cursor.expect("HloModule")
        module = HloModule(cursor.name("the module's name"))
        while cursor.accept(","):
            self.header_attribute(module)
        while not cursor.at_end():
            entry = cursor.match(re.compile(r"ENTRY\b")) is not None
            module.add(self.computation(), entry=entry)
        if module.config.entry_layout is None:
            module.config.entry_layout = _default_layouts(module.entry.program_shape)
        return module

    def header_attribute(self, module: HloModule) -> None:
        cursor = self.cursor
        start = cursor.position
        key = cursor.take(_KEY, "a module attribute")[0]
        cursor.expect("=")
        if key == "is_scheduled":
            module.config.is_scheduled = cursor.boolean()
        elif key == "entry_computation_layout":
            cursor.expect("{")
            cursor.expect("(")
            parameters: list[Shape] = []
            while not cursor.accept(")"):
                if parameters:
                    cursor.expect(",")
                parameters.append(cursor.shape())
            cursor.expect("->")
            module.config.entry_layout = ProgramShape(tuple(parameters), cursor.shape())
            cursor.expect("}")
        else:
            raise cursor.error(f"unexpected module attribute {key!r}", position=start)

    def computation(self) -> HloComputation:
        cursor = self.cursor
        start = cursor.position
        computation = HloComputation(cursor.name("a computation's name"))
        if computation.name in self.computations:
            raise cursor.error(f"computation {computation.name!r} is defined twice", position=start)
        if cursor.peek("("):
            cursor.position = cursor.balanced_end(cursor.position)
            cursor.expect("->")
            cursor.shape()
        cursor.expect("{")
        self.names = {}
        self.instructions(computation)
        self.computations[computation.name] = computation
        return computation

    def instructions(self, computation: HloComputation) -> None:
        cursor = self.cursor
        text, match = cursor.text, _LINE.match
        newline = text.find("\n", cursor.position)
        if newline >= 0 and not text[cursor.position : newline].strip():
            cursor.position = newline + 1
        root: HloInstruction | None = None
        last: HloInstruction | None = None
        while True:
            line = match(text, cursor.position)
            instruction = self.fast(line) if line is not None else None
            if line is not None and instruction is not None:
                is_root = line[1] is not None
                cursor.position = line.end()
            elif cursor.accept("}"):
                break
            else:
                cursor.skip()
                start = cursor.position
                is_root = cursor.match(re.compile(r"ROOT\b")) is not None
                instruction = self.general()
                cursor.accept(",")
            if is_root:
                if root is not None:
                    raise cursor.error("a computation has only one ROOT", rule="computation.one-root")
                root = instruction
            last = computation.add(instruction)
        if last is None:
            raise cursor.error(f"computation {computation.name!r} has no instruction")
        computation.root = root or last

    # -- instructions, fast

    def fast(self, line: re.Match[str]) -> HloInstruction | None:
        """The instruction of a line in the printer's own form; None where only the general reader can tell."""
        _, name, shape_text, opcode, operand_text, attribute_text = line.groups()
        names = self.names
        if name in names:
            return None
        cls = REGISTRY.get(opcode)
        if cls is None:
            return None
        try:
            shape = Shape.parse(shape_text)
            if cls.operand_names or not operand_text:
                operands = [names[o.strip(" %")] for o in operand_text.split(",")] if operand_text else []
                fields = None
            else:
                operands = []
                fields = cls.parse_operands(Cursor(operand_text), shape)
                if fields is None:
                    return None
            arity = len(cls.operand_names)
            if len(operands) != arity and not (arity and cls.operand_names[-1][0] == "*"):
                return None
            if fields is None and not cls.roles:
                operation = self.operations.get((opcode, attribute_text))
                if operation is not None:
                    instruction = names[name] = HloInstruction(name, operation, shape, operands)
                    return instruction
            return self.fast_attributes(name, cls, shape, operands, attribute_text, fields)
        except (HloError, KeyError):
            return None

    def fast_attributes(
        self, name: str, cls: type[Operation], shape: Shape, operands: list[HloInstruction], text: str,
        fields: dict[str, Any] | None,
    ) -> HloInstruction | None:  # fmt: skip
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        roles = [role.name for role in cls.roles]
        for pair in _ATTRIBUTE.findall(text):
            (others if pair[0] in _ANNOTATIONS or pair[0] in roles else own).append(pair)
        own_text = repr(own) if others else text
        operation = None if fields is not None else self.operations.get((cls.opcode, own_text))
        if operation is None:
            values = dict(fields or {})
            known = {a.name: a for a in cls.attributes}
            for key, value in own:
                if key not in known or known[key].field in values:
                    return None
                cursor = Cursor(value)
                values[known[key].field] = known[key].codec.parse(cursor)
                if not cursor.at_end():
                    return None
            if any(a.default is REQUIRED and a.field not in values for a in cls.attributes):
                return None
            operation = cls(**values)
            if fields is None:
                self.operations[(cls.opcode, own_text)] = operation
        instruction = HloInstruction(name, operation, shape, operands)
        called: dict[str, list[HloComputation]] = {}
        for key, value in others:
            if key in roles:
                called[key] = [self.computations[n.strip(" %")] for n in value.strip("{}").split(",") if n.strip()]
            elif key == "metadata":
                metadata = self.metadata.get(value)
                if metadata is None:
                    metadata = self.metadata[value] = OpMetadata.parse(Cursor(value))
                instruction.metadata = metadata
            elif not self.annotation(instruction, key, Cursor(value)):
                return None
        if not self.attach(instruction, cls, called):
            return None
        self.names[name] = instruction
        return instruction

    def attach(self, instruction: HloInstruction, cls: type[Operation], called: dict[str, list[HloComputation]]) -> bool:
        """Set the called computations in the order of the roles; False if a required one is missing."""
        if not cls.roles:
            return not called
        if any(role.required and role.name not in called for role in cls.roles):
            return False
        instruction.called_computations = tuple(c for role in cls.roles for c in called.get(role.name, ()))
        return True

    # -- instructions, general

    def general(self) -> HloInstruction:
        """Any instruction, with errors at their place."""
        cursor = self.cursor
        cursor.skip()
        start = cursor.position
        name = cursor.name("an instruction's name")
        if name in self.names:
            raise cursor.error(f"instruction {name!r} is defined twice", position=start)
        cursor.expect("=")
        shape = cursor.shape() if cursor.at_shape() else None
        cursor.skip()
        opcode_at = cursor.position
        opcode = cursor.take(_OPCODE, "an opcode")[0]
        cls = REGISTRY.get(opcode)
        if cls is None:
            raise cursor.error(f"unknown opcode {opcode!r}", rule="text.opcode", position=opcode_at)
        try:
            return self.general_rest(name, cls, shape)
        except HloError as error:
            raise cursor.locate(error, start).at(instruction=name) from None

    def general_rest(self, name: str, cls: type[Operation], shape: Shape | None) -> HloInstruction:
        cursor = self.cursor
        cursor.expect("(")
        fields = cls.parse_operands(cursor, shape)
        operands: list[HloInstruction] = []
        if fields is None:
            fields = {}
            while not cursor.peek(")"):
                if operands:
                    cursor.expect(",")
                operands.append(self.operand())
        cursor.expect(")")
        pending = HloInstruction(name, _PENDING, shape or _NO_SHAPE, operands)
        called = self.general_attributes(pending, cls, fields)
        missing = [a.name for a in cls.attributes if a.default is REQUIRED and a.field not in fields]
        if missing:
            raise cursor.error(f"{cls.opcode} needs the attribute {missing[0]}", rule="text.attribute-missing")
        pending.operation = cls(**fields)
        if not self.attach(pending, cls, called):
            wanted = ", ".join(r.name for r in cls.roles if r.required and r.name not in called)
            raise cursor.error(f"{cls.opcode} needs {wanted}", rule="text.attribute-missing")
        if shape is None:
            pending.shape = pending.infer_shape().with_default_layout()
        self.names[name] = pending
        return pending

    def operand(self) -> HloInstruction:
        cursor = self.cursor
        cursor.skip()
        if cursor.at_shape():
            cursor.shape()
        cursor.skip()
        start = cursor.position
        name = cursor.name("an operand")
        if name not in self.names:
            raise cursor.error(f"instruction {name!r} does not exist", rule="text.operand", position=start)
        return self.names[name]

    def general_attributes(
        self, instruction: HloInstruction, cls: type[Operation], fields: dict[str, Any]
    ) -> dict[str, list[HloComputation]]:
        cursor = self.cursor
        known = {a.name: a for a in cls.attributes}
        roles = {role.name for role in cls.roles}
        called: dict[str, list[HloComputation]] = {}
        seen: set[str] = set()
        while cursor.peek(","):
            cursor.expect(",")
            cursor.skip()
            start = cursor.position
            key = cursor.take(_KEY, "an attribute")[0]
            if key in seen:
                raise cursor.error(f"attribute {key!r} is given twice", rule="text.attribute-twice", position=start)
            seen.add(key)
            cursor.expect("=")
            if key in known:
                fields[known[key].field] = known[key].codec.parse(cursor)
            elif key in roles:
                called[key] = self.computation_names()
            elif not self.annotation(instruction, key, cursor):
                allowed = ", ".join(sorted({*known, *roles, *_ANNOTATIONS}))
                message = f"unexpected attribute {key!r}; {cls.opcode} takes {allowed}"
                raise cursor.error(message, rule="text.attribute", position=start)
        return called

    def computation_names(self) -> list[HloComputation]:
        cursor = self.cursor
        found: list[HloComputation] = []
        many = cursor.accept("{")
        while not (many and cursor.accept("}")):
            if found:
                cursor.expect(",")
            cursor.skip()
            start = cursor.position
            name = cursor.name("a computation")
            if name not in self.computations:
                raise cursor.error(f"computation {name!r} does not exist", rule="text.computation", position=start)
            found.append(self.computations[name])
            if not many:
                break
        return found

    def annotation(self, instruction: HloInstruction, key: str, cursor: Cursor) -> bool:
        """Read one of the attributes that every instruction may have; False for another key."""
        if key == "metadata":
            instruction.metadata = OpMetadata.parse(cursor)
        elif key == "sharding":
            instruction.sharding = Sharding.parse(cursor)
        elif key == "frontend_attributes":
            instruction.frontend_attributes = parse_frontend_attributes(cursor)
        elif key == "backend_config":
            cursor.skip()
            start = cursor.position
            if cursor.peek("{"):
                cursor.braced_text()
            else:
                cursor.string()
            instruction.backend_config = cursor.text[start : cursor.position]
        elif key == "control-predecessors":
            cursor.expect("{")
            while not cursor.accept("}"):
                cursor.accept(",")
                name = cursor.name("an instruction")
                if name not in self.names:
                    raise cursor.error(f"instruction {name!r} does not exist", rule="text.operand")
                self.names[name].add_control_dependency_to(instruction)
        else:
            return False
        return True


def _default_layouts(shape: ProgramShape) -> ProgramShape:
    return ProgramShape(tuple(p.with_default_layout() for p in shape.parameters), shape.result.with_default_layout())


class _Pending(Operation):
    opcode = "pending"


_PENDING: Final = _Pending()
_NO_SHAPE: Final = Shape.token()
