"""Judgement of a rewrite for all sizes: each path of its code is proved, or sizes refute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final

from hloom.debug.tolerance import Tolerance
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.rewriting import same_type
from hloom.proofs.refutation import DISTRIBUTIONS, refute
from hloom.proofs.symbolic.bijections import ranges
from hloom.proofs.symbolic.elements import (
    IndexVariables,
    SymbolicElements,
    SymbolicIndex,
    polynomial_of,
    result_shapes,
)
from hloom.proofs.symbolic.equality import Comparer, TooManyCases
from hloom.proofs.symbolic.exploration import Exploration
from hloom.proofs.symbolic.facts import Facts
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import TooMuchEffort, limited_effort
from hloom.proofs.symbolic.sizes import Constraint, Trail
from hloom.proofs.symbolic.terms import Term
from hloom.proofs.verdict import Relation, Verdict
from hloom.records import dataclass

SAMPLES: Final = 6
"""Number of arguments with which programs of concrete sizes are compared."""
EDGE_SAMPLES: Final = 64
"""Number of arguments with edge values, each of which few arguments have, if programs take little time."""
EXAMPLES: Final = 8
"""Number of sizes at which the programs of an unproved case are compared."""
MOST_ELEMENTS: Final = 1 << 22
"""Maximum size of an array of programs that are compared."""
LATER_EXAMPLES: Final = 3
"""That number for all further unproved cases."""
NO_CASE: Final = "the rule applies in no case"
TOO_MANY_STEPS: Final = "the proof takes too many steps"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs with the same parameters, and the trail of sizes on which both were made."""

    before: HloModule
    after: HloModule


Build = Callable[[Trail], Pair | None]
"""Makes both programs for the sizes of a trail; None where the rule does not apply.

Raises HloError for sizes that no program has.
"""


@dataclass(frozen=True, slots=True)
class ResultElement:
    """The element of one result of both programs at an index.

    Attributes:
        index: the index variables and their extents.
        before, after: the elements.
    """

    index: tuple[tuple[str, Polynomial], ...]
    before: Term
    after: Term


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What is known about a rewrite.

    Attributes:
        relation: for all sizes.
        cases: the number of cases that were proved.
        declined: the number of cases in which the rule does not apply.
        reason: why it is open.
        sizes: the numbers that refute it, or of the open case.
        counterexample: of refuted ones, the verdict on the programs of those sizes.
        before, after: those programs.
        steps: the steps that the proof took.
    """

    relation: Relation
    cases: int = 0
    declined: int = 0
    reason: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    counterexample: Verdict | None = None
    before: str = ""
    after: str = ""
    steps: int = 0


@dataclass(slots=True)
class _Run:
    """One run: programs and their elements; nothing where the rule does not apply or sizes are invalid."""

    pair: Pair | None = None
    elements: list[ResultElement] = field(default_factory=list[ResultElement])
    positions: IndexVariables = field(default_factory=IndexVariables)
    declined: bool = False
    invalid: HloError | None = None
    error: str = ""


def judge(values: Mapping[str, int], build: Build, *, edges: bool, ulps: float | None = None) -> RuleVerdict:
    """Decide whether two programs are equal for all values of their symbols for which the first is valid.

    Equality over the reals says nothing of infinities, NaN and signs of zeros, nor of roots of negative
    numbers and quotients by 0. Where it is stated how far results may differ, programs that are only equal
    over the reals are also compared on such edge values, for one set of sizes.

    Args:
        values: the symbols, and numbers for a first run, for which the first program is valid.
        build: makes the programs.
        edges: whether edge values such as infinities refute.
        ulps: by how many units in the last place results may differ for edge values; None if it is not known.
    """
    with limited_effort() as effort:
        try:
            verdict = _judged(Exploration(values), build, edges, ulps)
        except TooMuchEffort:
            verdict = RuleVerdict(Relation.OPEN, reason=TOO_MANY_STEPS)
    return replace(verdict, steps=effort.steps)


def _judged(exploration: Exploration, build: Build, edges: bool, ulps: float | None) -> RuleVerdict:
    compared: tuple[Pair, dict[str, int]] | None = None
    relation, cases, declined = Relation.IDENTICAL, 0, 0
    unproved: RuleVerdict | None = None
    for trail, run in exploration.runs(lambda trail: _run(build, trail)):
        declined += run.declined
        numbers = {name: trail.values[name] for name in trail.symbols}
        if run.pair is None:
            if run.invalid is not None:
                return _invalid(run.invalid, cases, declined, numbers)
            continue
        step, reason = _relation(trail, run)
        if step.is_proof:
            cases += 1
            if step is Relation.EQUAL_OVER_REALS:
                relation, compared = step, compared or (run.pair, numbers)
            continue
        for sizes in exploration.examples(trail, EXAMPLES if unproved is None else LATER_EXAMPLES):
            try:
                pair = run.pair if sizes == numbers else build(Trail(dict(sizes)))
            except HloError as error:
                return _invalid(error, cases, declined, sizes)
            verdict = _refutation(pair, sizes, reason, edges=edges) if pair is not None else None
            if verdict is not None and verdict.relation is Relation.REFUTED:
                return verdict
            unproved = unproved or verdict
    if unproved is not None:
        return unproved
    if not exploration.is_complete:
        return RuleVerdict(Relation.OPEN, cases, declined, "some cases could not be enumerated")
    if not cases:
        return RuleVerdict(Relation.OPEN, cases, declined, NO_CASE)
    if compared is not None and ulps is not None:
        verdict = _refutation(*compared, "equal over the reals, not for infinities or NaN", ulps=ulps)
        if verdict.relation is Relation.REFUTED:
            return verdict
    return RuleVerdict(relation, cases, declined)


def _invalid(error: HloError, cases: int, declined: int, sizes: Mapping[str, int]) -> RuleVerdict:
    """Refute by sizes for which the second program is not valid."""
    reason = f"the second program is not valid: {error.message}"
    return RuleVerdict(Relation.REFUTED, cases, declined, reason, sizes)


def _run(build: Build, trail: Trail) -> _Run:
    """Make both programs and their elements."""
    try:
        pair = build(trail)
    except InvalidSizes:
        return _Run()
    except HloError as error:
        return _Run(invalid=error)
    if pair is None:
        return _Run(declined=True)
    run = _Run(pair)
    try:
        for i in pair.after.entry.post_order():
            i.check_shape()
        run.elements = _elements(pair, trail, run.positions)
        facts = Facts.of(trail.comparisons, trail.divisions)
        for element in run.elements:
            facts = _at_index(element, facts)
        run.positions = IndexVariables(facts)
        run.elements = _elements(pair, trail, run.positions)
    except HloError as error:
        run.error = error.message
    return run


class InvalidSizes(Exception):
    """A program of these sizes is not valid."""


def check_sizes(module: HloModule) -> None:
    """Check the shapes of a program; raise InvalidSizes where they contradict each other."""
    try:
        for i in module.entry.post_order():
            i.check_shape()
            i.operation.verify(i)
    except (HloError, ZeroDivisionError) as error:
        raise InvalidSizes from error


def _elements(pair: Pair, trail: Trail, positions: IndexVariables) -> list[ResultElement]:
    """Return the elements of every result at an index of its own variables."""
    elements: list[ResultElement] = []
    walk = SymbolicElements(trail, positions)
    roots = pair.before.entry.root, pair.after.entry.root
    for (output, shape), (_, other) in zip(*map(result_shapes, roots), strict=True):
        if not same_type(shape, other):
            raise HloError(f"the result is {other}, not {shape}", rule="prove.form")
        if not shape.is_array or 0 in shape.dimensions:
            continue
        names = [f"i{len(elements)}_{d}" for d in range(shape.rank)]
        indices = tuple(SymbolicIndex(Polynomial.variable(name)) for name in names)
        index = tuple(zip(names, map(polynomial_of, shape.dimensions), strict=True))
        before, after = (walk.element(root, indices, output) for root in roots)
        elements.append(ResultElement(index, before, after))
    return elements


def _relation(trail: Trail, run: _Run) -> tuple[Relation, str]:
    """Return what is proved of one run, and what is not."""
    if run.error:
        return Relation.OPEN, run.error
    facts = Facts.of(trail.comparisons, trail.divisions, run.positions.conditionals)
    relation = Relation.IDENTICAL
    for element in run.elements:
        inside = _at_index(element, facts)
        try:
            if Comparer(exact=False).are_equal(element.before, element.after, inside):
                continue
            if not Comparer(exact=True).are_equal(element.before, element.after, inside):
                return Relation.OPEN, "an element of one program is not proved to be that of the other"
        except TooManyCases:
            return Relation.OPEN, "too many cases of conditions on indices"
        relation = Relation.EQUAL_OVER_REALS
    return relation, ""


def _at_index(element: ResultElement, facts: Facts) -> Facts:
    """Return the facts at an index of a result, which is 0 in dimensions of size 1."""
    one = Polynomial.constant(1)
    zeros = [name for name, extent in element.index if facts.are_equal(extent, one)]
    equations = (Constraint(Polynomial.variable(name), is_equation=True) for name in zeros)
    return facts.assume(*equations, *ranges(element.index))


def _refutation(
    pair: Pair, sizes: Mapping[str, int], reason: str, *, edges: bool = True, ulps: float | None = None
) -> RuleVerdict:
    """Compare the programs of the sizes of a run, by the evaluator.

    Results may differ by rounding errors, or by units in the last place: then only for edge values.
    """
    texts = pair.before.to_text(), pair.after.to_text()
    try:
        before = plain(pair.before)
        before.verify()
    except HloError as error:
        return RuleVerdict(Relation.OPEN, reason=f"{reason} ({error.message})", sizes=sizes)
    try:
        after = plain(pair.after)
        after.verify()
    except HloError as error:
        return RuleVerdict(Relation.REFUTED, 0, 0, error.message, sizes, None, *texts)
    if not same_type(before.entry.root.shape, after.entry.root.shape):
        return RuleVerdict(Relation.REFUTED, 0, 0, reason, sizes, None, *texts)
    arrays = (i.shape for m in (before, after) for i in m.entry.post_order() if i.shape.is_array)
    if max((shape.element_count for shape in arrays), default=0) > MOST_ELEMENTS:
        return RuleVerdict(
            Relation.OPEN, 0, 0, f"{reason} (too many elements to compare)", sizes, None, *texts
        )
    kinds = DISTRIBUTIONS if edges else [d for d in DISTRIBUTIONS if d.is_ordinary]
    tolerance, most = None, SAMPLES
    if ulps is not None:
        kinds, tolerance = [d for d in DISTRIBUTIONS if d.has_edges], Tolerance(ulps=ulps)
        most = EDGE_SAMPLES
    refuted = refute(before, after, samples=SAMPLES, most=most, distributions=kinds, tolerance=tolerance)
    if refuted is None:
        return RuleVerdict(Relation.OPEN, 0, 0, reason, sizes, None, *texts)
    verdict = Verdict(
        Relation.REFUTED,
        inputs=refuted.inputs,
        arguments=refuted.arguments,
        comparisons=refuted.comparisons,
    )
    return RuleVerdict(Relation.REFUTED, 0, 0, reason, sizes, verdict, *texts)


def plain(module: HloModule) -> HloModule:
    """Return a copy of a program with ordinary integers for sizes."""
    return HloModule.from_text(module.to_text())
