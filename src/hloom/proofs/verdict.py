"""Decision whether two programs compute the same function.

The attempts, cheapest first: the same program; equal fingerprints over bits; equal fingerprints over the real
numbers; arguments for which the results differ. If none of them decides, the relation is `OPEN`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence, Set
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from hloom.analysis.origin import place
from hloom.debug.agreement import Comparison
from hloom.debug.cut import inlined
from hloom.errors import HloError, expect
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.operations.control_flow import While
from hloom.operations.structure import Constant, Parameter
from hloom.proofs.algebra import Algebra
from hloom.proofs.field import BITS, salt_of
from hloom.proofs.programs import FingerprintEvaluator
from hloom.proofs.reduced import undecided
from hloom.proofs.refutation import DISTRIBUTIONS, SAMPLES, Refutation, Refuter
from hloom.proofs.sums import TooLarge
from hloom.proofs.values import hash_of
from hloom.records import dataclass
from hloom.text.fingerprint import fingerprint
from hloom.text.printer import print_instruction

LEAST_BITS: Final = 30
"""Equal fingerprints are a proof if those of different programs are equal with a probability below 2 to this
negative power."""
ALGEBRAS: Final = Algebra(reals=False), Algebra(reals=True), Algebra(reals=True, has_fractions=False)
ORDINARY: Final = tuple({d: None for d in DISTRIBUTIONS if d.is_ordinary})
"""The distributions of arguments of ordinary size, on which a program that is proved must be defined."""
_OPTIONS: Final = PrintOptions(print_original_value=False)


class Relation(enum.Enum):
    """The relation of the results of two programs."""

    IDENTICAL = "identical"
    """The results have the same bits for all arguments."""
    EQUAL_OVER_REALS = "equal over the reals"
    """The results are equal for all arguments that are real numbers, if f32, f64 and complex operations are
    exact and defined. Nothing is proved of infinities, NaN and signs of zeros; but for some arguments of
    ordinary size the same results are infinities or NaN."""
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
        undecided: if the relation is open, the open results as the texts of two programs on values that both
            compute.
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
    undecided: tuple[str, ...] = ()
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
            "undecided": self.undecided,
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
        samples: the number of sets of arguments on which programs that are not proved equal are compared;
            up to 128 if they take little time.
        seed: the seed of the first set of arguments.

    Raises HloError (``prove.form``) if the shapes of parameters or results differ.
    """
    expect(before, HloModule, "an HloModule")
    expect(after, HloModule, "an HloModule")
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
    last: tuple[_Fingerprint, _Fingerprint] | None = None
    for algebra in ALGEBRAS:
        if not (algebra.has_fractions or is_large):
            continue
        for runs_loops in (False, True) if before.has_loop or after.has_loop else (True,):
            a, b = (each.fingerprint(algebra, runs_loops) for each in (before, after))
            if isinstance(a, str) or isinstance(b, str):
                reason = a if isinstance(a, str) else str(b)
                continue
            last = a, b
            bits = min(a.error_bits, b.error_bits)
            equal = {n for n, (x, y) in enumerate(zip(a.results, b.results, strict=True)) if x == y}
            if bits >= LEAST_BITS:
                proof.add(equal, Relation.EQUAL_OVER_REALS if algebra.reals else Relation.IDENTICAL, bits)
            elif equal & proof.open:
                reason = "fingerprints are equal, but of so large a degree that they prove nothing"
                is_large = True
            if not proof.open:
                undefined = _undefined(before, after, min(samples, len(ORDINARY)), seed, proof)
                if undefined is not None:
                    return _refuted(undefined, culprit)
                return Verdict(proof.relation, error_bits=proof.error_bits)
            culprit = b.first_new(a) or culprit
    refuter = Refuter(before.module, after.module, judged=proof.open) if samples else None
    refuted = refuter.search(samples, seed) if refuter is not None else None
    if refuted is not None:
        return _refuted(refuted, culprit)
    reason = (refuter.note if refuter is not None else "") or reason
    reason = reason or "the values of this instruction and of those after it are compared by samples only"
    return Verdict(
        Relation.OPEN,
        reason=reason,
        **_position(culprit),
        undecided=() if last is None else _undecided(*last, proof.open),
    )


def _undefined(
    before: Fingerprinted, after: Fingerprinted, samples: int, seed: int, proof: _Proof
) -> Refutation | None:
    """Return ordinary arguments on which one of two programs that are equal over the reals is not defined.

    An infinite constant, or an overflow, that cancels over the reals makes NaN of every result.
    """
    if not proof.only_over_reals or not samples:
        return None
    refuter = Refuter(before.module, after.module, judged=proof.only_over_reals, numbers=False)
    return refuter.search(1, seed, most=samples, distributions=ORDINARY)


def _refuted(refutation: Refutation, culprit: HloInstruction | None) -> Verdict:
    return Verdict(
        Relation.REFUTED,
        **_position(culprit),
        inputs=refutation.inputs,
        arguments=refutation.arguments,
        comparisons=refutation.comparisons,
    )


def _position(culprit: HloInstruction | None) -> dict[str, Any]:
    """Return the attributes of a verdict that state an instruction."""
    if culprit is None:
        return {}
    return {"instruction": print_instruction(culprit, _OPTIONS).strip(), "origin": place(culprit)}


def _undecided(before: _Fingerprint, after: _Fingerprint, results: Set[int]) -> tuple[str, ...]:
    """Return the texts of the programs of the results that are open."""
    programs = undecided((before.module, before.instructions), (after.module, after.instructions), results)
    return tuple([program.to_text(PrintOptions(print_metadata=False)) for program in programs])


class _Proof:
    """The results of a program that are proved.

    Attributes:
        open: the numbers of the results that are not; the last number stands for the effects.
        relation: the weakest relation of those that are.
        only_over_reals: the numbers of the results that are proved over the reals only.
        error_bits: one of the proofs is wrong with a probability below 2**-error_bits.
    """

    def __init__(self, count: int) -> None:
        self.open = set(range(count))
        self.only_over_reals: set[int] = set()
        self.relation = Relation.IDENTICAL
        self._bits: list[int] = []

    def add(self, equal: Set[int], relation: Relation, bits: int) -> None:
        """Record that some results are related, wrongly with a probability below 2**-bits."""
        if equal & self.open:
            if relation is Relation.EQUAL_OVER_REALS:
                self.only_over_reals |= equal & self.open
            self.open -= equal
            self.relation = relation
            self._bits.append(bits)

    @property
    def error_bits(self) -> int:
        return min(self._bits) - (len(self._bits) - 1).bit_length()


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
        self._too_large: dict[bool, str] = {}

    @cached_property
    def text(self) -> str:
        """A text that is equal for programs that differ only in calls and fusions."""
        return fingerprint(self._inlined)

    def fingerprint(self, algebra: Algebra, runs_loops: bool) -> _Fingerprint | str:
        """Return the fingerprints by the laws of an algebra, or a text that says why there are none."""
        if runs_loops in self._too_large:
            return self._too_large[runs_loops]
        key = algebra, runs_loops
        if key not in self._fingerprints:
            try:
                self._fingerprints[key] = _Fingerprint(self._inlined, algebra, runs_loops)
            except TooLarge as error:
                self._fingerprints[key] = self._too_large[runs_loops] = str(error)
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


def _hashes(value: Any) -> list[int]:
    """Return the hash of each array of a value."""
    if isinstance(value, tuple):
        return [h for part in value for h in _hashes(part)]  # pyright: ignore[reportUnknownVariableType]
    return [] if value is None else [hash_of(value)]


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
