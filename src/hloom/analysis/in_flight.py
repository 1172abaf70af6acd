"""Values in flight: results of start operations before their done operations.

Only the done operation may read such a value; tuples, loops, branches and calls may pass it on.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.errors import VerifyError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule, ShapeIndex
from hloom.operations.asynchronous import AsyncStart, AsyncUpdate
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.structure import (
    AddDependency,
    Domain,
    GetTupleElement,
    OptimizationBarrier,
    Parameter,
    Tuple,
)
from hloom.operations.transfer import RecvDone

_PASSING_ON: Final = (AddDependency, AsyncUpdate, Domain, OptimizationBarrier)
_Places: TypeAlias = "frozenset[ShapeIndex]"
_NOWHERE: Final[_Places] = frozenset()


def ends_a_start(i: HloInstruction) -> bool:
    """Return true for done operations, which complete the value of a start operation."""
    ended = bool(i.operation.begun_by) and not isinstance(i.operation, AsyncUpdate)
    return ended or isinstance(i.operation, RecvDone)


def check_values_in_flight(module: HloModule) -> None:
    """Raise VerifyError by the rule ``async.in-flight`` for instructions that read values in flight."""
    if not any(_begun(i) for c in module.computations for i in c.instructions):
        return
    places = _places(module)
    for computation in module.computations:
        for i in computation.instructions:
            read = next((o for o in i.operands if not _may_have(i, o, places[o])), None)
            if read is not None:
                raise _error(i, f"reads a value in flight of %{read.name}")
            if isinstance(i.operation, While) and places[i.called_computations[1].root]:
                raise _error(i, "has a condition that is a value in flight")
    root = module.entry.root
    if places[root]:
        raise _error(root, "is the program's result and holds a value in flight")


def _may_have(i: HloInstruction, operand: HloInstruction, places: _Places) -> bool:
    """Return true if an instruction completes, passes on or unpacks an operand with values in flight."""
    match i.operation:
        case _ if not places or ends_a_start(i):
            return True
        case GetTupleElement():
            return () not in places
        case Conditional():
            return operand is not i.operands[0]
        case operation:
            return isinstance(operation, (*_PASSING_ON, Tuple, Call, While))


def _error(i: HloInstruction, what: str) -> VerifyError:
    message = f"%{i.name} {what}: only the done operation gives the value that a start operation has begun"
    return VerifyError(message, rule="async.in-flight", instruction=i.name)


def _begun(i: HloInstruction) -> _Places:
    """Return the shape indices in flight in a start operation's result; none if it completes at once."""
    index = i.operation.pending_index
    if index is None or ends_a_start(i):
        return frozenset()
    if isinstance(i.operation, AsyncStart) and not hasattr(i.called_computations[0].root.operation, "begin"):
        return frozenset()
    return frozenset([index])


class _Flow:
    """The shape indices in flight of each value, joined over all calls of a computation."""

    def __init__(self, module: HloModule) -> None:
        self.places = {i: _NOWHERE for c in module.computations for i in c.instructions}
        self.entering = {p: _NOWHERE for c in module.computations for p in c.parameters}

    def after(self, i: HloInstruction) -> _Places:
        """Return the shape indices in flight in a result; pass those of operands to called computations."""
        operands = [self.places[o] for o in i.operands]
        called = i.called_computations
        match i.operation:
            case Parameter():
                return self.entering[i]
            case Tuple():
                return frozenset((n, *index) for n, indices in enumerate(operands) for index in indices)
            case GetTupleElement(index=n):
                return frozenset(index[1:] for index in operands[0] if index[:1] == (n,))
            case Call():
                return self._call(called[0], operands)
            case Conditional():
                return _NOWHERE.union(
                    *(self._call(c, [one]) for c, one in zip(called, operands[1:], strict=True))
                )
            case While():
                state = operands[0] | self._call(called[0], [self.places[i]])
                self._call(called[1], [state])
                return state
            case operation if isinstance(operation, _PASSING_ON):
                return operands[0]
            case _:
                return _begun(i)

    def _call(self, called: HloComputation, arguments: list[_Places]) -> _Places:
        """Join arguments into the parameters of a called computation; return the indices of its result."""
        for parameter, places in zip(called.parameters, arguments, strict=True):
            self.entering[parameter] |= places
        return self.places[called.root]


def _places(module: HloModule) -> dict[HloInstruction, _Places]:
    """Return the shape indices in flight of each value, at the fixed point."""
    flow = _Flow(module)
    changed = True
    while changed:
        changed = False
        for computation in module.computations:
            for i in computation.post_order():
                new = flow.places[i] | flow.after(i)
                changed |= new != flow.places[i]
                flow.places[i] = new
    return flow.places
