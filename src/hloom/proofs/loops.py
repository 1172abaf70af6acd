"""Fingerprints of the states that loops end in whose iterations are not run.

An element of the state solves equations: it has an initial value, and a value after an iteration that is a
function of the values before, of this element and of all that it or the condition depends on. Elements are
named by their equations, not by their positions, so that loops are equal if one has elements that the other
does not need, or has replaced by what does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import GetTupleElement, Parameter, Tuple
from hloom.proofs.field import salt_of
from hloom.proofs.values import hash_of, unknown


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
    needs = _needs(body, len(shapes))
    first = _needs(test, 1)[0]

    def solution(n: int) -> Any:
        needed, reached = set[int](), {n, *first}
        while reached:
            needed |= reached
            reached = set[int]().union(*(needs[k] for k in reached - fixed)) - needed
        system = sorted(equations[k] for k in needed - fixed)
        return unknown(shapes[n], str(salt_of("loop", names[n], hash_of(condition), *system)))

    return tuple([init[n] if n in fixed else solution(n) for n in range(len(shapes))])


def _needs(computation: HloComputation, count: int) -> list[set[int]]:
    """Return the elements of the parameter that each element of a computation's result depends on.

    Args:
        computation: the body or the condition of a loop.
        count: the number of elements of its result.
    """
    (parameter,) = computation.parameters
    everything = set(range(len(parameter.shape.tuple_shapes)))
    needs: dict[HloInstruction, set[int]] = {}
    for i in computation.post_order():
        if isinstance(i.operation, Parameter):
            needs[i] = everything
        elif isinstance(i.operation, GetTupleElement) and i.operands[0] is parameter:
            needs[i] = {i.operation.index}
        else:
            needs[i] = set[int]().union(*(needs[o] for o in i.operands))
    root = computation.root
    if isinstance(root.operation, Tuple) and root.shape.is_tuple and len(root.operands) == count:
        return [needs[o] for o in root.operands]
    return [needs[root]] * count
