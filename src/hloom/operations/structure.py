"""Operations that make up the frame of a program: parameter, constant, tuple, get-tuple-element ..."""

from __future__ import annotations

from typing import Any

from hloom.errors import EvaluationError, ShapeError
from hloom.ir.codec import integer
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation, ProgramShape, Run, Value, operation
from hloom.shape.shape import Shape


@operation("parameter")
class Parameter(Operation):
    """The argument number ``parameter_number`` of the computation."""

    infers = False
    parameter_number: int = integer()

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Numbers count from 0."""
        if self.parameter_number < 0:
            raise ShapeError(f"parameter number {self.parameter_number} is negative", rule="parameter.number")

    def operand_text(self, instruction: HloInstruction) -> str:
        """The number."""
        return str(self.parameter_number)

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """The number stands between the parentheses."""
        return field == "parameter_number"

    @classmethod
    def parse_operands(cls, cursor: Cursor, shape: Shape | None) -> dict[str, Any]:
        """The number."""
        return {"parameter_number": cursor.integer()}

    def evaluate(self, run: Run) -> Value:
        """Arguments are bound before the computation runs."""
        raise EvaluationError("a parameter has no argument", rule="evaluate.argument-missing")


@operation("tuple", "*operands")
class Tuple(Operation):
    """A tuple of the operands."""

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """The tuple of the operand shapes."""
        return Shape.tuple_(operands)

    def evaluate(self, run: Run, *operands: Value) -> Value:
        """The values."""
        return tuple(operands)


@operation("get-tuple-element", "operand")
class GetTupleElement(Operation):
    """Element number ``index`` of a tuple."""

    index: int = integer(proto="tuple_index")

    def infer(self, operand: Shape) -> Shape:
        """The element's shape."""
        if not operand.is_tuple:
            raise ShapeError(f"the operand is no tuple but {operand}", rule="get-tuple-element.operand-tuple")
        if not 0 <= self.index < len(operand.tuple_shapes):
            message = f"index {self.index} in a tuple of {len(operand.tuple_shapes)} elements"
            raise ShapeError(message, rule="get-tuple-element.index")
        return operand.tuple_shapes[self.index]

    def evaluate(self, run: Run, operand: tuple[Value, ...]) -> Value:
        """The element."""
        return operand[self.index]
