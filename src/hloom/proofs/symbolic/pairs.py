"""Proofs that two programs are equal not only for their sizes.

The sizes of the first program's parameters become symbols, equal numbers the same symbol. Where these numbers
are sizes elsewhere in either program, in shapes and as bounds of ranges, they are the same symbols; numbers
that are the product or the sum of two, or, from 4 on, one more or less than one, vary with them. Every
other number is fixed, as are ranks, dimension numbers, strides and the elements of constants.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Final

from hloom.debug.cut import inlined
from hloom.errors import HloError, expect
from hloom.ir.module import HloModule
from hloom.proofs.symbolic.facts import Facts
from hloom.proofs.symbolic.generalization import Generalization
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint, Trail
from hloom.proofs.symbolic.verdicts import InvalidSizes, Pair, RuleVerdict, check_sizes, judge
from hloom.records import dataclass
from hloom.shape.shape import Shape

_BOUNDS: Final = ("start", "limit", "low", "high", "size", "padding_low", "padding_high")
"""Fields of ranges, paddings and windows that are positions or sizes."""
_LEAST: Final = 4
"""The least number that is taken for one more or less than a size; smaller ones are counts of their own."""


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """What is known about two programs for all sizes.

    Attributes:
        verdict: for all sizes for which both programs are valid.
        sizes: the number that each symbol has in the programs.
        parameters: their shapes with symbols.
        derived: other numbers in the programs that vary, and what they are.
        conditions: comparisons of symbols that hold wherever both programs are valid.
    """

    verdict: RuleVerdict
    sizes: Mapping[str, int]
    parameters: tuple[str, ...]
    derived: Mapping[int, str]
    conditions: tuple[str, ...]


def prove_any_size(before: HloModule, after: HloModule) -> PairVerdict:
    """Decide whether two programs are equal for all sizes of their parameters, for which both are valid.

    Raises HloError (``prove.parameters``) where their parameters differ, or have no size above 1.
    """
    for module in (before, after):
        expect(module, HloModule, "an HloModule")
    texts = [inlined(module).to_text() for module in (before, after)]
    shapes = [[p.shape for p in module.entry.parameters] for module in (before, after)]
    if len(shapes[0]) != len(shapes[1]) or not all(map(Shape.compatible, *shapes)):
        raise HloError("the programs have different parameters", rule="prove.parameters")
    symbols = _symbols(shapes[0])
    programs = [_SizedProgram(text, symbols) for text in texts]
    numbers = {name: number for number, name in symbols.items()}
    valid: list[set[Constraint]] = []

    def build(trail: Trail) -> Pair:
        try:
            pair = Pair(*(program.build(trail) for program in programs))
        except (HloError, ZeroDivisionError) as error:
            raise InvalidSizes from error
        check_sizes(pair.before)
        check_sizes(pair.after)
        valid.append(set(trail.comparisons))
        return pair

    verdict = judge(numbers, build, edges=True)
    sizes = Facts.of(Constraint(Polynomial.variable(name), is_equation=False) for name in numbers)
    always = set(valid[0]) if valid else set[Constraint]()
    for comparisons in valid[1:]:
        always &= comparisons
    conditions: list[str] = []
    for comparison in sorted(always, key=lambda c: (len(str(c)), str(c))):
        if comparison.variables <= numbers.keys() and not sizes.entail(comparison):
            conditions.append(str(comparison))
            sizes = sizes.assume(comparison)
    return PairVerdict(
        verdict,
        numbers,
        tuple(f"{p.name}: {_shape_text(p.shape, symbols)}" for p in before.entry.parameters),
        {n: str(e) for program in programs for n, e in program.expressions.items() if n not in symbols},
        tuple(conditions),
    )


def _symbols(shapes: Sequence[Shape]) -> dict[int, str]:
    """Return the symbol of each size of parameters above 1."""
    arrays = (part for shape in shapes for _, part in shape.leaves() if part.is_array)
    numbers = dict.fromkeys(size for part in arrays for size in part.dimensions if size > 1)
    names = itertools.chain(string.ascii_lowercase, (f"n{k}" for k in itertools.count()))
    symbols = dict(zip(numbers, names, strict=False))
    if not symbols:
        raise HloError("no parameter has a size above 1", rule="prove.parameters")
    return symbols


def _shape_text(shape: Shape, symbols: Mapping[int, str]) -> str:
    if shape.is_tuple:
        return f"({', '.join(_shape_text(s, symbols) for s in shape.tuple_shapes)})"
    return f"{shape.element_type.name}[{','.join(symbols.get(size, str(size)) for size in shape.dimensions)}]"


class _SizedProgram(Generalization):
    """A program whose sizes are functions of the symbols of another one's parameters.

    Attributes:
        expressions: the numbers in it that vary, and what they are.
    """

    def __init__(self, text: str, symbols: Mapping[int, str]) -> None:
        self.expressions: dict[int, Polynomial] = {}
        self._known = _expressions(symbols)
        super().__init__(text)

    def _symbol(self, name: str, value: int) -> int:
        field = name.rsplit(".", 1)[-1]
        if not (field.isdigit() or field.startswith("size") or field in _BOUNDS) or value not in self._known:
            return value
        self.expressions[value] = expression = self._known[value]
        return value if self._trail is None else self._trail.size(expression)


def _expressions(symbols: Mapping[int, str]) -> dict[int, Polynomial]:
    """Return the numbers that are symbols, and those that are one simple function of them."""
    values = {number: Polynomial.variable(name) for number, name in symbols.items()}
    pairs = list(itertools.combinations_with_replacement(values.items(), 2))
    kinds = (
        list(values.items()),
        [(x * y, v * w) for (x, v), (y, w) in pairs],
        [(x + y, v + w) for (x, v), (y, w) in pairs],
        [(n + d, v + Polynomial.constant(d)) for n, v in values.items() for d in (1, -1) if n + d >= _LEAST],
    )
    known: dict[int, Polynomial] = {}
    for kind in kinds:
        fresh: dict[int, set[Polynomial]] = {}
        for number, expression in kind:
            fresh.setdefault(number, set()).add(expression)
        known |= {n: e.pop() for n, e in fresh.items() if n > 1 and len(e) == 1 and n not in known}
    return known
