"""loop-stack-reuse: let a loop store its results in the array of which it reads a slice in each iteration.

A scan over layers takes the cache of each layer from one array, changes a few elements, and stores all of
them in another array, whose initial elements nobody reads::

    c = dynamic-update-slice(slice(x, i), u, at);  y = dynamic-update-slice(y, c, i)

If nothing reads x after the loop, y can begin as x: iteration i reads slice i before it writes it. Then only
u is stored, and c is a slice of the new y::

    y = dynamic-update-slice(y, u, i, at);  c = slice(y, i)

An argument x is read by nothing after the loop if it is donated to y, by an alias of the module.
"""

from __future__ import annotations

from typing import NamedTuple

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.trip_count import TripCount, trip_count
from hloom.analysis.updates import is_alias
from hloom.analysis.values import is_all
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple, parameter_number
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.rules.updates import is_small_part
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


class LoopStackReuse(Pass, name="loop-stack-reuse", of=While, needs={FLAT}):
    """``y = update(y, update(slice(x, i), u, at), i)`` in a loop → ``y = update(y, u, i, at)``. Bitwise."""

    def run(self, module: HloModule) -> bool:
        """Rewrite the elements of every loop."""
        changed = False
        for loop in loops_of(module):
            count = trip_count(loop)
            stacks = [_stack(loop, number, count) for number in range(loop.count)]
            sources: set[int] = set()
            for stack in stacks:
                if stack is not None and stack.source not in sources and consume(f"%{stack.update.name}"):
                    sources.add(stack.source)
                    _rewrite(loop, stack)
            if sources:
                remove_dead(loop.body)
                rebuild(loop, [number for number in range(loop.count) if number not in sources])
                changed = True
        return changed


class Stack(NamedTuple):
    """An array whose slices a loop replaces one after the other by slices of another array with updates.

    Attributes:
        number, source: the elements of the state that are written and read.
        update: the update of the array that is written.
        inner: the update of the slice.
    """

    number: int
    source: int
    update: HloInstruction
    inner: HloInstruction


def _stack(loop: TupleLoop, number: int, count: TripCount | None) -> Stack | None:
    """Return an element of a loop as a stack; None if it is none, or if other arrays are still needed."""
    update = loop.following[number]
    if count is None or (count.initial, count.step) != (0, 1):
        return None
    if not isinstance(update.operation, DynamicUpdateSlice) or not update.shape.rank:
        return None
    if not _is_slice(update, loop, count) or count.iterations != update.shape.dimensions[0]:
        return None
    if element_number(update.operands[0], loop.state) != number or picks(loop.tested, number):
        return None
    if [list(p.users) for p in picks(loop.state, number)] != [[update]]:
        return None
    inner = _before_reshape(update.operands[1])
    if not isinstance(inner.operation, DynamicUpdateSlice) or not is_small_part(inner.operands[1], inner):
        return None
    if inner.shape.dimensions != update.shape.dimensions[1:] or not _has_equal_starts(inner, update):
        return None
    part = _before_reshape(inner.operands[0])
    source = element_number(part.operands[0], loop.state) if part.operands else None
    if source is None or not _is_read_in_turn(loop, source, count):
        return None
    same = loop.initial(source).shape.compatible(update.shape)
    return Stack(number, source, update, inner) if same and _is_last_use(loop, source, number) else None


def _before_reshape(i: HloInstruction) -> HloInstruction:
    return i.operands[0] if isinstance(i.operation, Reshape) else i


def _has_equal_starts(a: HloInstruction, b: HloInstruction) -> bool:
    """Return whether the start indices of two updates have one type."""
    return len({start.shape.element_type for update in (a, b) for start in update.operands[2:]}) == 1


def _is_slice(i: HloInstruction, loop: TupleLoop, count: TripCount) -> bool:
    """Return whether a slice, or an update, is of all elements at the loop's counter."""
    is_update = isinstance(i.operation, DynamicUpdateSlice)
    first, *others = i.operands[2 if is_update else 1 :]
    sizes = (i.operands[1] if is_update else i).shape.dimensions
    counted = element_number(first, loop.state) == count.element
    return counted and sizes == (1, *i.operands[0].shape.dimensions[1:]) and all(is_all(o, 0) for o in others)


def _is_read_in_turn(loop: TupleLoop, number: int, count: TripCount) -> bool:
    """Return whether iterations only read their slice of an element, which they do not change."""
    if not loop.is_invariant(number) or picks(loop.tested, number):
        return False
    users = [u for p in picks(loop.state, number) for u in p.users if u is not loop.body.root]
    return all(isinstance(u.operation, DynamicSlice) and _is_slice(u, loop, count) for u in users)


def _is_last_use(loop: TupleLoop, number: int, target: int) -> bool:
    """Return whether the initial value of an element is memory that nothing else reads.

    It is new, a loop's, or an argument that is donated to the result of the element ``target``.
    """
    value = loop.initial(number)
    if list(value.users) != [loop.instruction.operands[0]]:
        return False
    if loop.instruction.operands[0].operands.count(value) != 1:
        return False
    if isinstance(value.operation, Parameter):
        return _is_donated(value, loop, target)
    if not isinstance(value.operation, GetTupleElement):
        return not (isinstance(value.operation, Constant) or is_alias(value))
    whole = value.operands[0]
    if len(picks(whole, value.operation.index)) != 1:
        return False
    return isinstance(whole.operation, While) or _is_state(whole)


def _is_donated(parameter: HloInstruction, loop: TupleLoop, number: int) -> bool:
    """Return whether a parameter's memory is that of a result which is an element of a loop."""
    computation = parameter.parent
    if computation is None or computation.module is None or computation is not computation.module.entry:
        return False
    root, aliases = computation.root, computation.module.config.aliases
    results = enumerate(root.operands) if isinstance(root.operation, Tuple) else ()
    taken = [aliases[n,] for n, o in results if (n,) in aliases and o in picks(loop.instruction, number)]
    return any((a.parameter_number, *a.parameter_index) == (parameter_number(parameter),) for a in taken)


def _is_state(i: HloInstruction) -> bool:
    """Return whether an instruction is the state of a loop, in its body."""
    computation = i.parent
    if not isinstance(i.operation, Parameter) or computation is None or computation.module is None:
        return False
    loops = (w for w in computation.module.instructions() if isinstance(w.operation, While))
    return any(w.called_computations[0] is computation for w in loops)


def _rewrite(loop: TupleLoop, stack: Stack) -> None:
    """Carry the array that is read as the one that is written, and store the new elements only."""
    number, source, update, inner = stack
    loop.instruction.operands[0].replace_operand(number, loop.initial(source))
    array, _, i, *zeros = update.operands
    for pick in picks(loop.state, source):
        for user in list(pick.users):
            if user is not loop.body.root:
                user.replace_operand(0, array)
    w = Writer(update)
    _, u, *starts = inner.operands
    row = w.op(Reshape(), u, shape=Shape(u.shape.element_type, (1, *u.shape.dimensions)))
    new = w.op(DynamicUpdateSlice(), array, row, i, *starts)
    part = w.op(DynamicSlice(dynamic_slice_sizes=(1, *inner.shape.dimensions)), new, i, *zeros)
    layer = w.op(Reshape(), part, shape=inner.shape)
    update.replace_all_uses_with(new)
    inner.replace_all_uses_with(layer)
