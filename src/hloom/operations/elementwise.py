"""What all elementwise operations share: shape rule, types, and how values are widened for computing.

Floats narrower than f32 are computed in f32 and rounded once: for + - * / and sqrt this is the correctly
rounded result. Integers narrower than a byte are computed in a byte and wrapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hloom.errors import ShapeError
from hloom.ir.operation import Array, Operation, ProgramShape, Run
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    import numpy as np

FLOATING = frozenset(t for t in ElementType.all() if t.is_floating)
INTEGER = frozenset(t for t in ElementType.all() if t.is_integer)
COMPLEX = frozenset(t for t in ElementType.all() if t.is_complex)
PREDICATE = frozenset((ElementType.parse("pred"),))
NUMERIC = FLOATING | INTEGER | COMPLEX
ANY = NUMERIC | PREDICATE


class Elementwise(Operation):
    """An operation whose result element depends on the operand elements of the same index only."""

    __slots__ = ()
    elementwise: ClassVar[bool] = True
    accepts: ClassVar[frozenset[ElementType]] = NUMERIC
    """Element types of the operands."""

    def compute(self, *operands: Any) -> Any:
        """The result on numpy arrays of at least f32 or s8, which numpy broadcasts."""
        raise NotImplementedError

    def result_type(self, operand: ElementType) -> ElementType:
        """The element type of the result for operands of one type."""
        return operand

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Operands of equal dimensions and one element type; a float may be mixed with a wider one."""
        for name, operand in zip(self.operand_names, operands, strict=True):
            if operand.element_type not in self.accepts:
                message = f"{self.opcode} does not take {name} of type {operand.element_type.name}"
                raise ShapeError(message, rule=f"{self.opcode}.element-type")
        merged = same_dimensions(self.opcode, operands)
        return merged.with_element_type(self.result_type(joint_element_type(self.opcode, operands)))

    def evaluate(self, run: Run, *operands: Array) -> Array:
        """Widen, compute, round to the result's type."""
        return narrow(self.compute(*map(widen, operands)), run.dtype)


def same_dimensions(opcode: str, operands: tuple[Shape, ...]) -> Shape:
    """The common dimensions of operands: a static size, else the smallest bound; default layout."""
    first = operands[0]
    for operand in operands:
        if not operand.is_array:
            raise ShapeError(f"{opcode} takes arrays, got {operand}", rule=f"{opcode}.operand-arrays")
        same_rank = operand.rank == first.rank
        if not same_rank or any(
            a != b and not (p or q)
            for a, b, p, q in zip(
                operand.dimensions, first.dimensions, operand.dynamic_dimensions, first.dynamic_dimensions, strict=True
            )
        ):
            message = f"{opcode} takes operands of equal dimensions, got {', '.join(map(str, operands))}"
            raise ShapeError(message, rule=f"{opcode}.same-dimensions")
    if len(operands) == 1 or not any(operand.is_dynamic for operand in operands):
        return Shape(first.element_type, first.dimensions, first.dynamic_dimensions)
    pairs = [
        _merged_dimension([(o.dimensions[i], o.dynamic_dimensions[i]) for o in operands]) for i in range(first.rank)
    ]
    return Shape(first.element_type, tuple(d for d, _ in pairs), tuple(dynamic for _, dynamic in pairs))


def _merged_dimension(sizes: list[tuple[int, bool]]) -> tuple[int, bool]:
    static = [size for size, dynamic in sizes if not dynamic]
    if static:
        return static[0], False
    bounds = [size for size, _ in sizes if size != Shape.UNBOUNDED]
    return (min(bounds) if bounds else Shape.UNBOUNDED), True


def joint_element_type(opcode: str, operands: tuple[Shape, ...]) -> ElementType:
    """The common element type: equal types, or the widest of several floats."""
    types = [operand.element_type for operand in operands]
    if all(t is types[0] for t in types):
        return types[0]
    if all(t.is_floating for t in types):
        return max(types, key=lambda t: t.bits)
    message = f"{opcode} takes operands of one element type, got {', '.join(t.name for t in types)}"
    raise ShapeError(message, rule=f"{opcode}.same-element-type")


def widen(array: Array) -> Array:
    """The array in the type it is computed in: at least f32 for floats, at least a byte for integers."""
    import numpy as np

    element_type = ElementType.from_dtype(array.dtype)
    if element_type.is_floating and element_type.bits < 32:
        return array.astype(np.float32)
    if element_type.is_integer and element_type.bits < 8:
        return array.astype(np.int8 if element_type.is_signed else np.uint8)
    return array


def narrow(array: Any, dtype: np.dtype[Any]) -> Array:
    """The array in the result's type: floats rounded to nearest even, integers wrapped."""
    import numpy as np

    result = np.asarray(array)
    if result.dtype == dtype:
        return result
    target = ElementType.from_dtype(dtype)
    if target.is_integer and target.bits < 8:
        mask = (1 << target.bits) - 1
        bits = result.astype(np.int8) & np.int8(mask)
        if target.is_signed:
            sign = np.int8(1 << (target.bits - 1))
            bits = (bits ^ sign) - sign
        return bits.astype(dtype)
    with np.errstate(all="ignore"):
        return result.astype(dtype)
