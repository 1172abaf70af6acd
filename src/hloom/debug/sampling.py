"""Error bounds from samples: runs of the program with random errors in every operation.

This is discrete stochastic arithmetic (Vignes 1993, "A stochastic arithmetic for reliable scientific
computation"). Interval bounds ignore correlation: a row and its maximum move together, and the errors of a
layer have both signs. After a few layers such bounds exceed the numbers. Here each operation adds its largest
error, with a random sign per element, and the program propagates it. Every second run takes the opposite
signs, so that a comparison that the errors can flip is flipped in one of the two runs. Real rounding errors
are smaller and less regular.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np

from hloom.debug.error_analysis import ErrorAnalysis, ErrorStep, is_exact
from hloom.debug.tracing import program_computations
from hloom.devices.world import VirtualDevice, World
from hloom.error_bounds.bounded import Bounded, Bounds, distance, finite, is_inexact_type, leaves, parts_of
from hloom.error_bounds.floating import Array, ulp, wide
from hloom.error_bounds.rules import ULPS
from hloom.error_bounds.sums import growth
from hloom.errors import NoBound
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.device import Pending
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.traits import Family, Roundoff
from hloom.ir.value import Value
from hloom.operations.conversion import ReducePrecision

PAIRS: Final = 4
"""Pairs of runs with opposite errors."""
MARGIN: Final = 2.0
"""The bound in multiples of the largest deviation among the runs."""
LEAST: Final = 0.5
"""Least deviation taken for an element, relative to the root mean square of its array's deviations."""
CHAOS: Final = 1 / 8
"""No bound is known if the root mean square of deviations exceeds this fraction of that of the numbers."""


def sampled(
    module: HloModule,
    arguments: Sequence[Sequence[Value]],
    values: Sequence[Value],
    *,
    every: bool = False,
) -> list[Bounds]:
    """Estimate bounds of the rounding errors of each device's result; return them nested like the result.

    A bound is a multiple of the largest deviation from ``values`` in `PAIRS` pairs of runs, in which a random
    rounding error is added to the result of every operation. It is infinite if the deviations of an array are
    almost as large as its elements.

    Args:
        module: the program.
        arguments: the arguments of each device.
        values: the result of each device, computed without random errors.
        every: also add errors to results that correct implementations must agree on, such as the sum of two
            numbers.
    """
    pairs = [(seed, sign) for seed in range(PAIRS) for sign in (1, -1)]
    runs = [_run(module, arguments, *pair, every) for pair in pairs]
    with np.errstate(all="ignore"):
        return [_bounds(value, [run[n] for run in runs]) for n, value in enumerate(values)]


def _run(
    module: HloModule, arguments: Sequence[Sequence[Value]], seed: int, sign: int, every: bool
) -> list[Any]:
    """Run the program with random rounding errors (see `Perturbed`); return the result of each device.

    Results whose digits the semantics leave open, such as sums of many numbers, get errors.

    Args:
        module: the program.
        arguments: the arguments of each device.
        seed: seeds the random signs of the errors.
        sign: 1, or -1 for the negatives of the errors that a run with sign 1 and the same seed adds.
        every: add errors also to correctly rounded results, such as the sum of two numbers.
    """
    world = World(module.config.replica_count, module.config.num_partitions)
    by_device = dict(zip(world.devices, arguments, strict=True))
    return world.run(
        lambda device: Perturbed(module, seed, sign, device, every).run(module.entry, by_device[device])
    )


def _bounds(value: Value, runs: Sequence[Value]) -> Bounds:
    if isinstance(value, tuple):
        columns = zip(*(parts_of(run) for run in runs), strict=True)
        return tuple([_bounds(v, column) for v, column in zip(value, columns, strict=True)])
    if value is None:
        return 0.0
    deviation = np.max([distance(run, value) for run in runs], axis=0)
    if not is_inexact_type(value) or not deviation.any():
        return deviation
    usual = _mean(np.where(np.isfinite(deviation), deviation, 0.0))
    if usual > CHAOS * _mean(finite(value)):
        return np.where(deviation > 0, np.inf, 0.0)
    least = LEAST * usual
    return MARGIN * np.maximum(deviation, least) + ulp(wide(value), value.dtype)


def _mean(magnitudes: Array) -> float:
    """Return the root mean square of all elements of ``magnitudes``."""
    return float(np.sqrt(np.mean(magnitudes * magnitudes)))


class Perturbed(Evaluator):
    """An evaluator that adds to or subtracts from each computed float its largest possible rounding error.

    Args:
        module: the program.
        seed: seeds the random choice between addition and subtraction for each element.
        sign: 1, or -1 to exchange addition and subtraction.
        device: the device that runs the program.
        every: also change, by one unit in the last place, results that correct implementations must agree on,
            such as the sum of two numbers.
    """

    def __init__(
        self, module: HloModule, seed: int, sign: int, device: VirtualDevice, every: bool = False
    ) -> None:
        super().__init__(device)
        self.analysis = ErrorAnalysis(module)
        self.random = np.random.default_rng(seed)
        self.sign = sign
        self.every = every
        self.programs = program_computations(module.entry)

    def evaluation(self, instruction: HloInstruction) -> Callable[..., Any]:
        """Return a function that evaluates an instruction and adds random rounding errors to its value."""
        evaluate = super().evaluation(instruction)
        if instruction.parent not in self.programs:
            return evaluate
        if is_exact(instruction):
            if not (self.every and _is_arithmetic(instruction)):
                return evaluate

            def rounded(run: Any, *operands: Any) -> Any:
                value = evaluate(run, *operands)
                return self._moved(value, ulp(wide(value), value.dtype))

            return rounded

        def with_errors(run: Any, *operands: Any) -> Any:
            return self.perturbed(instruction, operands, evaluate(run, *operands))

        return with_errors

    def perturbed(self, i: HloInstruction, operands: Sequence[Any], value: Any) -> Any:
        """Return ``value``, that of instruction ``i``, plus or minus its largest rounding error, elementwise.

        The value of an asynchronous operation gets its errors at its done instruction.
        """
        if i.operation.begun_by:
            error = ULPS * ulp(2 * finite(value), value.dtype) if _sums_devices(i.operation) else None
            return value if error is None else self._moved(value, error)
        if isinstance(value, Pending):
            return value
        step = ErrorStep(self.analysis, i, [Bounded(o) for o in operands], value)
        if isinstance(value, tuple):
            if i.operation.roundoff_of(i) is not Roundoff.ACCUMULATED:
                return cast("Any", value)
            errors = zip(parts_of(value), parts_of(self._own_error(step)), strict=True)
            return tuple(self._moved(v, error) for v, error in errors)
        return self._moved(value, self._own_error(step)) if is_inexact_type(value) else value

    def _own_error(self, step: ErrorStep) -> Any:
        operation, value = step.instruction.operation, step.value
        if _sums_devices(operation):  # the terms of other devices are unknown: assume equally large ones
            largest = max(
                float(np.max(finite(leaf.value), initial=0.0)) for o in step.operands for leaf in leaves(o)
            )
            return np.broadcast_to(ULPS * ulp(finite(value) + largest, value.dtype), value.shape)
        try:
            return operation.errors(step)
        except NoBound:  # a combination by an arbitrary function: each call may have this error
            terms = operation.terms(*(np.shape(leaf.value) for o in step.operands for leaf in leaves(o)))
            units = ULPS * growth(terms)
            parts = parts_of(value) if isinstance(value, tuple) else (value,)
            errors = [units * ulp(wide(v), v.dtype) if is_inexact_type(v) else 0.0 for v in parts]
            return tuple(errors) if isinstance(value, tuple) else errors[0]

    def _moved(self, value: Array, error: Array) -> Array:
        signs = 2.0 * self.random.integers(0, 2, np.shape(value)) - 1.0
        return np.asarray(wide(value) + self.sign * signs * error).astype(value.dtype)


def _is_arithmetic(i: HloInstruction) -> bool:
    """Return whether an instruction computes floats from floats of the same type, and rounds once.

    ``reduce-precision`` does not count: the program asks for exactly its rounding.
    """
    if not i.shape.is_array or i.operation.roundoff_of(i) is not Roundoff.ONCE:
        return False
    kind = i.shape.element_type
    same = all(o.shape.element_type == kind for o in i.operands)
    return same and (kind.is_floating or kind.is_complex) and not isinstance(i.operation, ReducePrecision)


def _sums_devices(operation: Operation) -> bool:
    """Return whether an operation is a collective that combines operands of several devices with rounding."""
    rounds = operation.roundoff in (Roundoff.COMBINED, Roundoff.ACCUMULATED)
    return operation.family is Family.COLLECTIVE and rounds
