"""XlaBuilder: build a program by calling functions on symbolic values.

::

    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, Shape.parse("f32[4]"), "x")
    computation = b.build(x * 2 + ops.Sin(x))

Every call appends one instruction (or a few) and returns an `XlaOp`. The rules of an operation are checked at
once, so an error is raised where the mistake is. Names follow jaxlib's XlaBuilder.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias, cast

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.builder.embedding import embed
from hloom.builder.enumerations import enumerated, is_flag
from hloom.builder.operators import Operators
from hloom.errors import HloError, did_you_mean, expect, plural
from hloom.ir.codec import FLAG, REQUIRED, DeclaredAttribute, EnumCodec
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata
from hloom.ir.module import ALIAS_KINDS, Alias, HloModule
from hloom.ir.operation import REGISTRY, Operation, ProgramShape
from hloom.ir.sharding import Sharding
from hloom.regex import regex
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

_UNPRINTABLE: Final = regex(r"[^A-Za-z0-9_.\-]")


class XlaComputation(HloModule):
    """A finished program: an HloModule that other builders can call, reduce with, loop over."""

    __slots__ = ()

    @property
    def program_shape(self) -> ProgramShape:
        """Parameter shapes and result shape of the entry."""
        return self.entry.program_shape

    def as_hlo_text(self) -> str:
        """Return the module's text, as `to_text`."""
        return self.to_text()

    def as_serialized_hlo_module_proto(self) -> bytes:
        """Return the module's bytes, as `to_proto`."""
        return self.to_proto()


Computation: TypeAlias = HloModule | HloComputation
"""A computation argument: a built one, a parsed module (its entry), or any HloComputation."""


def entry_of(computation: Computation) -> HloComputation:
    """Return the computation itself, or the entry of a module."""
    return computation.entry if isinstance(computation, HloModule) else computation


class XlaOp(Operators):
    """A value of the program under construction.

    Python's operators work on it: `+ - * / % ** @ & | ^ ~ << >>`, comparisons, `abs`, slices of arrays and
    elements of tuples. The other operand may be a Python number, a list or an array: it becomes a constant of
    this value's element type.
    """

    __slots__ = ("builder", "instruction")

    builder: XlaBuilder
    instruction: HloInstruction

    def __init__(self, builder: XlaBuilder, instruction: HloInstruction) -> None:
        self.builder = builder
        self.instruction = instruction

    def __repr__(self) -> str:
        return f"<XlaOp %{self.instruction.name}: {self.shape}>"

    @property
    def shape(self) -> Shape:
        """The value's shape."""
        return self.instruction.shape


class XlaBuilder:
    """Builds one computation; computations that it calls are copied into its module.

    Raises HloError (most often ShapeError) from the function whose arguments break a rule; the error names
    the rule and the instruction.
    """

    def __init__(self, name: str) -> None:
        expect(name, str, "the name of a computation")
        self.name = name
        self._module = XlaComputation(_identifier(name))
        self._computation = self._module.add(HloComputation(_identifier(name)), entry=True)
        self._embedded: dict[HloComputation, HloComputation] = {}
        self._built = False
        self._metadata: OpMetadata | None = None
        self._sharding: Sharding | None = None
        self._frontend_attributes: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<XlaBuilder {self.name}: {plural(len(self._computation), 'instruction')}>"

    # -- adding instructions

    def emit(
        self,
        opcode: str,
        operands: Iterable[XlaOp] = (),
        *,
        shape: Shape | None = None,
        element_type: ElementType | None = None,
        computations: Sequence[Computation] | Mapping[str, Computation] = (),
        name: str | None = None,
        frontend_attributes: Mapping[str, str] | None = None,
        **attributes: object,
    ) -> XlaOp:
        """Append one instruction of any opcode.

        Args:
            opcode: as in HLO text.
            operands: values of this builder.
            shape: the result; needed where it does not follow from the operands.
            element_type: that of the result, if it is not the one that follows from the operands.
            computations: the computations called, in order or by the names of their roles.
            name: preferred name of the instruction; default the opcode.
            frontend_attributes: more of them than the builder gives to every instruction, as in HLO text.
            attributes: the operation's fields, or their spelling in text; None leaves the default.

        Raises HloError for unknown opcodes and attributes, and for violations of the operation's rules.
        """
        if self._built:
            raise HloError(f"builder {self.name} has built its computation", rule="builder.finished")
        operation = make_operation(opcode, attributes)
        inputs = [self._own(operand, opcode) for operand in operands]
        _check_contexts(opcode, inputs)
        called = tuple(self.embedded(computation) for computation in _by_role(operation, computations))
        final = self._module.unique_name(_identifier(name or opcode))
        instruction = HloInstruction(final, operation, shape or Shape.token(), inputs, called)
        instruction.metadata = self._metadata
        instruction.sharding = self._sharding
        instruction.frontend_attributes = {**self._frontend_attributes, **(frontend_attributes or {})} or None
        try:
            self._settle_shape(instruction, shape, element_type)
            operation.verify(instruction)
        except HloError as error:
            instruction.detach()
            raise error.at(instruction=final) from error.__cause__
        return XlaOp(self, self._computation.add(instruction))

    @staticmethod
    def _settle_shape(
        instruction: HloInstruction, shape: Shape | None, element_type: ElementType | None
    ) -> None:
        if shape is None:
            instruction.shape = instruction.infer_shape()
        if element_type is not None:
            instruction.shape = instruction.shape.with_element_type(element_type)
        instruction.check_shape()

    def _own(self, operand: XlaOp, opcode: str) -> HloInstruction:
        if operand.builder is not self:
            message = f"{opcode} got {operand!r}, which belongs to the builder {operand.builder.name}"
            raise HloError(message, rule="builder.same-builder")
        return operand.instruction

    def embedded(self, computation: Computation) -> HloComputation:
        """Return this module's copy of a computation to be called; it is copied once."""
        return embed(entry_of(computation), self._module, self._embedded)

    # -- annotations of the instructions to come

    def set_op_metadata(self, metadata: OpMetadata | None) -> None:
        """Give every following instruction this metadata, until it is changed or cleared."""
        self._metadata = metadata

    def clear_op_metadata(self) -> None:
        """Give following instructions no metadata."""
        self._metadata = None

    def set_sharding(self, sharding: Sharding | str | None) -> None:
        """Give every following instruction this sharding; text such as `{devices=[2]<=[2]}` is parsed."""
        if isinstance(sharding, str):
            from hloom.ir.cursor import Cursor

            sharding = Sharding.parse(Cursor(sharding))
        self._sharding = sharding

    def clear_sharding(self) -> None:
        """Give following instructions no sharding."""
        self._sharding = None

    def set_frontend_attributes(self, attributes: dict[str, str]) -> None:
        """Give every following instruction these frontend attributes; the values are plain strings."""
        self._frontend_attributes = dict(attributes)

    def clear_frontend_attributes(self) -> None:
        """Give following instructions no frontend attributes."""
        self._frontend_attributes = {}

    @contextmanager
    def annotated(
        self, *, metadata: OpMetadata | None = None, sharding: Sharding | str | None = None
    ) -> Generator[None]:
        """Annotate the instructions of a `with` block; None leaves an annotation unchanged."""
        before = self._metadata, self._sharding
        if metadata is not None:
            self.set_op_metadata(metadata)
        if sharding is not None:
            self.set_sharding(sharding)
        try:
            yield
        finally:
            self._metadata, self._sharding = before

    # -- the result

    def setup_alias(
        self,
        output_index: Sequence[int],
        param_number: int,
        param_index: Sequence[int],
        kind: str = "may-alias",
    ) -> None:
        """Let an output leaf share the buffer of a parameter leaf; `kind` is may-alias or must-alias.

        Raises HloError for another kind; whether the leaves exist is checked when the computation is built.
        """
        word = enumerated(kind, ALIAS_KINDS, "kind")
        self._module.config.aliases[tuple(output_index)] = Alias(param_number, tuple(param_index), word)

    def get_shape(self, op: XlaOp) -> Shape:
        """Return the shape of a value."""
        return op.shape

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """Return parameter shapes and result shape as they would be if the computation were built now."""
        result = self._root(root).shape
        return ProgramShape(tuple(p.shape for p in self._computation.parameters), result)

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """Finish with `root`, by default the last value, as the result; no instructions may follow.

        Raises HloError for an empty computation, for parameter numbers with gaps, and for everything else
        that the verifier refuses.
        """
        if self._built:
            raise HloError(f"builder {self.name} has built its computation", rule="builder.finished")
        self._computation.root = self._root(root)
        shape = self._computation.program_shape
        self._module.config.entry_layout = shape
        self._module.reorder([*self._module.computations[1:], self._computation])
        self._module.verify()
        self._built = True
        return self._module

    def _root(self, root: XlaOp | None) -> HloInstruction:
        if root is not None:
            return self._own(root, "build")
        instructions = list(self._computation.instructions)
        if not instructions:
            raise HloError(f"builder {self.name} has no instruction to return", rule="builder.empty")
        return instructions[-1]


def make_operation(opcode: str, attributes: dict[str, object]) -> Operation:
    """Make the operation value of an opcode; an attribute of None keeps its default."""
    cls = REGISTRY.get(opcode)
    if cls is None:
        raise HloError(f"unknown opcode {opcode!r}{did_you_mean(opcode, REGISTRY)}", rule="builder.opcode")
    fields = {spelling: a.field for a in cls.attributes for spelling in (a.name, a.field)}
    given: dict[str, object] = {}
    for spelling, value in attributes.items():
        if value is None:
            continue
        if spelling not in fields:
            message = f"{opcode} has no attribute {spelling!r}; it has {', '.join(fields) or 'none'}"
            raise HloError(message, rule="builder.attribute")
        given[fields[spelling]] = value
    for declared in cls.attributes:
        if declared.field in given:
            given[declared.field] = _checked(opcode, declared, given[declared.field])
    missing = [a.field for a in cls.attributes if a.default is REQUIRED and a.field not in given]
    if missing:
        raise HloError(f"{opcode} needs the attribute {missing[0]}", rule="builder.attribute-missing")
    return cls(**given)


def _checked(opcode: str, declared: DeclaredAttribute, value: object) -> Any:
    """Check an attribute's value; return enumerated words in HLO's spelling, flags as bool.

    Raises HloError for a word that is none of the enumeration and for a flag that is not a bool.
    """
    what, words = f"{opcode}: {declared.name}", getattr(declared.codec, "words", None)
    if words is not None:
        if not isinstance(declared.codec, EnumCodec):  # one word for every operand
            if not isinstance(value, list | tuple):
                raise HloError(f"{what} is a sequence of words, got {value!r}", rule="builder.argument")
            return tuple(enumerated(v, words, what) for v in cast("Sequence[Any]", value))
        return enumerated(value, words, what)
    if declared.codec is FLAG:
        if not is_flag(value):
            raise HloError(f"{what} is True or False, got {value!r}", rule="builder.argument")
        return bool(value)
    return value


def _check_contexts(opcode: str, operands: Sequence[HloInstruction]) -> None:
    """Refuse a context of send or recv as operand of anything but its done operation, and the reverse."""
    for operand in operands:
        ended_by = operand.operation.ended_by
        if ended_by != opcode and (ended_by or opcode in _ending()):
            description = f"only {ended_by} takes it" if ended_by else f"{opcode} takes what its start gives"
            message = f"{opcode} got %{operand.name}, a {operand.opcode}; {description}"
            raise HloError(message, rule="builder.context", instruction=operand.name)


@cache
def _ending() -> frozenset[str]:
    """Return the opcodes that complete an operation that another one started."""
    return frozenset(declared.ended_by for declared in REGISTRY.values() if declared.ended_by)


def _by_role(
    operation: Operation, computations: Sequence[Computation] | Mapping[str, Computation]
) -> Sequence[Computation]:
    if not isinstance(computations, Mapping):
        return computations
    return [computations[role.name] for role in operation.roles]


def _identifier(name: str) -> str:
    """Return a name that HLO text can spell: other characters become underscores, as in XLA."""
    plain = _UNPRINTABLE.sub("_", name)
    return plain if plain and (plain[0].isalpha() or plain[0] == "_") else f"_{plain}"
