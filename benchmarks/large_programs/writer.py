"""Writing HLO text instruction by instruction."""

from __future__ import annotations

from collections.abc import Sequence


class Body:
    """The instructions of one computation.

    Args:
        program: the program of the computation, which counts its instructions.
        name: name of the computation.
    """

    def __init__(self, program: Writer, name: str) -> None:
        self._program = program
        self.name = name
        self._lines: list[str] = []
        self._scalars: dict[tuple[str, str], str] = {}
        self._parameters: list[str] = []

    def op(self, shape: str, expression: str) -> str:
        """Append an instruction; return its name."""
        name = f"v{self._program.size}"
        self._program.size += 1
        self._lines.append(f"  {name} = {shape} {expression}")
        return name

    def parameter(self, shape: str) -> str:
        """Append the next parameter; return its name."""
        self._parameters.append(shape)
        return self.op(shape, f"parameter({len(self._parameters) - 1})")

    def scalar(self, value: str, element_type: str = "f32") -> str:
        """Return a scalar constant, written once."""
        key = element_type, value
        if key not in self._scalars:
            self._scalars[key] = self.op(f"{element_type}[]", f"constant({value})")
        return self._scalars[key]

    def filled(self, shape: str, value: str) -> str:
        """Append an array of one value; return its name."""
        scalar = self.scalar(value, shape.partition("[")[0])
        return self.op(shape, f"broadcast({scalar}), dimensions={{}}")

    def binary(self, opcode: str, shape: str, a: str, b: str) -> str:
        """Append an elementwise operation of two operands; return its name."""
        return self.op(shape, f"{opcode}({a}, {b})")

    def product(self, shape: str, a: str, b: str) -> str:
        """Append the product of two matrices; return its name."""
        return self.op(shape, f"dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")

    def finish(self, root: str) -> None:
        """Make an instruction the root: the last one keeps its place at the end of the text."""
        place = next(n for n in range(len(self._lines) - 1, -1, -1) if self._defines(n, root))
        self._lines.append(self._lines.pop(place).replace("  ", "  ROOT ", 1))

    def _defines(self, number: int, name: str) -> bool:
        return self._lines[number].startswith(f"  {name} =")

    def result(self, *values: tuple[str, str]) -> None:
        """Return a tuple of (shape, name) pairs as the result of the computation."""
        shapes = ", ".join(shape for shape, _ in values)
        self.finish(self.op(f"({shapes})", f"tuple({', '.join(name for _, name in values)})"))

    def text(self, *, entry: bool = False) -> str:
        """Return the computation as HLO text."""
        return "\n".join([("ENTRY " if entry else "") + self.name + " {", *self._lines, "}"])


class Writer:
    """A program that is being written.

    Attributes:
        size: instructions so far, of all computations.
        entry: the entry computation.
    """

    def __init__(self, name: str) -> None:
        self.size = 0
        self._name = name
        self._bodies: list[Body] = []
        self.entry = Body(self, "main")

    def body(self) -> Body:
        """Add a computation."""
        body = Body(self, f"computation{len(self._bodies)}")
        self._bodies.append(body)
        return body

    def reducer(self, opcode: str, element_type: str = "f32") -> Body:
        """Add a computation that combines two scalars."""
        body, shape = self.body(), f"{element_type}[]"
        a, b = body.parameter(shape), body.parameter(shape)
        body.finish(body.binary(opcode, shape, a, b))
        return body

    def text(self) -> str:
        """Return the program as HLO text."""
        bodies = [body.text() for body in self._bodies]
        return "\n\n".join([f"HloModule {self._name}", *bodies, self.entry.text(entry=True)]) + "\n"


def pairs(shape: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return values of one shape as arguments of `Body.result`."""
    return [(shape, name) for name in names]
