"""Declarations of elements: read one element at a time, recorded and emitted, they are what is evaluated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing.generators.case import FAMILIES, Case
from hloom.fuzzing.generators.families import draw_case
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.indexing import Indexing, Read
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY, Operation
from hloom.ir.traits import Family
from hloom.operations.conversion import from_bits, to_bits
from hloom.plan.accesses import Accesses
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal
from tests import agreement
from tests.native_runs import Native

ARBITRARY = 0xBAD
"""Value of elements whose condition is false."""
COUNT = 8
Array = np.ndarray[Any, Any]


def declares(opcode: str) -> bool:
    cls = REGISTRY[opcode]
    return cls.declares_element() or cls.accumulation is not Operation.accumulation


OPCODES = sorted(opcode for opcode in FAMILIES if opcode in REGISTRY and declares(opcode))
CASES = list(itertools.product(OPCODES, range(COUNT)))


@cache
def cases(opcode: str) -> list[Case]:
    """Return programs of an operation on integers of 64 bits, with sums as computations."""
    types = ("u64", "u16", "s8") if opcode == "bitcast-convert" else ("u64",)
    drawn = (draw_case(opcode, number, 0, types=types).unfolded for number in itertools.count())
    sums = (case for case in drawn if not case.computations or " add " in case.operation)
    return list(itertools.islice(sums, COUNT))


def root_of(case: Case) -> HloInstruction:
    """Return the operation of a case, without the tuple of results."""
    (root,) = case.module.entry.root.operands
    return root


class OneElement(Indexing[bool, Any]):
    """Interprets declarations by reading operands: indices are numbers, elements are values."""

    def __init__(self, arrays: dict[HloInstruction, Array]) -> None:
        super().__init__()
        self.arrays = arrays

    def element(self, i: HloInstruction, at: Sequence[int]) -> Any:
        """Return the element of an instruction at an index."""
        indices = tuple(map(Index, at))
        accumulation = i.operation.accumulation(self, i, indices)
        if accumulation is not None:
            initial = sum(int(self.arrays[o]) for o in accumulation.initial)
            total = initial
            for numbers in itertools.product(*map(range, accumulation.extents)):
                terms = accumulation.terms(tuple(map(Index, numbers)))
                outside = not terms or terms[0].condition is False
                total += initial if outside else math.prod(int(self.read(term)) for term in terms)
            return total % (1 << 64)
        steps = i.operation.element(self, i, indices)
        if not isinstance(steps, Generator):
            return steps
        value = None
        while True:
            try:
                value = self.read(steps.send(value))
            except StopIteration as end:
                return end.value

    def read(self, read: Read[bool]) -> Any:
        if read.condition is False:
            return ARBITRARY
        assert all(index.is_constant and index.constant >= 0 for index in read.indices)
        return self.arrays[read.instruction][tuple(index.constant for index in read.indices)]

    def compare(self, index: Index, size: int) -> bool:
        return 0 <= index.constant < size

    def conjunction(self, a: bool, b: bool) -> bool:
        return a and b

    def is_dense(self, i: HloInstruction) -> bool | None:
        return True

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        raise AssertionError("a number is affine")

    def position(self, element: Any, element_type: ElementType, extent: int) -> Index:
        return Index(min(max(int(element), 0), extent - 1))

    def choose(self, condition: bool, yes: Any, no: Any) -> Any:
        return yes if condition else no

    def zero(self, element_type: ElementType) -> Any:
        return element_type.numpy_dtype.type(0)

    def literal(self, element_type: ElementType, literal: Literal) -> Any:
        return literal.array.reshape(-1)[0]

    def number(self, index: Index, element_type: ElementType) -> Any:
        return index.constant

    def part(self, element: Any, number: Index, before: ElementType, after: ElementType) -> Any:
        first = number.constant * after.bits
        return from_bits(to_bits(np.asarray(element))[first : first + after.bits], after)[()]

    def joined(self, elements: Sequence[Any], before: ElementType, after: ElementType) -> Any:
        return from_bits(np.concatenate([to_bits(np.asarray(e)) for e in elements]), after)[()]

    def elementwise(self, instruction: HloInstruction, operands: Sequence[Any]) -> Any:
        raise AssertionError("no operand is computed")

    def undeclared(self, i: HloInstruction, indices: Indices) -> Any:
        raise AssertionError(f"{i.opcode} declares no elements")


def evaluated(case: Case, arguments: Sequence[Array]) -> Array:
    results: Any = Evaluator().run(case.module.entry, list(arguments))
    return np.asarray(results[0])


def test_every_declaration_is_drawn() -> None:
    declaring = {opcode for opcode in REGISTRY if declares(opcode)}
    assert set(OPCODES) == declaring - {
        "dynamic-reshape",
        "constant",
    }  # the same steps as reshape; one element


@pytest.mark.parametrize(("opcode", "number"), CASES)
def test_declared_elements_are_those_of_the_evaluator(opcode: str, number: int) -> None:
    case = cases(opcode)[number]
    root = root_of(case)
    expected = evaluated(case, case.arguments)
    assert root.parent is not None
    one = OneElement(dict(zip(root.parent.parameters, case.arguments, strict=True)))
    elements = np.empty(expected.shape, expected.dtype)
    for at in np.ndindex(expected.shape):
        elements[at] = one.element(root, at)
    agreement.same(elements, expected)


def possible(index: Index, loops: dict[Variable, int]) -> set[int]:
    """Return the values of a linear index at numbers of the loops, whatever its other variables are."""
    values = {index.constant}
    for variable, coefficient in index.terms:
        numbers = [loops[variable]] if variable in loops else range(variable.extent)
        values = {v + coefficient * n for v in values for n in numbers}
    return values


def influences(case: Case, values: list[Array], number: int) -> Iterator[tuple[int, Array]]:
    """Yield for each element of an operand its linear index and the results that change with it."""
    flat = values[number].reshape(-1)
    before = evaluated(case, values)
    for place in range(flat.size):
        changed = flat.copy()
        changed[place] ^= flat.dtype.type(-1 if flat.dtype.kind == "i" else np.iinfo(flat.dtype).max)
        others = [*values[:number], changed.reshape(values[number].shape), *values[number + 1 :]]
        yield place, np.argwhere(evaluated(case, others) != before)


@pytest.mark.parametrize(("opcode", "number"), CASES)
def test_recorded_reads_include_those_of_the_evaluator(opcode: str, number: int) -> None:
    case = cases(opcode)[number]
    root, values = root_of(case), list(case.arguments)
    if root.operation.family is Family.CONTRACTION:
        values = [v | 1 for v in values]  # a product with an odd number changes with the other factor
    assert root.parent is not None
    parameters = root.parent.parameters
    loops = [Variable(size) for size in root.shape.dimensions]
    accesses = Accesses(parameters)
    accesses.element(root, tuple(map(Index.of, loops)))
    for operand, parameter in enumerate(parameters):
        recorded = accesses.reads.get(parameter, set())
        for place, results in influences(case, values, operand):
            for at in results:
                at_loops = dict(zip(loops, map(int, at), strict=True))
                assert any(place in possible(index, at_loops) for index in recorded)


@pytest.mark.parametrize(("opcode", "number"), CASES)
def test_emitted_elements_are_those_of_the_evaluator(opcode: str, number: int) -> None:
    case = cases(opcode)[number]
    expected = evaluated(case, case.arguments)
    agreement.same(Native(case.module)(*case.arguments)[0], expected)
