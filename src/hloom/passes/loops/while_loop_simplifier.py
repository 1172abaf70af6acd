"""simplify-while-loops: remove unused and invariant state; remove loops that run at most once."""

from __future__ import annotations

from hloom.analysis.instructions import splat
from hloom.analysis.loops import TupleLoop, element_number, picks, picks_by_number
from hloom.analysis.trip_count import TripCount, condition_is_pure, trip_count
from hloom.analysis.values import is_cheap_constant, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement
from hloom.passes.expand.call_inliner import copy_body, replace_caller
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loop_of, rebuild, sink
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


class WhileLoopSimplifier(Pass, name="simplify-while-loops", of=While, needs={FLAT}):
    """A while → one without constant, invariant, duplicate or dead state elements; or its body."""

    def run(self, module: HloModule) -> bool:
        """Simplify every loop, inner ones first."""
        changed = False
        for computation in module.post_order():
            for instruction in computation:
                if isinstance(instruction.operation, While) and instruction.parent is computation:
                    changed |= consume(f"%{instruction.name}") and simplify(instruction)
        return changed


def simplify(instruction: HloInstruction) -> bool:
    """Simplify one loop; return whether anything changed."""
    if _never_runs(instruction):
        replace_caller(instruction, instruction.operands[0])
        return True
    loop = loop_of(instruction)
    if loop is None:
        return False
    count = trip_count(loop)
    if count is not None and count.iterations <= 1 and condition_is_pure(instruction):
        unroll(instruction, count)
        return True
    changed = move_invariants(loop, ends=count is not None)
    if count is not None:
        changed |= know_the_end(loop, count)
    changed |= join_equal_elements(loop)
    changed |= drop_dead_elements(loop)
    return changed


def _never_runs(instruction: HloInstruction) -> bool:
    if instruction.has_control_dependencies:
        return False
    return number(instruction.called_computations[1].root) == 0 and condition_is_pure(instruction)


def unroll(instruction: HloInstruction, count: TripCount) -> None:
    """Replace a loop that runs 0 times by its initial state, or one that runs once by its body."""
    computation, result = instruction.parent, instruction.operands[0]
    assert computation is not None
    if count.iterations == 1:
        body = instruction.called_computations[0]
        result = copy_body(body, computation, [result])[body.root]
    replace_caller(instruction, result)


def move_invariants(loop: TupleLoop, *, ends: bool) -> bool:
    """Replace uses of invariant elements after the loop by their initial values; return whether any changed.

    Cheap constants are recomputed inside the loop, too. If it is not known that the loop ``ends``, and only
    invariant elements are used after it, they still are: a loop that no value needs would be removed, and
    the program would return where it must not.
    """
    after = picks_by_number(loop.instruction)
    used = [n for n, same in after.items() if any(p.users or p.is_root for p in same)]
    replaces = ends or not all(map(loop.is_invariant, used))
    changed = False
    for n in range(loop.count):
        if not loop.is_invariant(n):
            continue
        initial = loop.initial(n)
        for pick in after.get(n, ()) if replaces else ():
            if pick.users or pick.is_root:
                pick.replace_all_uses_with(initial)
                changed = True
        if is_cheap_constant(initial):
            changed |= sink(loop, n, initial)
    return changed


def know_the_end(loop: TupleLoop, count: TripCount) -> bool:
    """Replace uses of the counter after the loop by its final value; return whether there were any."""
    changed = False
    for pick in picks(loop.instruction, count.element):
        if pick.users or pick.is_root:
            pick.replace_all_uses_with(Writer(pick).scalar(count.final, pick.shape.element_type))
            changed = True
    return changed


def join_equal_elements(loop: TupleLoop) -> bool:
    """Let users of equal state elements use the first of them; return whether any changed.

    Equal are elements with the same initial and next value. Counters with equal steps differ by a constant.
    """
    changed = False
    representatives: dict[tuple[object, ...], int] = {}
    for n in sorted(range(loop.count), key=lambda n: not any(p.users for p in picks(loop.tested, n))):
        counter = _counter_of(loop, n)
        key = (loop.initial(n), loop.following[n]) if counter is None else counter.key
        first = representatives.setdefault(key, n)
        if first == n:
            continue
        other = _counter_of(loop, first)
        for state in (loop.state, loop.tested, loop.instruction):
            for pick in picks(state, n):
                keeps = counter is None or len(loop.following[n].users) == 1
                users = [u for u in pick.users if not (keeps and u is loop.following[n])]
                if not users and not pick.is_root:
                    continue
                one = Writer(pick).op(GetTupleElement(index=first), state)
                if counter is not None and other is not None:
                    one = counter.from_other(other, one)
                pick.replace_uses_in(users, one)
                if pick.is_root:
                    assert state.parent is not None
                    state.parent.root = one
                changed = True
    return changed


@dataclass(frozen=True, slots=True)
class Counter:
    """An element of the state to which each iteration adds a constant.

    Attributes:
        element_type: its integer type.
        initial, step: the constant initial value, and the constant.
    """

    element_type: ElementType
    initial: int
    step: int

    @property
    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for counters which follow from one another."""
        return self.element_type, abs(self.step)

    def from_other(self, other: Counter, value: HloInstruction) -> HloInstruction:
        """Return this counter from the value of another one with the same or the opposite step."""
        w = Writer(value)
        if self.step != other.step:
            return w.op(Subtract(), w.scalar(self.initial + other.initial, self.element_type), value)
        distance = self.initial - other.initial
        return w.op(Add(), value, w.scalar(distance, self.element_type)) if distance else value


def _counter_of(loop: TupleLoop, n: int) -> Counter | None:
    """Return an element as a counter; None for others."""
    following = loop.following[n]
    kind = following.shape.element_type
    if not isinstance(following.operation, Add | Subtract) or following.shape.rank or not kind.is_integer:
        return None
    initial, step = splat(loop.initial(n)), splat(following.operands[1])
    if initial is None or step is None or element_number(following.operands[0], loop.state) != n:
        return None
    return Counter(kind, int(initial), int(step) if isinstance(following.operation, Add) else -int(step))


def drop_dead_elements(loop: TupleLoop) -> bool:
    """Remove state elements on which no condition, result or side effect depends."""
    instruction = loop.instruction
    if instruction.is_root or any(not isinstance(u.operation, GetTupleElement) for u in instruction.users):
        return False
    remove_dead(loop.body)
    masks = _reaching(loop)
    live = 0
    for whole in (instruction, loop.tested):
        for n, same in picks_by_number(whole).items():
            live |= any(p.users or p.is_root for p in same) << n
    for i in loop.body.instructions:
        if i.has_side_effect or i.has_control_dependencies:
            live |= masks[i]
    reached = _closure(live, [masks[x] for x in loop.following])
    needed = [n for n in range(loop.count) if reached >> n & 1]
    if len(needed) == loop.count:
        return False
    rebuild(loop, needed)
    remove_dead(loop.body)
    return True


def _reaching(loop: TupleLoop) -> dict[HloInstruction, int]:
    """Return, for each instruction of the body, the state elements it depends on as a bit mask."""
    masks: dict[HloInstruction, int] = {}
    for i in loop.body.post_order():
        number = element_number(i, loop.state)
        mask = 0 if number is None else 1 << number
        for operand in i.operands:
            if operand is not loop.state:
                mask |= masks[operand]
        masks[i] = mask
    return masks


def _closure(live: int, needs: list[int]) -> int:
    """Return the transitive closure of the live elements under ``needs``, as a bit mask."""
    waiting, done = live, 0
    while waiting:
        n = waiting.bit_length() - 1
        done |= 1 << n
        waiting = (waiting | needs[n]) & ~done
    return done
