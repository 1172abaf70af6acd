"""Decision whether two programs compute the same function.

The attempts, cheapest first: the same program; equal fingerprints over bits; equal fingerprints over the real
numbers; arguments for which the results differ. If none of them decides, the relation is `OPEN`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

import numpy as np

from hloom.analysis.origin import place
from hloom.debug.agreement import Comparison, compare
from hloom.debug.backends import run_on
from hloom.debug.cut import inlined
from hloom.debug.inputs import random_arguments
from hloom.debug.sampling import sampled
from hloom.debug.tolerance import Tolerance
from hloom.error_bounds.bounded import parts_of
from hloom.error_bounds.floating import wide
from hloom.errors import EvaluationError, HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.operations.control_flow import While
from hloom.operations.structure import Constant, Parameter
from hloom.proofs.algebra import Algebra
from hloom.proofs.field import BITS, salt_of
from hloom.proofs.programs import FingerprintEvaluator, device_count
from hloom.proofs.sums import TooLarge
from hloom.proofs.values import hash_of
from hloom.text.fingerprint import fingerprint
from hloom.text.printer import print_instruction

LEAST_BITS: Final = 30
"""Equal fingerprints are a proof if those of different programs are equal with a probability below 2 to this
negative power."""
ALGEBRAS: Final = Algebra(reals=False), Algebra(reals=True), Algebra(reals=True, has_fractions=False)
SAMPLES: Final = 16
"""Number of arguments on which programs are compared by default."""
SMALL: Final = 1 << 13
"""Number of elements that a program without loops computes in all that is compared on more arguments:"""
SAMPLES_OF_SMALL: Final = 100
_OPTIONS: Final = PrintOptions(print_original_value=False)


class Relation(enum.Enum):
    """The relation of the results of two programs."""

    IDENTICAL = "identical"
    """The results have the same bits for all arguments."""
    EQUAL_OVER_REALS = "equal over the reals"
    """The results are equal for all arguments if f32, f64 and complex operations are exact."""
    REFUTED = "refuted"
    """Arguments are known for which the results differ by more than rounding errors."""
    OPEN = "open"
    """None of these."""

    @property
    def is_proof(self) -> bool:
        """Whether the programs are proved to be equal."""
        return self in (Relation.IDENTICAL, Relation.EQUAL_OVER_REALS)


@dataclass(frozen=True)
class Verdict:
    """The relation of two programs, and what shows it.

    Attributes:
        relation: the relation of their results.
        certain: whether the proof uses no random numbers: they are equal but for calls and
            fusions, or related.
        reason: if the relation is open, why nothing is proved or refuted.
        instruction: the first instruction of the second program whose value the first program does not
            compute; empty if there is none.
        origin: the operation of the framework and the source line of this instruction, if they are recorded.
        inputs: how the refuting arguments were drawn: ``random 3``, ``edge values 4``.
        arguments: the refuting arguments; for several devices, a list for each.
        comparisons: the results for these arguments, compared; the first program's are the expected ones.
        error_bits: the proof is wrong with a probability below 2**-error_bits; None if it is certain.
    """

    relation: Relation
    certain: bool = False
    reason: str = ""
    instruction: str = ""
    origin: str = ""
    inputs: str = ""
    arguments: Sequence[Any] = field(default=(), repr=False)
    comparisons: Sequence[Comparison] = ()
    error_bits: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        return {
            "relation": self.relation.value,
            "certain": self.certain,
            "error_bits": self.error_bits,
            "reason": self.reason,
            "instruction": self.instruction,
            "origin": self.origin,
            "inputs": self.inputs,
            "differences": [
                {
                    "result": c.name,
                    "shape": c.shape,
                    "elements": c.elements,
                    "wrong": c.wrong,
                    "index": c.index,
                }
                for c in self.comparisons
            ],
        }


def prove(before: HloModule, after: HloModule, *, samples: int = SAMPLES, seed: int = 0) -> Verdict:
    """Decide whether two programs compute the same results from the same arguments.

    Layouts, names, schedules and metadata do not matter.

    Args:
        before: the reference program.
        after: the program that is judged.
        samples: the number of sets of arguments on which programs that are not proved equal are compared; 100
            for small programs. Every second has edge values.
        seed: the seed of the first set of arguments.

    Raises HloError (``prove.form``) if the shapes of parameters or results differ.
    """
    return decide(Fingerprinted(before), Fingerprinted(after), samples=samples, seed=seed)


def decide(before: Fingerprinted, after: Fingerprinted, *, samples: int = SAMPLES, seed: int = 0) -> Verdict:
    """Decide whether two programs are equal, as `prove` does.

    Their fingerprints are cached for other pairs.
    """
    _require_form(before.module, after.module)
    if before.text == after.text:
        return Verdict(Relation.IDENTICAL, certain=True)
    arrays = sum(leaf.is_array for _, leaf in before.module.entry.root.shape.leaves())
    proof = _Proof(arrays + 1)
    reason, culprit, is_large = "", None, False
    for algebra in ALGEBRAS:
        if not (algebra.has_fractions or is_large):
            continue
        for runs_loops in (False, True) if before.has_loop or after.has_loop else (True,):
            a, b = (each.fingerprint(algebra, runs_loops) for each in (before, after))
            if isinstance(a, str) or isinstance(b, str):
                reason = a if isinstance(a, str) else str(b)
                continue
            bits = min(a.error_bits, b.error_bits)
            equal = {n for n, (x, y) in enumerate(zip(a.results, b.results, strict=True)) if x == y}
            if bits >= LEAST_BITS:
                proof.add(equal, Relation.EQUAL_OVER_REALS if algebra.reals else Relation.IDENTICAL, bits)
            elif equal & proof.open:
                reason = "fingerprints are equal, but of so large a degree that they prove nothing"
                is_large = True
            if not proof.open:
                return Verdict(proof.relation, error_bits=proof.error_bits)
            culprit = b.first_new(a) or culprit
    if samples and not before.has_loop and _size(before.module) <= SMALL:
        samples = max(samples, SAMPLES_OF_SMALL)
    text, origin = (print_instruction(culprit, _OPTIONS).strip(), place(culprit)) if culprit else ("", "")
    refuted = refute(before.module, after.module, samples=samples, seed=seed, judged=proof.open)
    if refuted is not None:
        inputs, arguments, comparisons = refuted
        return Verdict(
            Relation.REFUTED,
            instruction=text,
            origin=origin,
            inputs=inputs,
            arguments=arguments,
            comparisons=comparisons,
        )
    reason = reason or "the values of this instruction and of those after it are compared by samples only"
    return Verdict(Relation.OPEN, reason=reason, instruction=text, origin=origin)


class _Proof:
    """The results of a program that are proved.

    Attributes:
        open: the numbers of the results that are not; the last number stands for the effects.
        relation: the weakest relation of those that are.
        error_bits: one of the proofs is wrong with a probability below 2**-error_bits.
    """

    def __init__(self, count: int) -> None:
        self.open = set(range(count))
        self.relation = Relation.IDENTICAL
        self._bits: list[int] = []

    def add(self, equal: Set[int], relation: Relation, bits: int) -> None:
        """Record that some results are related, wrongly with a probability below 2**-bits."""
        if equal & self.open:
            self.open -= equal
            self.relation = relation
            self._bits.append(bits)

    @property
    def error_bits(self) -> int:
        return min(self._bits) - (len(self._bits) - 1).bit_length()


def refute(
    before: HloModule,
    after: HloModule,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    edges: bool = True,
    tolerance: Tolerance | None = None,
    judged: Set[int] | None = None,
) -> tuple[str, list[Any], list[Comparison]] | None:
    """Return arguments for which the results of two programs differ by more than is allowed, or None.

    Args:
        before: the reference program.
        after: the program that is judged.
        samples: the number of sets of arguments to try; in every second pair floats are integers, so that
            equal ones occur.
        seed: the seed of the first set of arguments.
        edges: whether every second set of arguments has edge values.
        tolerance: the allowed difference; None: what the rounding errors of the reference program allow.
        judged: the numbers of the arrays of the result that may not differ; None: all.

    Returns:
        How the arguments were drawn, the arguments, and the comparisons of the results.
    """
    devices = device_count(before)
    for number in range(seed, seed + samples):
        has_edges, ties = edges and bool((number - seed) % 2), bool((number - seed) // 2 % 2)
        drawn = [
            random_arguments(before, number + 1000 * n, edges=has_edges, ties=ties) for n in range(devices)
        ]
        try:
            expected = run_on("evaluator", before, drawn)
        except EvaluationError:
            continue
        got = run_on("evaluator", after, drawn)
        if all(c.agrees for c in _compared(got, expected, [0.0] * devices, judged)):
            continue
        bounds = (tolerance or Tolerance()).bounds_of_devices(before, drawn, expected)
        comparisons = _compared(got, expected, bounds, judged)
        if tolerance is None and any(c.wrong for c in comparisons):
            bounds = _with_roundings(before, drawn, expected, got, bounds)
            comparisons = _compared(got, expected, bounds, judged)
        if any(c.wrong for c in comparisons):
            inputs = f"{'edge values' if has_edges else 'random'} {number}"
            return inputs, drawn[0] if devices == 1 else drawn, comparisons
    return None


class Fingerprinted:
    """A program with a cache of its fingerprints.

    Attributes:
        module: the program, which must not change.
        has_loop: whether the program has a while loop.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._inlined = inlined(module)
        self.has_loop = any(isinstance(i.operation, While) for i in self._inlined.instructions())
        self._fingerprints: dict[tuple[Algebra, bool], _Fingerprint | str] = {}

    @cached_property
    def text(self) -> str:
        """A text that is equal for programs that differ only in calls and fusions."""
        return fingerprint(self._inlined)

    def fingerprint(self, algebra: Algebra, runs_loops: bool) -> _Fingerprint | str:
        """Return the fingerprints by the laws of an algebra, or a text that says why there are none."""
        key = algebra, runs_loops
        if key not in self._fingerprints:
            try:
                self._fingerprints[key] = _Fingerprint(self._inlined, algebra, runs_loops)
            except TooLarge as error:
                self._fingerprints[key] = str(error)
            except HloError as error:
                self._fingerprints[key] = error.message
        return self._fingerprints[key]


class _Fingerprint:
    """The fingerprints of a program's results and instructions.

    Attributes:
        results: the hash of each array of the result, and that of the effects.
        instructions: the hash of each array that the entry computation has computed.
        error_bits: equal hashes of different programs have a probability below 2**-error_bits.
    """

    def __init__(self, module: HloModule, algebra: Algebra, runs_loops: bool) -> None:
        evaluator = FingerprintEvaluator(algebra, runs_loops=runs_loops)
        self.module = module
        self.results = [*_hashes(evaluator.results(module)), salt_of(evaluator.effects)]
        self.instructions = evaluator.prints
        # A collision of random functions, or a common root: each with a probability below 2 degree / PRIME.
        self.error_bits = BITS - 1 - (evaluator.degree + evaluator.evaluations).bit_length()

    def first_new(self, other: _Fingerprint) -> HloInstruction | None:
        """Return the first entry instruction whose value the other program does not compute, or None."""
        computed = set(other.instructions.values())
        for i in self.module.entry.post_order():
            if isinstance(i.operation, Parameter | Constant) or i not in self.instructions:
                continue
            if self.instructions[i] not in computed:
                return i
        return None


def _size(module: HloModule) -> int:
    """Return the number of elements of the arrays that all instructions of a program compute."""
    return sum(i.shape.element_count for i in module.instructions() if i.shape.is_array)


def _hashes(value: Any) -> list[int]:
    """Return the hash of each array of a value."""
    if isinstance(value, tuple):
        return [h for part in value for h in _hashes(part)]  # pyright: ignore[reportUnknownVariableType]
    return [] if value is None else [hash_of(value)]


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


def _compared(
    got: Sequence[Any], expected: Sequence[Any], bounds: Sequence[Any], judged: Set[int] | None
) -> list[Comparison]:
    """Return the comparisons of the judged arrays of every device's result; of all arrays for None."""
    return [
        c
        for triple in zip(got, expected, bounds, strict=True)
        for n, c in enumerate(compare(*triple))
        if judged is None or n in judged
    ]


def _require_form(before: HloModule, after: HloModule) -> None:
    shapes = [
        (*(p.shape for p in module.entry.parameters), module.entry.root.shape) for module in (before, after)
    ]
    texts = [[shape.to_string(layout=False) for shape in each] for each in shapes]
    if texts[0] != texts[1]:
        *parameters, result = texts[0]
        *others, other = texts[1]
        message = (
            f"the first program is ({', '.join(parameters)}) -> {result}, "
            f"the second ({', '.join(others)}) -> {other}"
        )
        raise HloError(message, rule="prove.form")
