"""Runs of code on symbolic sizes, one for each way in which its comparisons of sizes come out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final, TypeVar

from hloom.proofs.symbolic.facts import division_facts, learn, least
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import (
    Statement,
    ask,
    check,
    connected,
    solver_library,
    truth,
    variable,
)
from hloom.proofs.symbolic.sizes import Constraint, Trail
from hloom.records import dataclass

MOST_RUNS: Final = 1500
"""Maximum number of runs of one program."""
LARGEST: Final = 12
"""Magnitude of numbers that are preferred: small ones make readable examples that are evaluated quickly."""
LARGEST_DRAWN: Final = 6
"""Largest number that is drawn for a symbol of a counterexample."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Start:
    """Numbers for a run, and the comparisons with which it must begin."""

    values: dict[str, int]
    comparisons: tuple[Constraint, ...] = ()


class Exploration:
    """The runs of a function on symbols.

    Attributes:
        names: the symbols met so far.
        first: numbers for the first run.
        is_complete: whether the runs made stand for all numbers.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.names: list[str] = []
        self.first = dict(values)
        self.is_complete = True

    def runs(self, run: Callable[[Trail], T]) -> Iterator[tuple[Trail, T]]:
        """Yield the trail and the result of each run."""
        waiting: list[_Start] = [_Start(self.first)]
        count = 0
        while waiting:
            start = waiting.pop()
            count += 1
            if count > MOST_RUNS:
                self.is_complete = False
                return
            trail = Trail(dict(start.values))
            result = run(trail)
            self.names = trail.symbols
            if tuple(trail.comparisons)[: len(start.comparisons)] != start.comparisons:
                self.is_complete = False
                continue
            waiting += self._others(trail, len(start.comparisons))
            yield trail, result

    def examples(self, trail: Trail, count: int) -> Iterator[dict[str, int]]:
        """Yield the numbers of a run, and others for which its comparisons come out the same."""
        z3, names = solver_library(), trail.symbols
        solver = z3.SimpleSolver()
        solver.add(*(truth(division_facts(d)) for d in trail.divisions))
        solver.add(*map(truth, (*trail.comparisons, *(bound for name in names for bound in _bounds(name)))))
        yield {name: trail.values[name] for name in names}
        for number in range(1, count):
            draw = random.Random(number)
            solver.push()
            # Different numbers from 1 on show most mistakes; each symbol gets one if the others allow it.
            for name in draw.sample(names, len(names)):
                solver.push()
                solver.add(variable(name) == draw.randint(1, LARGEST_DRAWN))
                if check(solver) != z3.sat:
                    solver.pop()
            if check(solver) != z3.sat:
                return
            model = solver.model()
            yield {n: model.eval(variable(n), model_completion=True).as_long() for n in names}
            while solver.num_scopes():
                solver.pop()

    def _others(self, trail: Trail, depth: int) -> list[_Start]:
        """Return numbers for which a comparison from a depth on is the first to come out otherwise."""
        lows: dict[str, int] = {}
        others: list[_Start] = []
        known: list[Statement] = [division_facts(d) for d in trail.divisions]
        comparisons = tuple(trail.comparisons)
        for number, comparison in enumerate(comparisons):
            if least(comparison, lows):
                continue
            if number >= depth:
                opposite = comparison.negation()
                values = self._solution(trail, connected([opposite], known))
                if values is not None and comparison in trail.fixed:
                    self.is_complete = False
                elif values is not None:
                    others.append(_Start(values, (*comparisons[:number], opposite)))
            learn(comparison, lows)
            known.append(comparison)
        return others

    def _solution(self, trail: Trail, statements: list[Statement]) -> dict[str, int] | None:
        """Return numbers for the symbols that fulfil statements; those of a run for others."""
        names = set[str]().union(*(s.variables for s in statements)) & set(self.names)
        answer = ask(statements)
        if answer.is_possible is False:
            return None
        if not answer.is_possible or any(abs(answer.values[name]) > LARGEST for name in names):
            small = ask([*statements, *(bound for name in sorted(names) for bound in _bounds(name))])
            answer = small if small.is_possible else answer
        if not answer.is_possible:
            self.is_complete = False
            return None
        return {name: answer.values.get(name, trail.values[name]) for name in self.names}


@cache
def _bounds(name: str) -> tuple[Constraint, Constraint]:
    """Return that a number's magnitude is at most `LARGEST`."""
    limit, value = Polynomial.constant(LARGEST), Polynomial.variable(name)
    return Constraint(limit - value, is_equation=False), Constraint(limit + value, is_equation=False)
