"""Cases: one operation, or a few that belong together, with arguments; and programs of cases.

Names in the text of a case are marked with ``@``. Many independent cases form one program, because XLA
compiles one program of sixteen operations faster than sixteen programs of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import numpy as np

from hloom.fuzzing.generators.draw import Array, Draw
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import NEWEST, XlaVersion
from hloom.operations.structure import Constant, Tuple
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.text.printer import print_computation, print_instruction

_SIGNED_ZERO: Final = regex(r"-0(?![\w.])")


@dataclass(frozen=True)
class Case:
    """A part of a program.

    Attributes:
        name: family and number, from which it can be drawn again.
        operation: the tested operation; differences are counted by it.
        parameters: shapes of the arguments, in text.
        arguments: their values.
        lines: instructions without those of the parameters, which are ``@p0``, ``@p1`` ...
        roots: names of the results.
        computations: called computations, in text.
        dynamic: results have dynamic dimensions. XLA returns arrays of the bound's size, with the actual
            elements first.
        folded: the arguments are constants in the program, which XLA folds while it compiles.
        replicas: number of replicas; the arguments are those of all, one after the other.
        partitions: number of devices of a replica; each has all arguments and all results.
    """

    name: str
    operation: str
    parameters: tuple[str, ...]
    arguments: tuple[Array, ...]
    lines: tuple[str, ...]
    roots: tuple[str, ...]
    computations: tuple[str, ...] = ()
    dynamic: bool = False
    replicas: int = 1
    partitions: int = 1
    folded: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.operation})"

    @property
    def family(self) -> str:
        """The name of the family that drew the case."""
        return self.name.split("/")[0]

    @property
    def module(self) -> HloModule:
        """The case as a module of its own."""
        return HloModule.from_text(program([self]))

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.replicas * self.partitions

    @property
    def unfolded(self) -> Case:
        """The case with parameters in place of constant arguments."""
        return replace(self, folded=False)

    @property
    def single_partition(self) -> Case:
        """The case with one partition per replica."""
        return replace(self, partitions=1)

    @property
    def arguments_of_devices(self) -> list[list[Array]]:
        """For each device, its arguments."""
        count = len(self.parameters)
        rows = [list(self.arguments[r * count : (r + 1) * count]) for r in range(self.replicas)]
        return [row for row in rows for _ in range(self.partitions)]


@dataclass
class CaseBody:
    """A builder of a case's text, instruction by instruction."""

    draw: Draw
    shapes: list[str] = field(default_factory=list[str])
    arguments: list[Array] = field(default_factory=list[Array])
    lines: list[str] = field(default_factory=list[str])
    computations: list[str] = field(default_factory=list[str])

    def parameter(self, values: Any, shape: str | None = None) -> str:
        """Add an argument with some values, and return its name. `shape` is by default that of the values."""
        array = np.asarray(values)
        bare = Shape.of(array)
        self.shapes.append(shape or self.draw.shape(bare.element_type.name, bare.dimensions))
        self.arguments.append(array)
        return f"@p{len(self.shapes) - 1}"

    def let(self, expression: str) -> str:
        """Add an instruction, ``[shape] opcode(operands), attributes``, and return its name."""
        name = f"@v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    def computation(self, parameters: Sequence[str], *lines: str) -> str:
        """Add a computation ``(a, b, ...) -> last line`` and return its name; parameters are %a, %b ..."""
        name = f"@f{len(self.computations)}"
        text = [f"  {chr(97 + i)} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
        text += [f"  {line}" for line in lines[:-1]] + [f"  ROOT {lines[-1]}"]
        self.computations.append(f"{name} {{\n" + "\n".join(text) + "\n}\n")
        return name

    def binary(self, element_type: str, opcode: str) -> str:
        """Add a computation that applies one operation to two scalars, and return its name."""
        scalar = f"{element_type}[]"
        return self.computation([scalar, scalar], f"r = {opcode}(a, b)")

    def elements(self, value: str, count: int) -> list[str]:
        """Add `get-tuple-element` instructions for the elements of a tuple, and return their names."""
        return [self.let(f"get-tuple-element({value}), index={i}") for i in range(count)]

    def case(self, operation: str, *roots: str, dynamic: bool = False, replicas: int = 1) -> Case:
        """Return the case of the instructions added so far, whose results are `roots`."""
        return Case(
            "", operation, tuple(self.shapes), tuple(self.arguments), tuple(self.lines), roots,
            tuple(self.computations), dynamic, replicas,
        )  # fmt: skip


Generator = Callable[[Draw, CaseBody], Case]


@dataclass(frozen=True)
class CaseFamily:
    """A generator of cases.

    Attributes:
        draw: the function that draws a case.
        weight: the number of cases per round over all families.
        corners: whether it can draw programs on which XLA is known to fail.
        client: whether StableHLO has the programs, which is what XLA's client takes.
    """

    draw: Callable[[Draw], Case]
    weight: int
    corners: bool
    client: bool


FAMILIES: Final[dict[str, CaseFamily]] = {}
"""The generators of single operations and of expressions, by name."""


def family(
    name: str, *, weight: int = 1, corners: bool = False, client: bool = True
) -> Callable[[Generator], Generator]:
    """Return a decorator that registers a function of choices and an empty case as a family's generator."""

    def register(generator: Generator) -> Generator:
        FAMILIES[name] = CaseFamily(lambda draw: generator(draw, CaseBody(draw)), weight, corners, client)
        return generator

    return register


def constant_text(array: Array, shape: str) -> str:
    """Return an array as HLO text of a constant. XLA prints -0 for the float but parses -0 as an integer."""
    return _SIGNED_ZERO.sub("-0.0", Literal(array, Shape.parse(shape)).to_text())


def program(cases: Sequence[Case]) -> str:
    """Return the text of one program that computes some cases; its result is the tuple of all their roots."""
    computations: list[str] = []
    lines: list[str] = []
    roots: list[str] = []
    count = 0
    for number, case in enumerate(cases):
        prefix = f"%c{number}_" if len(cases) > 1 else "%"
        computations += [text.replace("@", prefix) for text in case.computations]
        for index, shape in enumerate(case.parameters):
            if case.folded:
                literal = constant_text(case.arguments[index], shape)
                lines.append(f"  {prefix}p{index} = {shape} constant({literal})")
            else:
                lines.append(f"  {prefix}p{index} = {shape} parameter({count})")
                count += 1
        lines += [f"  {line}".replace("@", prefix) for line in case.lines]
        roots += [root.replace("@", prefix) for root in case.roots]
    lines.append(f"  ROOT results = tuple({', '.join(roots)})")
    return "HloModule cases\n\n" + "".join(computations) + "ENTRY entry {\n" + "\n".join(lines) + "\n}\n"


@cache
def installed_xla() -> XlaVersion:
    """Return the version of the installed jaxlib, or the newest one that hloom knows if none is installed."""
    try:
        return XlaVersion.parse(version("jaxlib"), newer=True)
    except PackageNotFoundError:
        return NEWEST


def _options() -> PrintOptions:
    """Return options by which programs are printed: in a form that the installed XLA reads."""
    return PrintOptions(print_large_constants=True, print_metadata=False, xla_version=installed_xla())


def as_case(module: HloModule, arguments: Sequence[Array], like: Case) -> Case:
    """Return a module as a case with the name, the operation and the devices of another case.

    The results are the elements of the entry's tuple, or its root. Parameters stand for constants if the
    other case is folded.
    """
    entry, called = module.entry, [c for c in module.post_order() if c is not module.entry]
    parameters = [p.name for p in entry.parameters]
    places = {p: f"@p{number}" for number, p in enumerate(parameters)}
    lines = {i.name: _marked(_text(i), places) for i in entry.post_order()}
    root = entry.root
    roots = [o.name for o in root.operands] if isinstance(root.operation, Tuple) else [root.name]
    dropped = {*parameters, *([root.name] if isinstance(root.operation, Tuple) else [])}
    return replace(
        like,
        parameters=tuple(p.shape.to_string() for p in entry.parameters),
        arguments=tuple(np.asarray(a) for a in arguments),
        lines=tuple(line for name, line in lines.items() if name not in dropped),
        roots=tuple(_marked(f"%{name}", places) for name in roots),
        computations=tuple(_marked(print_computation(c, _options()), {}) + "\n" for c in called),
    )


def _text(instruction: HloInstruction) -> str:
    text = print_instruction(instruction, _options()).strip().removeprefix("ROOT ")
    return _SIGNED_ZERO.sub("-0.0", text) if isinstance(instruction.operation, Constant) else text


def _marked(text: str, places: dict[str, str]) -> str:
    """Return a text with names marked by ``@``; those of parameters are replaced by their numbers."""

    def mark(match: re.Match[str]) -> str:
        name = match[1]
        plain = re.sub(r"\W", "_", name)
        return places.get(name) or ("@x" if re.match(r"p\d", plain) else "@") + plain

    return re.sub(r"%([\w.-]+)", mark, text)
