"""What a function of the page accepts as an argument, and how it becomes a value of the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from hloom.builder.argument_errors import UNFIT, refuse
from hloom.builder.builder import XlaBuilder, XlaOp
from hloom.errors import HloError, ShapeError
from hloom.shape.element_type import S32, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

Operand: TypeAlias = Any
"""An XlaOp, or something that becomes a constant: a Python number, a list of numbers, an array, a Literal."""
Operands: TypeAlias = Any
"""One Operand or a sequence of them."""
ElementTypeLike: TypeAlias = Any
"""An ElementType, its name ("f32"), or a numpy dtype."""

P = ParamSpec("P")
R = TypeVar("R")


def page_function(**aliases: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function be called in every way that the page and XlaBuilder show.

    A builder as first argument is accepted, and not needed, where the operands have one; `aliases` are other
    spellings of keywords, because the page's signatures and tables do not always agree.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> R:
            if arguments and isinstance(arguments[0], XlaBuilder):
                arguments = arguments[1:]
            for alias, name in aliases.items():
                if alias in keywords:
                    keywords[name] = keywords.pop(alias)
            try:
                return function(*arguments, **keywords)
            except UNFIT as error:
                refuse(error, call.__name__, function, arguments, keywords)

        return cast("Callable[P, R]", call)

    return decorate


def element_type_of(wanted: ElementTypeLike) -> ElementType:
    """The element type that an argument names."""
    if isinstance(wanted, ElementType):
        return wanted
    return ElementType.parse(wanted) if isinstance(wanted, str) else ElementType.from_dtype(wanted)


def shape_of(wanted: Shape | str) -> Shape:
    """The shape that an argument gives or spells."""
    return Shape.parse(wanted) if isinstance(wanted, str) else wanted


def constant(builder: XlaBuilder, value: Any, element_type: ElementTypeLike | None = None) -> XlaOp:
    """A constant instruction; without `element_type` the literal's own rules choose it.

    Raises ShapeError for a value that the element type cannot hold.
    """
    if isinstance(value, Literal) or element_type is None:
        literal = Literal(value)
    else:
        literal = _converted(value, element_type_of(element_type))
    return builder.emit("constant", shape=literal.shape, literal=literal)


def _converted(value: Any, element_type: ElementType) -> Literal:
    plain = value
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        if array.dtype == element_type.dtype:
            return Literal(array)
        plain = array.tolist()
    return Literal(plain, Shape(element_type, np.shape(plain)))


def as_op(value: Operand, like: XlaOp, element_type: ElementType | None = None) -> XlaOp:
    """The value as an XlaOp of `like`'s builder; a constant takes the element type of `like`."""
    if isinstance(value, XlaOp):
        return value
    wanted = element_type or (like.shape.element_type if like.shape.is_array else None)
    return constant(like.builder, value, wanted)


def as_ops(*values: Operand) -> list[XlaOp]:
    """The values as XlaOps: those that are none become constants of the first XlaOp's element type.

    Raises HloError if none is an XlaOp: then no builder is known.
    """
    like = an_op(*values)
    return [as_op(value, like) for value in values]


def pair(lhs: Operand, rhs: Operand) -> tuple[XlaOp, XlaOp]:
    """Two operands as XlaOps."""
    left, right = as_ops(lhs, rhs)
    return left, right


def an_op(*values: Operand) -> XlaOp:
    """The first XlaOp among values and sequences of values; it knows the builder."""
    for value in values:
        if isinstance(value, XlaOp):
            return value
        if isinstance(value, list | tuple):
            for element in cast("Sequence[Any]", value):
                if isinstance(element, XlaOp):
                    return element
    raise HloError(
        "at least one operand must be an XlaOp; others become constants beside it", rule="builder.operand"
    )


def value_list(values: Operands) -> list[Operand]:
    """A sequence as a list, anything else as a list of one."""
    return list(cast("Sequence[Any]", values)) if isinstance(values, list | tuple) else [values]


def op_list(values: Operands) -> list[XlaOp]:
    """One XlaOp, or a sequence of them, as a list; numbers become constants of the first one's type."""
    if isinstance(values, XlaOp):
        return [values]
    if not isinstance(values, list | tuple):
        raise HloError(f"an XlaOp or a sequence of them is wanted, got {values!r}", rule="builder.operand")
    sequence = cast("Sequence[Any]", values)
    return as_ops(*sequence) if sequence else []


def index_ops(builder: XlaBuilder, indices: Operands) -> list[XlaOp]:
    """Scalar start indices: XlaOps, or integers, which become s32 (or the type of an XlaOp among them).

    One XlaOp of rank 1 is taken apart into its scalars, as in the page's older form.
    """
    from hloom.builder.data_movement import Reshape, Slice

    if isinstance(indices, XlaOp):
        if indices.shape.rank == 0:
            return [indices]
        count = indices.shape.dimension(0)
        return [Reshape(Slice(indices, [i], [i + 1], [1]), ()) for i in range(count)]
    sequence = cast("Sequence[Any]", indices)
    element_type = next((i.shape.element_type for i in sequence if isinstance(i, XlaOp)), S32)
    return [i if isinstance(i, XlaOp) else constant(builder, i, element_type) for i in sequence]


def integers(values: Any, what: str) -> tuple[int, ...]:
    """A sequence of integers as a tuple; raises ShapeError for anything else."""
    try:
        return tuple(int(value.__index__()) for value in values)
    except (TypeError, AttributeError):
        raise ShapeError(
            f"{what} is a sequence of integers, got {values!r}", rule="builder.integers"
        ) from None
