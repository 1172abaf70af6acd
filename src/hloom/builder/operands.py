"""The arguments that a function of the page accepts, and their conversion to values of the builder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from hloom.builder.argument_errors import UNFIT, refuse
from hloom.builder.builder import XlaBuilder, XlaOp
from hloom.errors import HloError, ShapeError
from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.shape.element_type import S32, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

Operand: TypeAlias = Any
"""An XlaOp, or a value that becomes a constant: a Python number, a list of numbers, an array, a Literal."""
Operands: TypeAlias = Any
"""One Operand or a sequence of them."""
ElementTypeLike: TypeAlias = Any
"""An ElementType, its name ("f32"), or a numpy dtype."""

Arrange: TypeAlias = "Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]"
"""Rewrites the positional arguments of a call; may turn some of them into keywords."""

P = ParamSpec("P")
R = TypeVar("R")


def page_function(
    *, star: str = "", arrange: Arrange | None = None, keep_builder: bool = False, **aliases: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept every form of call that the page and XlaBuilder show.

    A builder as first argument is accepted, and not needed, where the operands have one.

    Args:
        star: the name of the function's starred parameter, which may be given by keyword too.
        keep_builder: the function handles a leading builder itself, as those with a parameter `builder` do.
        arrange: puts positional arguments that the page writes one by one (`operands...`) into lists.
        aliases: other spellings of keywords, because the page's signatures and tables do not always agree.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = list(inspect.signature(function).parameters)
        before_star = names[: names.index(star)] if star else []
        takes_builder = keep_builder or names[:1] == ["builder"]

        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> R:
            if arguments and isinstance(arguments[0], XlaBuilder) and not takes_builder:
                arguments = arguments[1:]
            for alias, name in aliases.items():
                if alias in keywords:
                    keywords[name] = keywords.pop(alias)
            if star in keywords:
                leading = [keywords.pop(name) for name in before_star[len(arguments) :] if name in keywords]
                arguments = (*arguments, *leading, *value_list(keywords.pop(star)))
            if arrange is not None:
                arguments = arrange(arguments, keywords)
            try:
                return function(*arguments, **keywords)
            except UNFIT as error:
                refuse(error, call.__name__, function, arguments, keywords)

        call.keywords = frozenset(aliases)  # type: ignore[attr-defined]
        return cast("Callable[P, R]", call)

    return decorate


def is_value(given: object) -> bool:
    """Return whether an argument can only be one operand: an XlaOp, a number, a numpy array or a Literal."""
    return isinstance(given, XlaOp | Literal | int | float | complex) or hasattr(given, "dtype")


def leading_operands(arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[Any, ...]:
    """Collect XlaOps written one by one at the beginning: ``f(a, b, c, rest)`` is ``f([a, b, c], rest)``."""
    count = 0
    while count < len(arguments) and isinstance(arguments[count], XlaOp):
        count += 1
    if count < 2 and not (count and "operands" in keywords):
        return arguments
    return ([*arguments[:count]], *arguments[count:])


def before_computation(*groups: str) -> Arrange:
    """Return an arrangement that collects the operands written one by one before the first computation.

    The groups have as many members each, except that a group named with a dot in front has exactly one:
    ``f(a, b, x, y, add, rest)`` with the groups ``operands init_values`` is ``f([a, b], [x, y], add, rest)``.
    Groups given by keyword are not among the positional ones.
    """

    def arrange(arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[Any, ...]:
        positional = [group for group in groups if group.removeprefix(".") not in keywords]
        places = [i for i, a in enumerate(arguments) if isinstance(a, HloModule | HloComputation)]
        end = places[0] if places else len(arguments)
        many = [group for group in positional if not group.startswith(".")]
        singles = len(positional) - len(many)
        if end <= len(positional) or not many or (end - singles) % len(many):
            return arguments
        if not all(map(is_value, arguments[:end])):
            return arguments
        each, position = (end - singles) // len(many), 0
        arranged: list[object] = []
        for group in positional:
            size = 1 if group.startswith(".") else each
            consumed = list(arguments[position : position + size])
            arranged.append(consumed[0] if group.startswith(".") else consumed)
            position += size
        return (*arranged, *arguments[end:])

    return arrange


def element_type_of(wanted: ElementTypeLike) -> ElementType:
    """Return the element type that an argument names: itself, its name, its proto number or a numpy dtype."""
    if isinstance(wanted, ElementType):
        return wanted
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return ElementType.from_number(wanted)
    return ElementType.parse(wanted) if isinstance(wanted, str) else ElementType.from_dtype(wanted)


def shape_of(wanted: Shape | str) -> Shape:
    """Return the shape that an argument is or spells."""
    return Shape.parse(wanted) if isinstance(wanted, str) else wanted


def constant(builder: XlaBuilder, value: object, element_type: ElementTypeLike | None = None) -> XlaOp:
    """Emit a constant; without `element_type` the literal's own rules choose the type.

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
    """Return the value as an XlaOp of `like`'s builder; a constant takes the element type of `like`."""
    if isinstance(value, XlaOp):
        return value
    expected = element_type or (like.shape.element_type if like.shape.is_array else None)
    return constant(like.builder, value, expected)


def as_ops(*values: Operand) -> list[XlaOp]:
    """Return the values as XlaOps; others become constants of the first XlaOp's element type.

    Raises HloError if none is an XlaOp: then no builder is known.
    """
    like = an_op(*values)
    return [as_op(value, like) for value in values]


def pair(lhs: Operand, rhs: Operand) -> tuple[XlaOp, XlaOp]:
    """Return two operands as XlaOps."""
    first, second = as_ops(lhs, rhs)
    return first, second


def an_op(*values: Operand) -> XlaOp:
    """Return the first XlaOp among values and sequences of values, which has the builder."""
    for value in values:
        if isinstance(value, XlaOp):
            return value
        if isinstance(value, list | tuple):
            for element in cast("Sequence[Any]", value):
                if isinstance(element, XlaOp):
                    return element
    raise HloError(
        "at least one operand must be an XlaOp; the others become constants", rule="builder.operand"
    )


def value_list(values: Operands) -> list[Operand]:
    """Return a sequence as a list, anything else as a list of one."""
    return list(cast("Sequence[Any]", values)) if isinstance(values, list | tuple) else [values]


def op_list(values: Operands) -> list[XlaOp]:
    """Return one XlaOp or a sequence as a list; numbers become constants of the first one's type."""
    if isinstance(values, XlaOp):
        return [values]
    if not isinstance(values, list | tuple):
        raise HloError(f"operands are XlaOps, got {values!r}", rule="builder.operand")
    sequence = cast("Sequence[Any]", values)
    return as_ops(*sequence) if sequence else []


def index_ops(builder: XlaBuilder, indices: Operands) -> list[XlaOp]:
    """Return scalar start indices: XlaOps, or integers, which become s32 (or an XlaOp's type).

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
    """Return a sequence of integers as a tuple; raises ShapeError for anything else."""
    try:
        return tuple(int(value.__index__()) for value in values)
    except (TypeError, AttributeError):
        raise ShapeError(
            f"{what} is a sequence of integers, got {values!r}", rule="builder.integers"
        ) from None


def sizes_of(values: object, what: str) -> tuple[int, ...]:
    """Return a sequence of sizes as a tuple; raises ShapeError for a negative one.

    A size of -1 does not mean "the rest" as in NumPy: shapes follow from the program alone, and an unbounded
    dimension is stated by a Shape.
    """
    sizes = integers(values, what)
    if any(size < 0 for size in sizes):
        raise ShapeError(f"{what} are 0 or more, got {list(sizes)}", rule="builder.sizes")
    return sizes
