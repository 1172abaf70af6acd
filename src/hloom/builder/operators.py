"""Python's operators on values of a program under construction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from hloom.errors import HloError
from hloom.hooks import EntryPoint

if TYPE_CHECKING:
    from hloom.builder.builder import XlaOp

# Entry points, because the functions of the builder import the class that has these operators.
_DOT: Final[EntryPoint[[Any, Any], XlaOp]] = EntryPoint("hloom.builder.contraction:Dot")
_INDEX_VALUE: Final[EntryPoint[[XlaOp, Any], XlaOp]] = EntryPoint("hloom.builder.data_movement:index_value")
_GET_TUPLE_ELEMENT: Final[EntryPoint[[XlaOp, int], XlaOp]] = EntryPoint(
    "hloom.builder.data_movement:GetTupleElement"
)


def _binary(function: str, *, reflected: bool = False) -> Callable[[Any, Any], XlaOp]:
    apply: EntryPoint[[object, object], XlaOp] = EntryPoint(f"hloom.builder.elementwise:{function}")

    def operator(self: object, other: object) -> XlaOp:
        return apply(other, self) if reflected else apply(self, other)

    operator.__doc__ = f"`{function}`, with the operands exchanged." if reflected else f"`{function}`."
    return operator


def _unary(function: str) -> Callable[[Any], XlaOp]:
    apply: EntryPoint[[object], XlaOp] = EntryPoint(f"hloom.builder.elementwise:{function}")

    def operator(self: object) -> XlaOp:
        return apply(self)

    operator.__doc__ = f"`{function}`."
    return operator


class Operators:
    """The operators of `XlaOp`: each appends the instruction of the same meaning in XLA.

    `/` on integers truncates and `%` takes the sign of the dividend, as the operations do; `>>` is arithmetic
    on signed and logical on unsigned integers.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy arrays leave the operator to the XlaOp on their right

    __add__ = _binary("Add")
    __radd__ = _binary("Add", reflected=True)
    __sub__ = _binary("Sub")
    __rsub__ = _binary("Sub", reflected=True)
    __mul__ = _binary("Mul")
    __rmul__ = _binary("Mul", reflected=True)
    __truediv__ = _binary("Div")
    __rtruediv__ = _binary("Div", reflected=True)
    __mod__ = _binary("Rem")
    __rmod__ = _binary("Rem", reflected=True)
    __pow__ = _binary("Pow")
    __rpow__ = _binary("Pow", reflected=True)
    __and__ = _binary("And")
    __rand__ = _binary("And", reflected=True)
    __or__ = _binary("Or")
    __ror__ = _binary("Or", reflected=True)
    __xor__ = _binary("Xor")
    __rxor__ = _binary("Xor", reflected=True)
    __lshift__ = _binary("ShiftLeft")
    __rlshift__ = _binary("ShiftLeft", reflected=True)
    __rshift__ = _binary("ShiftRight")
    __rrshift__ = _binary("ShiftRight", reflected=True)
    __lt__ = _binary("Lt")
    __le__ = _binary("Le")
    __gt__ = _binary("Gt")
    __ge__ = _binary("Ge")
    __eq__ = _binary("Eq")  # pyright: ignore[reportAssignmentType]
    __ne__ = _binary("Ne")  # pyright: ignore[reportAssignmentType]
    __neg__ = _unary("Neg")
    __abs__ = _unary("Abs")
    __invert__ = _unary("Not")
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise HloError(
            f"{self!r} has no truth value while the program is built; use Select or Conditional",
            rule="builder.no-truth-value",
        )

    def __matmul__(self, other: object) -> XlaOp:
        return _DOT(self, other)

    def __rmatmul__(self, other: object) -> XlaOp:
        return _DOT(other, self)

    def __getitem__(self, index: object) -> XlaOp:
        """Return an element of a tuple, or a numpy-style slice of an array."""
        return _INDEX_VALUE(cast("XlaOp", self), index)

    def __iter__(self) -> Iterator[XlaOp]:
        """Yield the elements of a tuple; arrays are not iterable."""
        op = cast("XlaOp", self)
        if not op.shape.is_tuple:
            raise HloError(f"{op!r} is not a tuple and cannot be iterated over", rule="builder.iterate-tuple")
        return iter([_GET_TUPLE_ELEMENT(op, i) for i in range(len(op.shape.tuple_shapes))])
