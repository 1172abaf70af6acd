"""Search for arguments for which the results of two programs differ by more than rounding errors.

Arguments are drawn by several distributions in turn. The evaluator runs both programs; where their results
differ, bounds of the rounding errors of the first program decide. Programs that take little time are compared
on more arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import field, replace
from typing import Any, Final, cast

import numpy as np

from hloom.analysis.in_flight import check_values_in_flight
from hloom.debug.agreement import Comparison, compare
from hloom.debug.inputs import Distribution, constants_of, drawn_arguments
from hloom.debug.sampling import sampled
from hloom.debug.tolerance import Tolerance
from hloom.devices.world import VirtualDevice, World
from hloom.error_bounds.bounded import is_inexact_type, parts_of
from hloom.error_bounds.floating import wide
from hloom.errors import EvaluationError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.random import RandomState
from hloom.proofs.degrees import terms_of
from hloom.proofs.programs import device_count
from hloom.proofs.sums import PRODUCT_GAIN
from hloom.records import dataclass

SAMPLES: Final = 16
"""Number of arguments on which programs are compared by default."""
MOST_SAMPLES: Final = 128
"""Number of arguments on which programs are compared that take little time."""
DISTRIBUTIONS: Final = (
    Distribution.NORMAL,
    Distribution.CONSTANTS,
    Distribution.EDGES,
    Distribution.TIES,
    Distribution.EDGES,
    Distribution.SIGNED,
    Distribution.EDGES_AND_TIES,
    Distribution.RANGE,
)
"""The distributions of arguments, in turn."""
STEP: Final = 1 << 13
"""Work of an instruction, in elements, besides its elements."""
LITTLE_WORK: Final = 1 << 30
"""Elements that are computed in all before only the samples asked for are tried."""
MOST_WORK: Final = 1 << 31
"""Elements that are computed in all, of loops in all iterations, before the search ends."""
MOST_GROWTH: Final = 16
"""How many times longer than the first program, with `LEAST_WORK`, the second may run."""
LEAST_WORK: Final = 1 << 23
_ANALYSES: Final = 16
"""Runs that the bounds of rounding errors take the time of."""


@dataclass(frozen=True)
class Refutation:
    """Arguments for which the results of two programs differ.

    Attributes:
        inputs: how the arguments were drawn: ``random 3``, ``edge values 4``; and if these are not of
            ordinary size, how many are that agree.
        arguments: the arguments; for several devices, a list for each.
        comparisons: the compared results; the first program's are the expected ones.
    """

    inputs: str
    arguments: Sequence[Any] = field(repr=False)
    comparisons: Sequence[Comparison]


class ArgumentSearch(ABC):
    """The search for arguments for which the results of two programs differ by more than is allowed.

    Args:
        before: the reference program.
        after: the program that is judged.
        tolerance: the allowed difference; None: what rounding errors allow.

    Attributes:
        note: what kept programs from being compared; empty if nothing did.
    """

    def __init__(self, before: HloModule, after: HloModule, *, tolerance: Tolerance | None = None) -> None:
        self.before = before
        self.after = after
        self.tolerance = tolerance
        self.note = ""
        self.constants = constants_of(before, after)
        self._first, self._second = _Machine(before), _Machine(after)
        self._work = 0

    def search(
        self,
        samples: int = SAMPLES,
        seed: int = 0,
        *,
        most: int = MOST_SAMPLES,
        distributions: Sequence[Distribution] = DISTRIBUTIONS,
    ) -> Refutation | None:
        """Return the first arguments for which results differ, rather those of ordinary size, or None.

        Args:
            samples: the number of sets of arguments to try.
            most: their number if they take little time.
            seed: the seed of the first set.
            distributions: the distributions of the arguments, in turn.
        """
        extreme: Refutation | None = None
        agreeing = 0
        for number in range(max(samples, most) if samples else 0):
            if self._work > (LITTLE_WORK if number >= samples else MOST_WORK):
                break
            if extreme is not None and number >= len(distributions):
                break
            distribution = distributions[number % len(distributions)]
            if extreme is not None and not distribution.is_ordinary:
                continue
            refutation = self.difference(seed + number, distribution)
            if refutation is not None and distribution.is_ordinary:
                return refutation
            agreeing += distribution.is_ordinary
            extreme = extreme or refutation
        if extreme is None or not agreeing or self.note:
            return extreme
        return replace(extreme, inputs=f"{extreme.inputs}; {agreeing} arguments of ordinary size agree")

    @abstractmethod
    def difference(self, seed: int, distribution: Distribution) -> Refutation | None:
        """Return the differences of the results for the arguments of a seed; None if there are none."""

    def results(
        self, arguments: Sequence[Sequence[Value]], others: Sequence[Sequence[Value]]
    ) -> tuple[list[Any], list[Any]] | None:
        """Return the results of each device by both programs, on the arguments of each; None if one fails."""
        try:
            expected = self._first.run(arguments, MOST_WORK)
        except EvaluationError as error:
            self._work += self._first.work
            self.note = error.message if error.rule == _Counting.RULE else self.note
            return None
        got = self._run_second(others)
        self._work += self._first.work + self._second.work
        return None if got is None else (expected, got)

    def bounds(
        self, arguments: Sequence[Sequence[Value]], expected: Sequence[Value], *, of_second: bool = False
    ) -> Any:
        """Return the allowed differences of the results of each device of the first or second program."""
        self._work += _ANALYSES * (self._second if of_second else self._first).work
        module = self.after if of_second else self.before
        return (self.tolerance or Tolerance()).bounds_of_devices(module, arguments, expected)

    def _run_second(self, drawn: Sequence[Sequence[Value]]) -> list[Any] | None:
        """Return the results of the second program; None if it runs much longer than the first."""
        try:
            most = MOST_GROWTH * (self._first.work + LEAST_WORK)
            return self._second.run(drawn, min(most, 2 * MOST_WORK))
        except EvaluationError as error:
            if error.rule != _Counting.RULE:
                raise
            self.note = f"the second program runs more than {MOST_GROWTH} times longer than the first"
            return None


class Refuter(ArgumentSearch):
    """The search for arguments for which two programs of the same parameters differ.

    Args:
        before, after, tolerance: as of `ArgumentSearch`; by default the rounding errors of the first
            program are allowed.
        judged: the numbers of the arrays of the result that may not differ; None: all.
        numbers: whether numbers may not differ; otherwise only an infinity or NaN differs from a number.
    """

    def __init__(
        self,
        before: HloModule,
        after: HloModule,
        *,
        tolerance: Tolerance | None = None,
        judged: Set[int] | None = None,
        numbers: bool = True,
    ) -> None:
        super().__init__(before, after, tolerance=tolerance)
        self.judged = judged
        self.numbers = numbers
        self._devices = device_count(before)

    def difference(self, seed: int, distribution: Distribution) -> Refutation | None:
        """Return the differences of the results for the arguments of a seed; None if there are none."""
        drawn = [
            drawn_arguments(self.before, seed + 1000 * n, distribution, self.constants)
            for n in range(self._devices)
        ]
        results = self.results(drawn, drawn)
        if results is None:
            return None
        expected, got = results
        if not self.numbers:
            got = [*map(_with_numbers_of, expected, got)]
        if self._agree(got, expected):
            return None
        bounds: Any = self.bounds(drawn, expected)
        comparisons = self._compared(got, expected, bounds)
        if self.tolerance is None and any(c.wrong for c in comparisons):
            self._work += _ANALYSES * self._first.work
            bounds = _with_roundings(self.before, drawn, expected, got, bounds)
            comparisons = self._compared(got, expected, bounds)
        if not any(c.wrong for c in comparisons):
            return None
        return Refutation(
            f"{distribution.value} {seed}", drawn[0] if self._devices == 1 else drawn, comparisons
        )

    def _agree(self, got: Sequence[Any], expected: Sequence[Any]) -> bool:
        if all(_same(*pair) for pair in zip(got, expected, strict=True)):
            return True
        return all(c.agrees for c in self._compared(got, expected, [0.0] * len(got)))

    def _compared(
        self, got: Sequence[Any], expected: Sequence[Any], bounds: Sequence[Any]
    ) -> list[Comparison]:
        """Return the comparisons of the judged arrays of every device's result."""
        return [
            c
            for triple in zip(got, expected, bounds, strict=True)
            for n, c in enumerate(compare(*triple))
            if self.judged is None or n in self.judged
        ]


def refute(
    before: HloModule,
    after: HloModule,
    *,
    samples: int = SAMPLES,
    most: int = MOST_SAMPLES,
    seed: int = 0,
    distributions: Sequence[Distribution] = DISTRIBUTIONS,
    tolerance: Tolerance | None = None,
) -> Refutation | None:
    """Return arguments for which the results of two programs differ by more than is allowed, or None."""
    refuter = Refuter(before, after, tolerance=tolerance)
    return refuter.search(samples, seed, most=most, distributions=distributions)


class _Machine:
    """A program on the devices of the evaluator.

    Attributes:
        work: that of the last run, see `work_of`.
    """

    def __init__(self, module: HloModule) -> None:
        module.verify()
        check_values_in_flight(module)
        self._module = module
        self._world = World(module.config.replica_count, module.config.num_partitions)
        self._evaluators = {device: _Counting(device) for device in self._world.devices}
        self.work = 0

    def run(self, arguments: Sequence[Sequence[Value]], most: int) -> list[Any]:
        """Return the result of each device; raises EvaluationError if one computes too many elements."""
        for evaluator in self._evaluators.values():
            evaluator.restart(most)
        by_device = dict(zip(self._world.devices, arguments, strict=True))

        def work(device: VirtualDevice) -> Value:
            return self._evaluators[device].run(self._module.entry, by_device[device])

        try:
            return self._world.run(work)
        finally:
            self.work = sum(evaluator.work for evaluator in self._evaluators.values())


class _Counting(Evaluator):
    """An evaluator that counts its work, see `work_of`."""

    RULE: Final = "prove.work"

    def __init__(self, device: VirtualDevice) -> None:
        super().__init__(device)
        self.work = 0
        self._most = 0
        self._sizes: dict[HloComputation, int] = {}

    def restart(self, most: int) -> None:
        """Count from 0, to a limit, with the random state that a program starts with."""
        self.work, self._most = 0, most
        self.random_state = RandomState()

    def call(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Evaluate a computation; raises EvaluationError by ``prove.work`` beyond the limit."""
        if computation not in self._sizes:
            self._sizes[computation] = sum(map(work_of, computation.instructions))
        self.work += self._sizes[computation]
        if self.work > self._most:
            raise EvaluationError("the first program runs too long for samples", rule=self.RULE)
        return super().call(computation, arguments)


def work_of(i: HloInstruction) -> int:
    """Return the work of an evaluation: `STEP`, the elements, and those that as many multiplications take."""
    elements = sum(leaf.element_count for _, leaf in i.shape.leaves() if leaf.is_array)
    is_product = isinstance(i.operation, Dot | Convolution)
    return STEP + elements + (elements * terms_of(i) // PRODUCT_GAIN if is_product else 0)


def _same(got: Any, expected: Any) -> bool:
    """Return whether two results consist of arrays with the same bytes."""
    if isinstance(expected, tuple):
        return all(_same(*pair) for pair in zip(got, cast("Any", expected), strict=True))
    if expected is None or got is None:
        return got is expected
    return bool(got.dtype == expected.dtype and got.tobytes() == expected.tobytes())


def _with_numbers_of(expected: Any, got: Any) -> Any:
    """Return a result with the expected numbers in place of its own, and infinities of the expected sign."""
    if isinstance(expected, tuple):
        return tuple([_with_numbers_of(*pair) for pair in zip(cast("Any", expected), got, strict=True)])
    if expected is None or not is_inexact_type(expected):
        return expected
    a, b = wide(expected), wide(got)
    alike = (np.isfinite(a) == np.isfinite(b)) & (np.isnan(a) == np.isnan(b))
    return cast("Any", np.where(alike, expected, got))


def _with_roundings(
    module: HloModule,
    drawn: Sequence[Any],
    expected: Sequence[Any],
    got: Sequence[Any],
    bounds: Sequence[Any],
) -> list[Any]:
    """Return bounds that also admit that every operation rounds otherwise: what is equal over the reals.

    Zeros of another sign, infinities and NaN keep their bounds.
    """

    def wider(bound: Any, other: Any, value: Any, wanted: Any) -> Any:
        if isinstance(wanted, tuple):
            parts = zip(*map(parts_of, (bound, other, value, cast("Any", wanted))), strict=True)
            return tuple([wider(*part) for part in parts])
        if wanted is None:
            return bound
        difference: Any = wide(value) - wide(wanted)
        is_rounding: Any = np.isfinite(difference) & (difference != 0)
        return np.maximum(bound, np.nan_to_num(other, posinf=0.0) * is_rounding)

    others = sampled(module, drawn, expected, every=True)
    with np.errstate(all="ignore"):
        return [wider(*each) for each in zip(bounds, others, got, expected, strict=True)]
