"""The terms that proofs by relations rest on: indices, inequalities, equality and totals, against numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pytest

from hloom.ir.affine import Index, Variable
from hloom.operations.arithmetic import Add, Maximum
from hloom.operations.unary import Negate
from hloom.proofs.relations.equality import Equality
from hloom.proofs.relations.indices import Datum, Quotient, Quotients
from hloom.proofs.relations.inequalities import exclude_each_other
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.terms import Element, Number, Term, Terms
from hloom.proofs.relations.totals import Totals
from hloom.shape.element_type import F32, S32

Numbers = Mapping[Variable, int]


def value(index: Index, numbers: Numbers) -> int:
    """Return an index for values of its variables."""
    total = index.constant
    for variable, coefficient in index.terms:
        if isinstance(variable, Quotient):
            number = value(variable.dividend, numbers) // variable.divisor
        else:
            number = numbers[variable]
        total += coefficient * number
    return total


def assignments(variables: Sequence[Variable]) -> list[Numbers]:
    """Return all values of variables."""
    extents = [range(v.extent) for v in variables]
    return [dict(zip(variables, numbers, strict=True)) for numbers in itertools.product(*extents)]


class Interpreter:
    """Computes terms of integers: elements of arguments, sums and products of two, totals."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def value(self, index: Index, numbers: Numbers) -> int:
        """Return an index, which may depend on elements, for values of its variables."""
        data = {v: self.number(v.element, numbers) - v.least for v, _ in index.terms if isinstance(v, Datum)}
        return value(index, {**numbers, **data})

    def number(self, term: Term, numbers: Numbers) -> int:
        """Return the value of a term for values of its variables."""
        if isinstance(term, Number):
            return self.value(term.index, numbers)
        if not isinstance(term, Element):
            return self.number(term.yes if self.value(term.condition, numbers) >= 0 else term.no, numbers)
        kind, *head = term.function.head
        if kind == "argument":
            return hash((head[0], *(value(index, numbers) for index in term.indices))) % 1009
        operands, bound = self.terms.opened(term)
        if kind == "total":
            assert head[1:] == ["s32"]
            rows = [self.number(operands[0], {**numbers, **more}) for more in assignments(bound)]
            return sum(rows) if head[0] == "add" else reduce(max, rows)
        values = [self.number(operand, numbers) for operand in operands]
        if kind == "wrapped":  # numbers here are too small to wrap
            return values[0]
        return {"add": sum, "multiply": math.prod, "maximum": max}[kind.opcode](values)


def random_index(generator: random.Random, variables: Sequence[Variable], quotients: Quotients) -> Index:
    """Return a small index, or a quotient."""
    terms = [(v, generator.choice((0, 0, 1, 1, -1, 2, 3, -4))) for v in variables]
    index = Index(generator.randrange(-6, 7), terms)
    return quotients.divide(index, generator.choice((2, 3, 4))) if generator.random() < 0.3 else index


def test_quotients_are_those_of_numbers() -> None:
    generator = random.Random(0)
    quotients = Quotients()
    for _ in range(400):
        variables = [Variable(generator.choice((2, 3, 4, 8))) for _ in range(3)]
        index = Index(generator.randrange(-9, 9), [(v, generator.randrange(-12, 13)) for v in variables])
        for divisor in generator.choices((2, 3, 4, 6, 8, 12), k=2):
            result = quotients.divide(index, divisor)
            for _ in range(5):
                numbers = {v: generator.randrange(v.extent) for v in variables}
                assert value(result, numbers) == value(index, numbers) // divisor
            index = result * generator.choice((1, 2, 4)) + Index(1, [(variables[0], 1)])


def test_conditions_exclude_each_other_only_if_no_numbers_satisfy_them() -> None:
    generator = random.Random(0)
    impossible = detected = 0
    for _ in range(600):
        quotients = Quotients()
        variables = [Variable(generator.choice((2, 3, 5))) for _ in range(3)]
        conditions = [random_index(generator, variables, quotients) for _ in range(4)]
        holds = any(all(value(c, numbers) >= 0 for c in conditions) for numbers in assignments(variables))
        assert not (holds and exclude_each_other(conditions))
        impossible += not holds
        detected += exclude_each_other(conditions)
    assert detected > 0.9 * impossible > 100


def test_nothing_is_decided_of_the_parameters_of_functions() -> None:
    """They stand for any index, also for negative ones: here for x - 5."""
    terms = Terms()
    x, y = (Variable(8, "x") for _ in range(2))
    a, b = (terms.close(("argument", n), [Number(Index.of(v))]) for n, v in enumerate((x, y)))
    chosen = terms.choose(Index(-5, [(x, 1)]), a, b)
    assert not isinstance(chosen, Element)
    function = terms.close((Negate(), "s32", "s32"), [chosen])
    diagonal = terms.at(function, {y: Index.of(x)})
    assert isinstance(diagonal, Element)
    (operand,), _ = terms.opened(terms.at(diagonal, {x: Index(0)}))  # type: ignore[arg-type]
    assert operand == terms.at(b, {y: Index(0)})


@pytest.mark.parametrize("operation", [Add(), Maximum()], ids=["sums", "maxima"])
def test_totals_of_random_choices(operation: Add | Maximum) -> None:
    generator = random.Random(1)
    for _ in range(300):
        terms = Terms()
        laws = Laws(terms, reals=True)
        totals = Totals(terms, laws)
        neutral = totals.neutral(operation, S32)
        free = [Variable(generator.choice((1, 2, 3)), "x") for _ in range(2)]
        bound = [Variable(generator.choice((2, 3, 4)), "b") for _ in range(2)]
        own = [random_index(generator, (*free, *bound), terms.quotients) for _ in range(5)]
        body: Term = terms.close(("argument", 0), [Number(index) for index in own[:2]])
        for condition in own[2:]:
            other = terms.close(("argument", 1), [Number(own[1])]) if generator.random() < 0.5 else neutral
            more = laws.binary(operation, S32, body, other) if generator.random() < 0.3 else other
            first, second = generator.sample((body, more), 2)
            body = terms.choose(condition, first, second)
        total = totals.combine(operation, S32, bound, body, frozenset(bound[:1]))
        read = Interpreter(terms)
        for numbers in assignments(free):
            rows = [read.number(body, {**numbers, **more}) for more in assignments(bound)]
            expected = sum(rows) if isinstance(operation, Add) else reduce(max, rows)
            assert read.number(total, numbers) == expected


def test_sequences_keep_the_order_of_their_terms() -> None:
    generator = random.Random(3)
    shorter = 0
    for _ in range(300):
        terms = Terms()
        totals = Totals(terms, Laws(terms, reals=False))
        skipped = terms.close(("argument", 9), [])
        x = Variable(3, "x")
        variables = [Variable(generator.choice((2, 3, 4)), "b") for _ in range(2)]
        own = [random_index(generator, (x, *variables), terms.quotients) for _ in range(3)]
        position = Index(0, [(variables[0], variables[1].extent), (variables[1], 1)])
        conditions = [own[0], own[0] * -1, own[1]] if generator.random() < 0.5 else own[:2]
        body = terms.every(conditions, terms.close(("argument", 0), [Number(position)]), skipped)
        short, rest = totals.sequence(body, variables, skipped)
        shorter += len(rest) < 2
        read = Interpreter(terms)
        for numbers in assignments([x]):
            lists = [
                [read.number(term, {**numbers, **more}) for more in assignments(inner)]
                for term, inner in ((body, variables), (short, rest))
            ]
            skip = read.number(skipped, {})
            assert [n for n in lists[0] if n != skip] == [n for n in lists[1] if n != skip]
    assert shorter > 30


def test_the_values_that_make_an_index_divisible() -> None:
    """Of the sum over b only the b count for which 32 divides 31 x + b."""
    terms = Terms()
    totals = Totals(terms, Laws(terms, reals=True))
    x, b = Variable(32, "x"), Variable(32, "b")
    index = Index(0, [(x, 31), (b, 1)])
    quotient = terms.quotients.divide(index, 32)
    body = terms.choose(
        quotient * 32 - index, terms.close(("argument", 0), [Number(Index.of(b))]), Number(Index(0))
    )
    total = totals.combine(Add(), S32, [b], body)
    assert total.free == {x}
    read = Interpreter(terms)
    for numbers in assignments([x]):
        rows = [read.number(body, {**numbers, **more}) for more in assignments([b])]
        assert read.number(total, numbers) == sum(rows)


def test_equal_terms_are_equal_for_all_numbers() -> None:
    generator = random.Random(2)
    equal = 0
    for _ in range(400):
        terms = Terms()
        x, y = (Variable(generator.choice((2, 3, 4)), "x") for _ in range(2))
        pair: list[Term] = []
        for _ in range(2):
            fact = random_index(generator, (x, y), terms.quotients)
            first, second = (Index(0, [(x, generator.choice((0, 1, 2)))]) for _ in range(2))
            elements = [
                terms.close(
                    (Add(), "s32", "s32", "s32"), [terms.close(("argument", 0), [Number(i)]), Number(i)]
                )
                for i in (first, second)
            ]
            pair.append(terms.choose(fact, elements[0], elements[1]))
        facts = [random_index(generator, (x, y), terms.quotients)]
        if Equality(terms).holds(pair[0], pair[1], facts):
            read = Interpreter(terms)
            inside = [numbers for numbers in assignments((x, y)) if value(facts[0], numbers) >= 0]
            equal += bool(inside)
            assert all(read.number(pair[0], numbers) == read.number(pair[1], numbers) for numbers in inside)
    assert equal > 10


def test_conditions_that_only_fractions_of_a_digit_satisfy() -> None:
    """Of two tiles of 112, one has no row from 112 on, and the other none between 96 and 63."""
    terms = Terms()
    d, x = Variable(2, "d"), Variable(112, "x")
    facts = [Index(-48, [(d, 112), (x, 1)]), Index(175, [(d, -112), (x, -1)]), Index(-112, [(d, 16), (x, 1)])]
    assert not any(all(value(f, numbers) >= 0 for f in facts) for numbers in assignments((d, x)))
    a, b = (terms.close(("argument", n), [Number(Index.of(x))]) for n in range(2))
    assert Equality(terms).holds(a, b, facts)
    assert not Equality(terms).holds(a, b, facts[:2])


def test_terms_are_equal_where_conditions_leave_one_index() -> None:
    terms = Terms()
    d, x = Variable(2, "d"), Variable(760, "x")
    at_border = terms.close(("argument", 0), [Number(Index(767))])
    element = terms.close(("argument", 0), [Number(Index(7, [(d, 760), (x, 1)]))])
    border = Index(-1, [(d, 1), (x, -1)])  # d = 1 and x = 0
    chosen = terms.choose(border, at_border, element)
    assert chosen != element
    assert Equality(terms).holds(chosen, element)
    assert not Equality(terms).holds(chosen, terms.at(element, {x: Index(1, [(x, 1)])}))


def test_a_total_over_tiles_is_the_total() -> None:
    terms = Terms()
    laws = Laws(terms, reals=True)
    totals = Totals(terms, laws)
    k, tile, row = (Variable(extent) for extent in (12, 4, 3))

    def element(index: Index) -> Term:
        return terms.close(("argument", 0), [Number(index)])

    total = totals.combine(Add(), F32, [k], element(Index.of(k)))
    inner = totals.combine(Add(), F32, [row], element(Index(0, [(tile, 3), (row, 1)])))
    assert totals.combine(Add(), F32, [tile], inner, frozenset([tile])) == total
    overlapping = totals.combine(Add(), F32, [tile, row], element(Index(0, [(tile, 2), (row, 1)])))
    assert overlapping != total
    masked = terms.choose(Index(8, [(k, -1)]), element(Index.of(k)), laws.constant(0, F32))
    shorter = Variable(9)
    assert totals.combine(Add(), F32, [k], masked) == totals.combine(
        Add(),
        F32,
        [shorter],
        element(Index.of(shorter)),
    )


def test_constants_over_the_reals() -> None:
    laws = Laws(Terms(), reals=True)
    assert laws.constant(np.float32(-0.0), F32) == laws.constant(0, F32)
