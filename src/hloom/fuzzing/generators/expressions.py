"""Generators of elementwise expressions on corner values and constants, which simplifiers rewrite."""

from __future__ import annotations

from hloom.fuzzing.generators.case import Case, CaseBody, constant_text, family
from hloom.fuzzing.generators.draw import Draw, special_values
from hloom.fuzzing.generators.opcodes import choices
from hloom.operations.arithmetic import Complex, Divide, Power, Remainder
from hloom.operations.unary import Imag, IsFinite, PopulationCount, Real
from hloom.shape.element_type import ElementType

TYPES = ("f32", "f32", "f32", "f64", "f16", "bf16", "s8", "s32", "s32", "s64", "u8", "u32", "u64", "pred")
DIVISIONS = (Divide.opcode, Remainder.opcode)
"""Of integers by zero they have any result."""
ABSENT = (Complex.opcode, Real.opcode, Imag.opcode, PopulationCount.opcode)
"""Operations of other types, and one that XLA evaluates otherwise in narrow types."""


class Expression:
    """An expression under construction, whose arrays all have the same dimensions.

    Attributes:
        values: the name and element type of each array.
    """

    def __init__(self, draw: Draw, body: CaseBody) -> None:
        self.draw, self.body = draw, body
        self.sizes = draw.sizes(low=1, high=2, largest=6)
        self.values: list[tuple[str, str]] = []
        for _ in range(draw.integer(1, 2)):
            element_type = draw.one(TYPES)
            values = draw.one([draw.any_values, draw.any_values, draw.small_values])
            shape = f"{element_type}[{','.join(map(str, self.sizes))}]"
            self.values.append((self.body.parameter(values(element_type, self.sizes), shape), element_type))

    def add(self, expression: str, element_type: str) -> None:
        """Add an instruction, and append its result to the values."""
        shape = f"{element_type}[{','.join(map(str, self.sizes))}]"
        self.values.append((self.body.let(f"{shape} {expression}"), element_type))

    def constant(self, element_type: str, text: str = "") -> str:
        """Add an array of one number, by default a special value, and return its name."""
        kind = ElementType.parse(element_type)
        if not text and kind.is_predicate:
            text = self.draw.one(["true", "false"])
        elif not text:
            text = constant_text(self.draw.numbers.choice(special_values(kind)), f"{element_type}[]")
        scalar = self.body.let(f"{element_type}[] constant({text})")
        self.add(f"broadcast({scalar}), dimensions={{}}", element_type)
        return self.values.pop()[0]

    def like(self, element_type: str) -> str:
        """Return the name of an array of a type: an existing one, a constant, or a converted one."""
        fitting = [name for name, kind in self.values if kind == element_type]
        if fitting and self.draw.chance(0.5):
            return self.draw.one(fitting)
        if self.draw.chance(0.7):
            return self.constant(element_type)
        self.add(f"convert({self.draw.one(self.values)[0]})", element_type)
        return self.values[-1][0]

    def _opcodes(self, operands: int, kind: str) -> list[str]:
        """Return the opcodes with some operands of an element type; for integers without `power`."""
        tables = [choices(operands, exact=exact) for exact in (True, False)]
        opcodes = [opcode for table in tables for opcode, types in table.items() if kind in types]
        is_float = ElementType.parse(kind).is_floating
        return [o for o in opcodes if o not in ABSENT and (is_float or o != Power.opcode)]

    def step(self) -> None:
        """Add an operation on the newest value, or sometimes on another one."""
        draw = self.draw
        name, kind = self.values[-1] if draw.chance(0.7) else draw.one(self.values)
        match draw.integer(0, 9):
            case 0 | 1:
                opcode = draw.one(self._opcodes(1, kind))
                self.add(f"{opcode}({name})", "pred" if opcode == IsFinite.opcode else kind)
            case 2:
                self.add(f"convert({name})", draw.one(TYPES))
            case 3:
                directions = ["EQ", "NE", "LT", "LE", "GT", "GE"]
                self.add(f"compare({name}, {self.like(kind)}), direction={draw.one(directions)}", "pred")
            case 4:
                choice = self.like("pred")
                operands = [name, self.like(kind)]
                self.add(f"select({choice}, {', '.join(draw.subset(operands, 2))})", kind)
            case 5 if kind != "pred":
                self.add(f"clamp({self.like(kind)}, {name}, {self.like(kind)})", kind)
            case _:
                opcode = draw.one(self._opcodes(2, kind))
                operands = draw.subset([name, self.like(kind)], 2)
                if opcode in DIVISIONS and not ElementType.parse(kind).is_floating:
                    operands = [name, self.constant(kind, draw.one(["2", "3", "7"]))]
                self.add(f"{opcode}({', '.join(operands)})", kind)


@family("expressions", weight=10)
def expression(draw: Draw, body: CaseBody) -> Case:
    """Draw an expression of two to seven operations, whose results are the last values."""
    e = Expression(draw, body)
    for _ in range(draw.integer(2, 7)):
        e.step()
    return body.case("expression", *dict.fromkeys(name for name, _ in e.values[-2:]))
