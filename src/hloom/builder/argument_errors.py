"""Errors about arguments of a wrong kind in calls of the builder's functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NoReturn, cast

from hloom.builder.builder import XlaBuilder, XlaOp
from hloom.builder.enumerations import is_flag
from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.shape.shape import Shape

_RULE: Final = "builder.argument"
UNFIT: Final = (TypeError, ValueError, AttributeError, LookupError, OverflowError)


def refuse(
    error: Exception,
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> NoReturn:
    """Raise the fitting error for a failure of the function that users call by `name`.

    An argument of a wrong kind is an HloError that names it. A call whose arguments are too few, too many or
    misnamed stays Python's TypeError.
    """
    if isinstance(error, HloError) and error.rule != _RULE:
        raise error
    try:
        bound = inspect.signature(function).bind(*arguments, **keywords).arguments
    except TypeError:
        raise error from None
    culprit = _culprit(function, bound)
    if isinstance(error, HloError) and not culprit:
        raise error
    raise HloError(f"{name}: {culprit or error}", rule=_RULE) from error


def _culprit(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Return the name of the first argument that contradicts its annotation; empty if none does."""
    parameters = inspect.signature(function).parameters
    for name, value in given.items():
        kind = str(parameters[name].annotation).removesuffix(" | None")
        if kind not in _KINDS or (value is None and kind != str(parameters[name].annotation)):
            continue
        words, fits = _KINDS[kind]
        if not fits(value):
            return f"{name} is {words}, got {value!r}"
    return ""


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__")


def _is_sequence_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_sequence(value: object) -> bool:
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return listed and all(map(fits, cast("Sequence[Any]", value)))

    return is_sequence


def _is_one_of(*classes: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, classes)


_INTEGERS: Final = _is_sequence_of(_is_integer)
_KINDS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "Computation": ("a computation", _is_one_of(HloModule, HloComputation)),
    "Mapping[str, Any]": ("a dictionary", _is_one_of(Mapping)),
    "Mapping[str, Sequence[int]]": ("a dictionary of sequences of integers", _is_one_of(Mapping)),
    "Padding": (
        "SAME, VALID or a sequence of (low, high)",
        lambda value: isinstance(value, str) or _is_sequence_of(_INTEGERS)(value),
    ),
    "ReplicaGroupsLike": ("a sequence of sequences of integers", _is_sequence_of(_INTEGERS)),
    "Sequence[Any]": ("a sequence", _is_one_of(Sequence)),
    "Sequence[Operand]": ("a sequence", _is_one_of(Sequence)),
    "Sequence[XlaOp]": ("a sequence of XlaOps", _is_sequence_of(_is_one_of(XlaOp))),
    "Sequence[bool]": ("a sequence of bools", _is_sequence_of(is_flag)),
    "Sequence[int]": ("a sequence of integers", _INTEGERS),
    "Sequence[tuple[int, int]]": ("a sequence of pairs of integers", _is_sequence_of(_INTEGERS)),
    "Shape": ("a Shape", _is_one_of(Shape)),
    "Shape | str": ("a shape", _is_one_of(Shape, str)),
    "Word": ("a string", _is_one_of(str, int, Enum)),
    "XlaBuilder": ("an XlaBuilder", _is_one_of(XlaBuilder)),
    "XlaOp": ("an XlaOp", _is_one_of(XlaOp)),
    "bool": ("True or False", is_flag),
    "float": ("a number", _is_one_of(int, float)),
    "int": ("an integer", _is_integer),
    "str": ("a string", _is_one_of(str)),
}
"""The annotations of the functions' parameters: in words, and as a predicate."""
