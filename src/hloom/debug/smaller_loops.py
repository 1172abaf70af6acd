"""Steps that shrink loops and conditionals of a program; each returns a changed copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.analysis.loops import TupleLoop, picks
from hloom.debug.cut import extracted, inlined, named, reset_config
from hloom.debug.smaller import Reproducer, cleaned, edited, replaced, zeros
from hloom.debug.tracing import Event
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.structure import Constant
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.loops.while_loops import loop_of, rebuild, sink
from hloom.passes.writing import Writer
from hloom.shape.literal import Literal


def called(program: Reproducer, computation: str, name: str, branch: int) -> Reproducer:
    """Return a copy of a program with a loop or conditional replaced by one run of its body or a branch.

    Args:
        program: the program.
        computation: the name of the computation that has the instruction.
        name: the name of the instruction.
        branch: the index of the branch of a conditional; 0 for a while loop, to run its body.
    """

    def call(module: HloModule, i: HloInstruction) -> HloInstruction:
        operand = i.operands[0] if isinstance(i.operation, While) else i.operands[1 + branch]
        callee = i.called_computations[branch]
        call = HloInstruction(module.unique_name("call"), Call(), i.shape, [operand], [callee])
        assert i.parent is not None
        return i.parent.add(call)

    changed = edited(program, computation, name, call)
    return Reproducer(inlined(changed.module), changed.inputs)


def subprograms(program: Reproducer, events: Sequence[Event]) -> list[Reproducer]:
    """Return the loop bodies and branches that the entry has run, each as a separate program.

    Their arguments are taken from ``events``, the values of a run: each loop body comes twice, with the
    initial and the final value of the loop; a branch comes with its operand.
    """
    candidates: list[Reproducer] = []
    for event in events:
        instruction = event.instruction
        if event.callers or not isinstance(instruction.operation, While | Conditional):
            continue
        if isinstance(instruction.operation, While):
            states = [*event.operands, event.value]
            bodies = [(instruction.called_computations[0], state) for state in states]
        else:
            bodies = list(zip(instruction.called_computations, event.operands[1:], strict=True))
        for computation, argument in bodies:
            module = extracted(program.module, computation)
            candidates.append(Reproducer.of(module, [argument]))
    return candidates


def without_element(program: Reproducer, name: str, number: int, as_initial: bool) -> Reproducer | None:
    """Return a copy of a program without element ``number`` of the tuple that a loop carries.

    Users of the element after the loop get its initial value. Returns None if the loop does not carry a tuple
    of several elements, or if ``as_initial`` and the initial value is not a constant.

    Args:
        program: the program.
        name: the name of the loop.
        number: the index of the element.
        as_initial: whether uses in the loop get the initial value, a constant; else they get zeros.
    """
    copy, loop, is_root = _loop(program, name)
    if loop is None or loop.count == 1:
        return None
    if as_initial:
        if not isinstance(loop.initial(number).operation, Constant):
            return None
        sink(loop, number, loop.initial(number))
    else:
        for state in (loop.state, loop.tested):
            for pick in picks(state, number):
                assert state.parent is not None
                replaced(pick, zeros(copy, state.parent, pick.shape))
    rebuild(loop, [n for n in range(loop.count) if n != number])
    loop.instruction.name = name
    if is_root:
        copy.entry.root = loop.instruction
    return cleaned(Reproducer(copy, program.inputs))


def over_array(program: Reproducer, name: str) -> Reproducer | None:
    """Return a copy of a program in which a loop over a tuple of one array is a loop over the array.

    ``name`` is the name of the loop. Returns None for any other loop.
    """
    copy, loop, is_root = _loop(program, name)
    if loop is None or loop.count != 1 or not loop.initial(0).shape.is_array:
        return None
    initial, following = loop.initial(0), loop.following[0]
    loop.body.root = loop.state if following in picks(loop.state, 0) else following
    for state in (loop.state, loop.tested):
        for pick in picks(state, 0):
            replaced(pick, state)
        state.shape = initial.shape
    old = loop.instruction
    new = Writer(old).op(While(), initial, shape=initial.shape, computations=old.called_computations)
    for pick in picks(old, 0):
        replaced(pick, new)
    old.name, new.name = new.name, name
    if is_root:
        copy.entry.root = new
    return cleaned(Reproducer(copy, program.inputs))


def with_limit(program: Reproducer, computation: str, name: str, limit: int) -> Reproducer | None:
    """Return a copy of a program in which the value of an integer constant in a loop condition is ``limit``.

    A smaller limit lowers the trip count. ``name`` is the constant's name, ``computation`` that of the
    condition.
    """
    copy = program.module.clone()
    reset_config(copy)
    constant = named(named(copy.computations, computation), name)
    kind = constant.shape.element_type
    constant.operation = Constant(literal=Literal(np.asarray(limit, kind.numpy_dtype), constant.shape))
    return Reproducer(copy, program.inputs)


def limits(module: HloModule) -> list[tuple[str, str, int]]:
    """Return (computation, name, value) of each scalar integer constant in the condition of a loop."""
    conditions = {i.called_computations[1] for i in module.instructions() if isinstance(i.operation, While)}
    return [
        (c.name, i.name, int(i.operation.literal.array))
        for c in module.computations
        if c in conditions
        for i in c
        if isinstance(i.operation, Constant) and i.shape.is_scalar and i.shape.element_type.is_integer
    ]


def _loop(program: Reproducer, name: str) -> tuple[HloModule, TupleLoop | None, bool]:
    """Copy a program to change its loop ``name``; return (copy, the loop, whether it is the entry's root).

    In the copy no other instruction calls the loop's computations. The loop is None if it does not carry a
    tuple.
    """
    copy = program.module.clone()
    reset_config(copy)
    FlattenCallGraph().run(copy)
    instruction = named(copy.instructions(), name)
    is_root = instruction is copy.entry.root
    return copy, loop_of(instruction), is_root
