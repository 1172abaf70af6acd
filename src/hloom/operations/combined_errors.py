"""Error bounds of elements that a called computation combines: reductions, windows, scatters.

Sums, products, maxima and minima have bounds, also several of them side by side. So has a reduction that
selects one element (argmax). Other computations have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.error_bounds.bounded import Bounded, distance, finite, is_inexact_type, parts_of
from hloom.error_bounds.floating import Array, wide
from hloom.error_bounds.orders import choice
from hloom.error_bounds.rules import no_bound
from hloom.error_bounds.sums import accumulated, growth
from hloom.ir.computation import HloComputation
from hloom.ir.operation import ErrorRun, Operation
from hloom.ir.traits import Family
from hloom.operations.arithmetic import Add, Maximum, Minimum, Multiply
from hloom.operations.conversion import Convert, Copy
from hloom.operations.structure import Tuple


def reduction_errors(run: ErrorRun, axes: tuple[int, ...] | None = None) -> Any:
    """Return the errors of a reduction of one array or of several; along whole axes it may be an argmax."""
    if not run.instruction.shape.is_tuple:
        return combined_errors(run, growth(_terms(run))) if is_inexact_type(run.value) else _integers(run)
    values = parts_of(run.value)
    computation = run.instruction.called_computations[-1]
    if all(combiner(computation, n) is not None for n in range(len(values))):
        return tuple(_errors_of_output(run, n, value) for n, value in enumerate(values))
    selected = choice(run.operands[: len(values)], values, axes) if axes is not None and run.inexact else None
    if selected is None:
        raise no_bound(run, "of several inexact arrays selects neither the largest nor the smallest element")
    return tuple(selected)


def _terms(run: ErrorRun) -> float:
    return run.instruction.operation.terms(*(np.shape(o.value) for o in run.operands))


def _errors_of_output(run: ErrorRun, output: int, value: Array) -> Array:
    if is_inexact_type(value):
        return combined_errors(run, growth(_terms(run)), output=output)
    if any(run.operands[n].error is not None for n in (output, len(run.value) + output)):
        raise no_bound(run, f"has a result of undecided {value.dtype}")
    return np.zeros(value.shape)


def combined_errors(
    run: ErrorRun,
    rate: object,
    *,
    output: int | None = None,
    in_place: bool = False,
    selector: int | None = None,
    moved: object = 0.0,
) -> Array:
    """Return the bound of sums, products, maxima or minima of floats.

    Args:
        rate: the `growth` of the number of terms.
        output: the result, of several.
        in_place: each partial result is rounded to the result's type.
        selector: the operand by which terms are selected.
        moved: the largest sum that another selection moves to each element.
    """
    operation = combiner(run.instruction.called_computations[-1], output)
    value: Array = run.value if output is None else run.value[output]

    def applied(arrays: list[Array]) -> Array:
        terms = [n != selector and is_inexact_type(o.value) for n, o in enumerate(run.operands)]
        values = [a if term else o.value for a, term, o in zip(arrays, terms, run.operands, strict=True)]
        return run.apply(values, output)

    errors = [o.spread for o in run.operands]
    if isinstance(operation, Maximum | Minimum):
        sign = 1 if isinstance(operation, Maximum) else -1
        return np.abs(applied([sign * e for e in errors]))
    size = applied([finite(o.value) + o.spread for o in run.operands]) + moved
    if isinstance(operation, Add):
        propagated = applied(errors) + moved
    elif isinstance(operation, Multiply):
        propagated = size - finite(value)
    else:
        raise no_bound(run, "combines by another operation than add, multiply, maximum or minimum")
    in_place = in_place or run.rounds_partial_sums
    return propagated + accumulated(value, size, rate, propagated, in_place=in_place)


def combiner(computation: HloComputation, output: int | None = None) -> Operation | None:
    """Return the add, multiply, maximum or minimum that is all a computation computes; None for others.

    Args:
        output: of several results, one that is combined from its own two parameters.
    """
    if output is None:
        steps = [i for i in computation.instructions if not _forwards(i.operation)]
        operation = steps[0].operation if len(steps) == 1 else None
    else:
        root, parameters = computation.root, computation.parameters
        step = root.operands[output] if isinstance(root.operation, Tuple) else root
        pair = {parameters[output], parameters[len(parameters) // 2 + output]}
        operation = step.operation if len(step.operands) == 2 and set(step.operands) == pair else None
    return operation if isinstance(operation, Add | Multiply | Maximum | Minimum) else None


def _forwards(operation: Operation) -> bool:
    return operation.family is Family.STRUCTURE or isinstance(operation, Convert | Copy)


def _integers(run: ErrorRun) -> Array:
    """Return the errors of a sum, maximum, minimum, conjunction or disjunction of undecided integers."""
    if any(np.isinf(o.spread).any() for o in run.operands):
        raise no_bound(run, "of integers that may have any value")
    steps = [i.operation for i in run.instruction.called_computations[0].instructions]
    operations = {operation for operation in steps if operation.family is not Family.STRUCTURE}
    monotone = [operation.idempotent or isinstance(operation, Add) for operation in operations]
    if monotone != [True]:
        opcodes = ", ".join(sorted(operation.opcode for operation in operations))
        raise no_bound(run, f"of undecided integers by {opcodes}")
    ends = [run.apply([_end(o, sign) for o in run.operands]) for sign in (-1, 1)]
    return np.maximum(*(distance(end, run.value) for end in ends))


def _end(o: Bounded, sign: int) -> Array:
    if o.value.dtype == np.bool_:
        return o.value | (o.spread > 0) if sign > 0 else o.value & ~(o.spread > 0)
    return wide(o.value) + sign * o.spread
