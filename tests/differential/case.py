"""Cases: one operation, or a few that belong together, with arguments; and programs of cases.

Names in the text of a case are marked with ``@``. Many independent cases form one program, because XLA
compiles one program of sixteen operations faster than sixteen programs of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

from .draw import Array, Draw


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of a result against XLA's: the sum of all three.

    Parts of complex numbers are measured by the size of the number.

    Attributes:
        ulps: units in the last place of the result.
        terms: the length of a sum; each of its roundings may cost a unit in the last place of the sum of
            magnitudes, which comes from running the program on the magnitudes of the arguments.
        analysed: the bounds of `error_analysis` for the program and its arguments.
    """

    ulps: float = 0.0
    terms: float = 0.0
    analysed: bool = False


EXACT = Tolerance()


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
        tolerance: of the results.
        dynamic: results have dynamic dimensions. XLA returns arrays of the bound's size, with the actual
            elements first.
        folded: arguments are constants in the program, which XLA folds while it compiles.
        replicas: number of devices; the arguments are those of all, one after the other.
    """

    name: str
    operation: str
    parameters: tuple[str, ...]
    arguments: tuple[Array, ...]
    lines: tuple[str, ...]
    roots: tuple[str, ...]
    computations: tuple[str, ...] = ()
    tolerance: Tolerance = EXACT
    dynamic: bool = False
    replicas: int = 1
    folded: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.operation})"


@dataclass
class Body:
    """Writes a case line by line."""

    draw: Draw
    shapes: list[str] = field(default_factory=list)
    arguments: list[Array] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    computations: list[str] = field(default_factory=list)

    def parameter(self, values: Any, shape: str | None = None) -> str:
        """Add an argument; return its name."""
        array = np.asarray(values)
        bare = Shape.of(array)
        self.shapes.append(shape or self.draw.shape(bare.element_type.name, bare.dimensions))
        self.arguments.append(array)
        return f"@p{len(self.shapes) - 1}"

    def let(self, expression: str) -> str:
        """Add an instruction, ``[shape] opcode(operands), attributes``; return its name."""
        name = f"@v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    def computation(self, parameters: Sequence[str], *lines: str) -> str:
        """Add a called computation ``(a, b, ...) -> last line`` (parameters %a, %b ...); return its name."""
        name = f"@f{len(self.computations)}"
        text = [f"  {chr(97 + i)} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
        text += [f"  {line}" for line in lines[:-1]] + [f"  ROOT {lines[-1]}"]
        self.computations.append(f"{name} {{\n" + "\n".join(text) + "\n}\n")
        return name

    def binary(self, element_type: str, opcode: str) -> str:
        """Add a called computation of one operation on two scalars."""
        scalar = f"{element_type}[]"
        return self.computation([scalar, scalar], f"r = {opcode}(a, b)")

    def elements(self, value: str, count: int) -> list[str]:
        """Add the elements of a tuple."""
        return [self.let(f"get-tuple-element({value}), index={i}") for i in range(count)]

    def case(
        self, operation: str, *roots: str, tolerance: Tolerance = EXACT, dynamic: bool = False,
        replicas: int = 1,
    ) -> Case:  # fmt: skip
        """Return the case with these results."""
        return Case(
            "", operation, tuple(self.shapes), tuple(self.arguments), tuple(self.lines), roots,
            tuple(self.computations), tolerance, dynamic, replicas,
        )  # fmt: skip


Generator = Callable[[Draw], Case]


def constant_text(array: Array, shape: str) -> str:
    """Return an array as HLO text. XLA prints -0 for the float but parses -0 as an integer."""
    return re.sub(r"-0(?![\w.])", "-0.0", Literal(array, Shape.parse(shape)).to_text())


def program(cases: Sequence[Case]) -> str:
    """Return the text of a program that computes some cases, with the tuple of all their roots."""
    computations: list[str] = []
    lines: list[str] = []
    roots: list[str] = []
    count = 0
    for number, case in enumerate(cases):
        prefix = f"c{number}_"
        computations += [text.replace("@", prefix) for text in case.computations]
        for own, shape in enumerate(case.parameters):
            if case.folded:
                literal = constant_text(case.arguments[own], shape)
                lines.append(f"  {prefix}p{own} = {shape} constant({literal})")
            else:
                lines.append(f"  {prefix}p{own} = {shape} parameter({count})")
                count += 1
        lines += [f"  {line}".replace("@", prefix) for line in case.lines]
        roots += [root.replace("@", prefix) for root in case.roots]
    lines.append(f"  ROOT results = tuple({', '.join(roots)})")
    return "HloModule cases\n\n" + "".join(computations) + "ENTRY entry {\n" + "\n".join(lines) + "\n}\n"
