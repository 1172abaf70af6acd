"""Fingerprints of the states that loops end in whose iterations are not run.

An element of the state solves equations: it has an initial value, and a value after an iteration that is a
function of the values before, of this element and of all that it or the condition depends on. Elements are
named by their equations, not by their positions, so that loops are equal if one has elements that the other
does not need, or has replaced by what does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement, Parameter, Tuple
from hloom.proofs.field import salt_of
from hloom.proofs.values import hash_of, unknown

_Needs: TypeAlias = "frozenset[int] | tuple[_Needs, ...]"
"""The numbers of the elements of a loop's state that a value depends on, or for each element of a tuple."""


def last_state(
    i: HloInstruction, init: Sequence[Any], depth: int, iterate: Callable[[tuple[Any, ...]], tuple[Any, Any]]
) -> tuple[Any, ...]:
    """Return the fingerprints of the state that a loop ends in, a tuple.

    Args:
        i: the loop.
        init: its first state.
        depth: the number of loops around it, whose unknown values have other names.
        iterate: the function that returns the state after an iteration, and the condition, of a state.
    """
    shapes = i.shape.tuple_shapes
    fixed: set[int] = set()

    def named(names: Sequence[object]) -> tuple[Any, ...]:
        parts = [unknown(shape, f"state {depth} {name}") for shape, name in zip(shapes, names, strict=True)]
        return tuple([init[n] if n in fixed else part for n, part in enumerate(parts)])

    state = named(range(len(shapes)))
    after, _ = iterate(state)
    fixed = {n for n, (old, new) in enumerate(zip(state, after, strict=True)) if hash_of(old) == hash_of(new)}
    names = [salt_of(hash_of(value), shape) for value, shape in zip(init, shapes, strict=True)]
    after, _ = iterate(named(names))
    names = [salt_of(name, hash_of(value)) for name, value in zip(names, after, strict=True)]
    counts: Counter[int] = Counter()
    for n, name in enumerate(names):
        names[n] = salt_of(name, counts[name])
        counts[name] += 1
    after, condition = iterate(named(names))
    equations = [salt_of(name, hash_of(a), hash_of(b)) for name, a, b in zip(names, init, after, strict=True)]
    body, test = i.called_computations
    elements = tuple([frozenset([n]) for n in range(len(shapes))])
    needs = [_every(each) for each in _elements(_needs(body, elements), len(shapes))]
    first = _every(_needs(test, elements))

    def solution(n: int) -> Any:
        needed, reached = set[int](), {n, *first}
        while reached:
            needed |= reached
            reached = set[int]().union(*(needs[k] for k in reached - fixed)) - needed
        system = sorted(equations[k] for k in needed - fixed)
        return unknown(shapes[n], str(salt_of("loop", names[n], hash_of(condition), *system)))

    return tuple([init[n] if n in fixed else solution(n) for n in range(len(shapes))])


def _needs(computation: HloComputation, argument: _Needs) -> _Needs:
    """Return what the result of a computation of one parameter depends on.

    Args:
        computation: the body or the condition of a loop.
        argument: what the parameter depends on.
    """
    needs: dict[HloInstruction, _Needs] = {}
    for i in computation.post_order():
        operands = [needs[o] for o in i.operands]
        match i.operation:
            case Parameter():
                needs[i] = argument
            case Tuple():
                needs[i] = tuple(operands)
            case GetTupleElement(index=index) if isinstance(operands[0], tuple):
                needs[i] = operands[0][index]
            case While() if isinstance(operands[0], tuple):
                needs[i] = _needs_of_loop(i, operands[0])
            case _:
                needs[i] = _every(tuple(operands))
    return needs[computation.root]


def _needs_of_loop(i: HloInstruction, init: tuple[_Needs, ...]) -> _Needs:
    """Return what each element of the last state of a loop inside a computation depends on."""
    body, test = i.called_computations
    state = init
    while True:
        count = _needs(test, state)
        after = _elements(_needs(body, state), len(state))
        joined = tuple([_every((old, new, count)) for old, new in zip(state, after, strict=True)])
        if joined == state:
            return state
        state = joined


def _elements(needs: _Needs, count: int) -> tuple[_Needs, ...]:
    """Return what each element of a tuple depends on."""
    return needs if isinstance(needs, tuple) else (needs,) * count


def _every(needs: _Needs) -> frozenset[int]:
    """Return what any part of a value depends on."""
    return needs if isinstance(needs, frozenset) else frozenset[int]().union(*map(_every, needs))
