"""Bounds of results that a comparison, a rounding to integers, or an order decides.

Where the numbers that are compared lie within their bounds of each other, either outcome is right: the
predicate is undecided, and what is selected by it may be either value. So its bound grows by the distance of
the two. Sorting moves the k-th value by no more than the errors of the keys; what is sorted along with keys
of undecided order may be any value of those. Rounding to integers is monotone, so that the results at both
ends of the interval are the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from hloom.debug.bounded import Applies, Bounded, NoBound, bounded, distance, parts_of
from hloom.debug.floating import Array, wide
from hloom.debug.orders import Order, choice, order_of
from hloom.ir.instruction import HloInstruction
from hloom.shape.element_type import ElementType

Decision = Callable[[Applies, HloInstruction, list[Any], Any], Any]


# -- predicates


def compare(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """Predicates of numbers nearer to each other than their errors are undecided."""
    a, b = operands
    if i.operands[0] is i.operands[1]:
        return Bounded(value)
    extreme = _extreme(i, a, b)
    if extreme is not None:
        return bounded(value, extreme)
    error = a.spread + b.spread
    x, y = wide(a.value), wide(b.value)
    undecided = (error > 0) & ~(np.abs(x - y) > error) & ~np.isnan(x) & ~np.isnan(y)
    return bounded(value, undecided.astype(np.float64))


def _extreme(i: HloInstruction, a: Bounded, b: Bounded) -> Array | None:
    """Return where a comparison of an array with its own maximum or minimum is undecided; else None.

    The extreme is one of the elements, so that the only element within the errors of it is equal to it.
    """
    if i.operation.direction not in ("EQ", "NE"):  # type: ignore[attr-defined]
        return None
    whole, other, reduced = (a, b, i.operands[1]) if a.error is not None else (b, a, i.operands[0])
    array = i.operands[0] if reduced is i.operands[1] else i.operands[1]
    while reduced.opcode in ("broadcast", "reshape", "copy"):
        reduced = reduced.operands[0]
    if reduced.opcode != "reduce" or reduced.operands[0] is not array or not reduced.shape.is_array:
        return None
    operation: Any = reduced.operation
    axes: tuple[int, ...] = operation.dimensions
    x, error = wide(whole.value), whole.spread
    for sign in (1, -1):
        if np.array_equal(
            np.broadcast_to(np.max(sign * x, axes, keepdims=True), x.shape), sign * wide(other.value)
        ):
            least = np.max(sign * x - error, axes, keepdims=True)
            near = sign * x + error >= least
            return (near & (near.sum(axes, keepdims=True) > 1)).astype(np.float64)
    return None


def logical(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """A conjunction is decided where one false operand is."""
    if value.dtype != np.bool_:
        return _of_bits(operands, value)
    true = [o.value | (o.spread > 0) for o in operands]
    false = [~o.value | (o.spread > 0) for o in operands]
    if i.opcode == "and":
        undecided = (true[0] & true[1]) & (false[0] | false[1])
    elif i.opcode == "or":
        undecided = (true[0] | true[1]) & (false[0] & false[1])
    else:
        undecided = np.logical_or.reduce([o.spread > 0 for o in operands])
    return bounded(value, undecided.astype(np.float64))


def _of_bits(operands: list[Bounded], value: Array) -> Bounded:
    """Bits of an undecided integer may be any."""
    unknown = np.logical_or.reduce(np.broadcast_arrays(*(o.spread > 0 for o in operands)))
    return bounded(value, np.where(unknown, np.inf, 0.0))


def is_finite(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """A number is finite if both ends of its interval are; an error without limit says nothing."""
    return bounded(value, np.isinf(operands[0].spread).astype(np.float64))


def select(run: Applies, i: HloInstruction, operands: list[Bounded], value: Any) -> Any:
    """Allow either value at elements whose predicate is undecided."""
    which, a, b = operands
    chosen = np.where(which.value, a.spread, b.spread)
    either = distance(a.value, b.value) + np.maximum(a.spread, b.spread)
    return bounded(value, np.where(which.spread > 0, either, chosen))


def spanned(a: Any, b: Any) -> Any:
    """Return a value that may be another one, too; of tuples each element."""
    if isinstance(a, tuple):
        return tuple(spanned(x, y) for x, y in zip(cast("Any", a), b, strict=True))
    if a.value is None:
        return a
    return bounded(a.value, distance(a.value, b.value) + np.maximum(a.spread, b.spread))


# -- integers


def step(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """Return a monotone function that rounds to integers with the distance of its values at both ends.

    Conversions between integers wrap around, as their arithmetic does.
    """
    (x,) = operands
    if value.dtype == np.bool_:
        undecided = (x.spread > 0) & ~(np.abs(wide(x.value)) > x.spread)
        return bounded(value, undecided.astype(np.float64))
    if ElementType.from_dtype(x.value.dtype).is_integer:
        return arithmetic(run, i, operands, value)
    middle = wide(x.value)
    ends = [run.applied(i, [np.where(np.isnan(middle), middle, middle + s * x.spread)]) for s in (-1, 1)]
    return bounded(value, np.maximum(*(distance(end, value) for end in ends)))


def arithmetic(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """Return an integer with the propagated errors, which wrap around like the numbers."""
    sizes, spreads = [np.abs(wide(o.value)) for o in operands], [o.spread for o in operands]
    if i.opcode == "multiply":
        error = sizes[0] * spreads[1] + spreads[0] * sizes[1] + spreads[0] * spreads[1]
    elif i.opcode in ("maximum", "minimum", "clamp"):
        error = np.max(np.broadcast_arrays(*spreads), axis=0)
    else:
        error = sum(spreads)
    kind = np.iinfo(value.dtype) if value.dtype.kind in "iu" and value.dtype.itemsize > 0 else None
    exact = np.asarray(error) == 0
    if kind is None:
        return bounded(value, np.where(exact, 0.0, np.inf))
    held = (wide(value) - error >= kind.min) & (wide(value) + error <= kind.max)
    return bounded(value, np.where(exact | held, error, np.inf))


def unknown(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """Nothing can be said about bits and remainders of an undecided integer."""
    return _of_bits(operands, value)


def reduced_integers(run: Applies, i: HloInstruction, operands: list[Bounded], value: Any) -> Bounded:
    """Return a sum, maximum, minimum, conjunction or disjunction of undecided integers or predicates."""
    if any(np.isinf(o.spread).any() for o in operands):
        raise NoBound(f"{i.opcode} %{i.name} of integers that may be any")
    ends = [run.applied(i, [_end(o, sign) for o in operands]) for sign in (-1, 1)]
    combiner = {c.opcode for c in i.called_computations[0].instructions} - {"parameter"}
    if len(combiner) != 1 or not combiner <= {"add", "maximum", "minimum", "and", "or"}:
        raise NoBound(f"{i.opcode} %{i.name} of undecided integers by {', '.join(sorted(combiner))}")
    return bounded(value, np.maximum(*(distance(end, value) for end in ends)))


def _end(o: Bounded, sign: int) -> Array:
    if o.value.dtype == np.bool_:
        return o.value | (o.spread > 0) if sign > 0 else o.value & ~(o.spread > 0)
    return wide(o.value) + sign * o.spread


# -- orders


def sort(run: Applies, i: HloInstruction, operands: list[Bounded], value: Any) -> Any:
    """Sorted keys move by their errors; values beside keys of undecided order are any of those."""
    operation: Any = i.operation
    axis: int = operation.dimensions[0]
    comparator = i.called_computations[0]
    keys = [n for n in range(len(operands)) if comparator.parameters[2 * n].users]
    order = order_of(operands[keys[0]], axis, parts_of(value)[keys[0]] if len(operands) > 1 else value)
    if order is None or (len(keys) > 1 and operands[keys[0]].error is None):
        raise NoBound(f"sort %{i.name} orders inexact numbers by another comparison than less or greater")
    if len(operands) == 1:
        return bounded(value, order.key_error(operands[0]))
    return tuple(
        bounded(v, order.key_error(o) if n == keys[0] else order.beside(o))
        for n, (v, o) in enumerate(zip(parts_of(value), operands, strict=True))
    )


def top_k(run: Applies, i: HloInstruction, operands: list[Bounded], value: Any) -> Any:
    """Return the values and indices of a sorted array's beginning."""
    (x,), (largest, index) = operands, parts_of(value)
    axis = x.value.ndim - 1
    descending = _descending(i, x, largest)
    order: Order | None = order_of(x, axis, descending=descending)
    if order is None:
        raise NoBound(f"{i.opcode} %{i.name} orders inexact numbers by another comparison")
    count = largest.shape[-1]
    places = Bounded(np.argsort(np.zeros(x.value.shape), axis=-1, kind="stable"))
    return (
        bounded(largest, order.key_error(x)[..., :count]),
        bounded(index, order.beside(places)[..., :count]),
    )


def _descending(i: HloInstruction, x: Bounded, first: Array) -> bool:
    stated = getattr(i.operation, "largest", None)
    if stated is not None:
        return bool(stated)
    return not first.size or bool(np.array_equal(wide(first[..., 0]), np.max(wide(x.value), -1)))


def reduce(run: Applies, i: HloInstruction, operands: list[Bounded], value: Any) -> Any:
    """Return the extreme and the values beside it (argmax): those of any element within its errors."""
    operation: Any = i.operation
    count = len(operands) // 2
    found = choice(operands[:count], parts_of(value), operation.dimensions)
    if found is None:
        raise NoBound(
            f"reduce %{i.name} of several inexact arrays is not a choice of the largest or smallest"
        )
    return tuple(bounded(v, error) for v, error in zip(parts_of(value), found, strict=True))


# -- places


def taken(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """Elements from undecided places may be any of the array; the others have the errors of theirs."""
    array, places = operands[0], operands[1:]
    error = run.applied(i, [array.spread, *(p.value for p in places)])
    if all(p.error is None for p in places):
        return bounded(value, error)
    numbers: Array = np.arange(array.value.size, dtype=np.float64)
    numbers = numbers.reshape(array.value.shape)
    ends = [run.applied(i, [numbers, *(_moved(p, sign) for p in places)]) for sign in (-1, 1)]
    undecided = ends[0] != ends[1]
    return bounded(value, np.where(undecided, _span(array), error))


def _moved(index: Bounded, sign: int) -> Array:
    kind = np.iinfo(index.value.dtype)
    return np.clip(wide(index.value) + sign * index.spread, kind.min, kind.max).astype(index.value.dtype)


def _span(*arrays: Bounded) -> float:
    """Return the distance of the largest and the smallest of all elements, with their errors."""
    ends = [wide(a.value).real + s * a.spread for a in arrays for s in (-1, 1)]
    if any(np.iscomplexobj(a.value) for a in arrays):
        return max(float(2 * np.max(np.abs(wide(a.value)) + a.spread, initial=0.0)) for a in arrays)
    most = max(float(np.max(e, initial=-np.inf)) for e in ends)
    return most - min(float(np.min(e, initial=np.inf)) for e in ends)


def updated(run: Applies, i: HloInstruction, operands: list[Bounded], value: Array) -> Bounded:
    """An update at an undecided place may be at any, with the old value or the new one there."""
    array, update, *places = operands
    if all(p.error is None for p in places):
        return bounded(value, run.applied(i, [array.spread, update.spread, *(p.value for p in places)]))
    return bounded(value, _span(array, update))


STEPS: Final = ("floor", "ceil", "round-nearest-afz", "round-nearest-even", "sign")
_INTEGERS: Final = ("add", "subtract", "multiply", "negate", "abs", "maximum", "minimum", "clamp")
_BITS: Final = (
    "remainder", "divide", "shift-left", "shift-right-arithmetic", "shift-right-logical", "popcnt",
    "count-leading-zeros", "power", "bitcast-convert",
)  # fmt: skip

OF_ANY: Final[dict[str, Decision]] = {
    "compare": compare,
    "select": select,
    "is-finite": is_finite,
    "sort": sort,
    "topk": top_k,
    "gather": taken,
    "dynamic-slice": taken,
    "dynamic-update-slice": updated,
    **dict.fromkeys(("and", "or", "xor", "not"), logical),
}
"""Rules of inexact operands of any type."""
OF_INTEGERS: Final[dict[str, Decision]] = {
    "convert": step,
    **dict.fromkeys(STEPS, step),
    **dict.fromkeys(_INTEGERS, arithmetic),
    **dict.fromkeys(_BITS, unknown),
}
"""Rules of results that are integers or predicates."""
