"""Integers that remember how they were computed: sizes for which code runs once and is judged for all.

A `Size` is an int, so that every rule, shape and operation takes it. It carries the polynomial of which it is
the value for the numbers chosen for a run, and notes each comparison in the `Trail` of the run. For all other
numbers that decide these comparisons in the same way, the code computes the same polynomials.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, SupportsIndex

from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.records import dataclass

BEYOND: Final = 1 << 60
"""Comparisons with constants from here on are not noted: they refuse programs with numbers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A polynomial's sign: it is 0, or at least 0, or one of these does not hold.

    Attributes:
        polynomial: what is compared with 0.
        is_equation: whether it is compared by ``==``; otherwise by ``>=``.
        holds: whether the comparison is true.
    """

    polynomial: Polynomial
    is_equation: bool
    holds: bool = True

    @property
    def variables(self) -> frozenset[str]:
        """The variables that occur."""
        return self.polynomial.variables

    def is_true_of(self, value: int) -> bool:
        """Return whether the comparison holds where its polynomial has a value."""
        return (value == 0 if self.is_equation else value >= 0) == self.holds

    def negation(self) -> Constraint:
        """Return the opposite comparison."""
        return Constraint(self.polynomial, self.is_equation, not self.holds)

    def __str__(self) -> str:
        relation = ("==" if self.holds else "!=") if self.is_equation else ">=" if self.holds else "<"
        return f"{self.polynomial} {relation} 0"


@dataclass(slots=True)
class Division:
    """The quotient, rounded down, and the remainder of polynomials, which are variables of their own."""

    dividend: Polynomial
    divisor: Polynomial
    quotient: str
    remainder: str


@dataclass(slots=True)
class Trail:
    """What a run of some code has compared and divided.

    Attributes:
        values: the numbers chosen for the symbols, and those of the variables defined since.
        comparisons: in the order in which they were made.
        divisions: the variables defined by divisions.
        fixed: comparisons that hold because code took the number itself.
    """

    values: dict[str, int]
    comparisons: dict[Constraint, None] = field(default_factory=dict[Constraint, None])
    divisions: list[Division] = field(default_factory=list[Division])
    fixed: set[Constraint] = field(default_factory=set[Constraint])

    @property
    def symbols(self) -> list[str]:
        """The names of the symbols, without variables that divisions define."""
        defined = {name for d in self.divisions for name in (d.quotient, d.remainder)}
        return [name for name in self.values if name not in defined]

    def size(self, polynomial: Polynomial) -> Size:
        """Return the value of a polynomial."""
        return Size.of(polynomial.at(self.values), polynomial, self)

    def symbol(self, name: str) -> Size:
        """Return the number chosen for a symbol."""
        return self.size(Polynomial.variable(name))

    def note(self, polynomial: Polynomial, *, is_equation: bool) -> bool:
        """Return whether a polynomial is 0, or at least 0; note what was compared unless it is a constant."""
        value = polynomial.at(self.values)
        holds = value == 0 if is_equation else value >= 0
        if polynomial.value is None:
            self.comparisons.setdefault(Constraint(polynomial, is_equation, holds))
        return holds

    def divide(self, dividend: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return quotient and remainder, the same variables for equal divisions."""
        for earlier in self.divisions:
            if earlier.dividend == dividend and earlier.divisor == divisor:
                return Polynomial.variable(earlier.quotient), Polynomial.variable(earlier.remainder)
        self.note(divisor - Polynomial.constant(1), is_equation=False)
        number = len(self.divisions)
        division = Division(dividend, divisor, f"quotient{number}", f"remainder{number}")
        quotient, remainder = divmod(dividend.at(self.values), divisor.at(self.values))
        self.values |= {division.quotient: quotient, division.remainder: remainder}
        self.divisions.append(division)
        return Polynomial.variable(division.quotient), Polynomial.variable(division.remainder)


class Size(int):
    """An integer with the polynomial that it is a value of."""

    polynomial: Polynomial
    trail: Trail

    @classmethod
    def of(cls, value: int, polynomial: Polynomial, trail: Trail) -> Size:
        """Return a size of a run."""
        size = cls(value)
        size.polynomial, size.trail = polynomial, trail
        return size

    def __deepcopy__(self, memo: object) -> Size:
        return self

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        return self.trail.size(self.polynomial + _term(other)) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.trail.size(self.polynomial - _term(other)) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self.trail.size(_term(other) - self.polynomial) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self.trail.size(self.polynomial * _term(other)) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self.trail.size(-self.polynomial)

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Size:
        return self if self >= 0 else -self

    def __divmod__(self, other: Any) -> Any:
        quotient, remainder = self.trail.divide(self.polynomial, _term(other))
        return self.trail.size(quotient), self.trail.size(remainder)

    def __floordiv__(self, other: Any) -> Any:
        return divmod(self, other)[0]

    def __mod__(self, other: Any) -> Any:
        return divmod(self, other)[1]

    def __rfloordiv__(self, other: Any) -> Any:
        return self.trail.size(_term(other)) // self

    def __rmod__(self, other: Any) -> Any:
        return self.trail.size(_term(other)) % self

    # -- comparisons

    def _compare(self, difference: Polynomial, other: object, *, is_equation: bool) -> bool:
        if not isinstance(other, Size) and isinstance(other, int) and abs(other) >= BEYOND:
            value = difference.at(self.trail.values)
            return value == 0 if is_equation else value >= 0
        return self.trail.note(difference, is_equation=is_equation)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return False
        return self._compare(self.polynomial - _term(other), other, is_equation=True)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __ge__(self, other: int) -> bool:
        return self._compare(self.polynomial - _term(other), other, is_equation=False)

    def __le__(self, other: int) -> bool:
        return self._compare(_term(other) - self.polynomial, other, is_equation=False)

    def __lt__(self, other: int) -> bool:
        return not self >= other

    def __gt__(self, other: int) -> bool:
        return not self <= other

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return super().__hash__()

    # -- conversions, which fix the number

    def _fix(self) -> int:
        difference = self.polynomial - Polynomial.constant(int.__int__(self))
        self.trail.note(difference, is_equation=True)
        self.trail.fixed.add(Constraint(difference, is_equation=True))
        return int.__int__(self)

    def __int__(self) -> int:
        return self._fix()

    def __index__(self) -> int:
        return self._fix()

    def __float__(self) -> float:
        return float(self._fix())

    def __round__(self, digits: SupportsIndex | None = None) -> int:
        return self._fix()


def _term(value: int) -> Polynomial:
    return value.polynomial if isinstance(value, Size) else Polynomial.constant(int(value))
