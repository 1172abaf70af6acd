"""in-place-accumulation: add a few elements to a loop-carried array without reading and writing all of it.

Gradients of slices arrive as arrays of zeros with one slice in them, and loops add these up::

    b + dynamic-update-slice(zeros, u, at)  →  dynamic-update-slice(b, slice(b, at) + u, at)

An element of b outside the slice becomes ``b + 0``, which is b for all b but -0: ``-0 + 0`` is 0. So the
rewrite is exact if b never holds -0. That is so if its initial value has none and the loop only adds: a sum
is -0 only if both terms are. Otherwise the loop replaces -0 by 0: in its first iteration everywhere, in later
iterations only where the previous one wrote, since there are no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from hloom.analysis.instructions import splat
from hloom.analysis.loops import TupleLoop
from hloom.analysis.negative_zeros import NegativeZeros
from hloom.analysis.updates import origin
from hloom.analysis.values import is_all, is_ieee, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.control_flow import Conditional
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Pad
from hloom.operations.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import carry, loops_of
from hloom.passes.pipeline import Pass
from hloom.passes.rules.updates import is_small_part
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Body, Inserter, Writer
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape


class UpdateWindow(NamedTuple):
    """A part of an array: its start indices and sizes."""

    starts: tuple[HloInstruction, ...]
    sizes: tuple[int, ...]


class WindowAccumulation(NamedTuple):
    """An operation ``op(x, update)`` whose update is the neutral element of op outside a window.

    Attributes:
        instruction: the operation.
        position: the operand number of x.
        is_exact: whether ``op(x, neutral)`` is x for every x; otherwise the update is +0 in a sum, which
            turns -0 into +0.
    """

    instruction: HloInstruction
    position: int
    is_exact: bool

    @property
    def x(self) -> HloInstruction:
        """Return the array."""
        return self.instruction.operands[self.position]

    @property
    def update(self) -> HloInstruction:
        """Return the array that is constant outside a window."""
        return self.instruction.operands[1 - self.position]

    def parts(self, w: Writer) -> tuple[HloInstruction, UpdateWindow]:
        """Return the elements in the window, and the window."""
        operation = self.update.operation
        if isinstance(operation, Pad):
            u = self.update.operands[0]
            starts = tuple(w.scalar(p.low, S32) for p in operation.padding)
            return u, UpdateWindow(starts, u.shape.dimensions)
        _, u, *starts = self.update.operands
        return u, UpdateWindow(tuple(starts), u.shape.dimensions)

    def combine(self, w: Writer, old: HloInstruction, u: HloInstruction) -> HloInstruction:
        """Apply the operation to the window's elements."""
        pair = (u, old) if self.position else (old, u)
        return w.op(self.instruction.operation, *pair)


class InPlaceAccumulation(Pass, name="in-place-accumulation", needs={FLAT}):
    """``b + update(zeros, u, at)`` of a carried b → ``update(b, slice(b, at) + u, at)``. Bitwise."""

    def run(self, module: HloModule) -> bool:
        """Rewrite in every computation that a loop or conditional runs."""
        finder = Accumulations()
        accumulations = [
            a for c in module.post_order() for i in c.post_order() if (a := finder.of(i)) is not None
        ]
        if not accumulations:
            return False
        changed = False
        zeros = NegativeZeros(module)
        for a in accumulations:
            if (a.is_exact or zeros.has_none(a.x)) and consume(f"%{a.instruction.name}"):
                _rewrite(a)
                changed = True
        for loop in loops_of(module):
            for n in range(loop.count):
                changed |= _clear(loop, n)
        for computation in module.computations if changed else ():
            remove_dead(computation)
        return changed


class Accumulations:
    """A search for accumulations into arrays that are parameters of a computation, or their updates."""

    def __init__(self) -> None:
        self._carried: dict[HloInstruction, bool] = {}

    def of(self, i: HloInstruction) -> WindowAccumulation | None:
        """Return an operation as an accumulation; None if it is none."""
        if not i.operation.elementwise or len(i.operands) != 2 or not i.shape.is_static or not i.shape.rank:
            return None
        for position in (1, 0):
            x, update = i.operands[1 - position], i.operands[position]
            if x.shape != i.shape or update.shape != i.shape:
                continue
            outside = _outside(update)
            exact = None if outside is None else _is_neutral(i, position, outside)
            if exact is not None and self.is_carried(x):
                return WindowAccumulation(i, 1 - position, exact)
        return None

    def is_carried(self, x: HloInstruction) -> bool:
        """Return whether an array is a parameter of a body or a branch, or derives from one by updates."""
        path: list[HloInstruction] = []
        while x not in self._carried:
            path.append(x)
            source, _ = origin(x)
            inner = (
                source.operands[0] if isinstance(source.operation, DynamicUpdateSlice) else _summand(source)
            )
            if inner is None:
                self._carried[x] = isinstance(source.operation, Parameter) and not _is_argument(source)
            else:
                x = inner
        self._carried.update(dict.fromkeys(path, self._carried[x]))
        return self._carried[x]


def _is_argument(parameter: HloInstruction) -> bool:
    """Return whether a parameter is one of the program."""
    computation = parameter.parent
    return computation is None or computation.module is None or computation is computation.module.entry


def _outside(update: HloInstruction) -> HloInstruction | None:
    """Return the value of an array outside a small window, as an array or scalar; None for other arrays."""
    match update.operation:
        case DynamicUpdateSlice() if is_small_part(update.operands[1], update):
            return update.operands[0]
        case Pad(padding=padding) if is_small_part(update.operands[0], update):
            plain = all(p.low >= 0 and p.high >= 0 and not p.interior for p in padding)
            return update.operands[1] if plain and update.operands[0].shape.element_count else None
        case _:
            return None


def _is_neutral(i: HloInstruction, position: int, outside: HloInstruction) -> bool | None:
    """Return True if ``op(x, outside)`` is x, False if it is so except for -0 in a sum, else None."""
    kind = i.shape.element_type
    if splat(outside) is None or outside.shape.element_type is not kind or kind.is_complex:
        return None
    neutral = i.operation.neutral_element(kind)
    if isinstance(i.operation, Subtract) and position == 1 and is_all(outside, 0.0):
        return True
    if i.operation.commutative and neutral is not None:
        same = number(outside) == neutral
        if same and (neutral != 0 or not kind.is_floating or is_all(outside, float(neutral))):
            return True
    return False if isinstance(i.operation, Add) and is_ieee(kind) and is_all(outside, 0.0) else None


def _summand(i: HloInstruction) -> HloInstruction | None:
    """Return the array to which an elementwise operation adds a small window; None for others."""
    if not i.operation.elementwise or len(i.operands) != 2:
        return None
    for position in (1, 0):
        if _outside(i.operands[position]) is not None:
            return i.operands[1 - position]
    return None


def _rewrite(a: WindowAccumulation) -> None:
    """``op(x, update(e, u, at))`` → ``update(x, op(slice(x, at), u), at)``."""
    w = Writer(a.instruction)
    u, window = a.parts(w)
    new = a.combine(w, _slice(w, a.x, window), u)
    w.replace(_update(w, a.x, new, window))


def _slice(w: Inserter, x: HloInstruction, window: UpdateWindow) -> HloInstruction:
    return w.op(DynamicSlice(dynamic_slice_sizes=window.sizes), x, *window.starts)


def _update(w: Inserter, x: HloInstruction, new: HloInstruction, window: UpdateWindow) -> HloInstruction:
    return w.op(DynamicUpdateSlice(), x, new, *window.starts)


# -- arrays that may hold -0


def _clear(loop: TupleLoop, n: int) -> bool:
    """Rewrite the sums with +0 along the updates of one carried array, and clear the remaining -0."""
    steps = _chain(loop, n)
    sums = [i for i, a in steps if a is not None]
    if not sums or not all(consume(f"%{i.name}") for i in sums):
        return False
    body = Writer(loop.body.root)
    windows = _left(body, steps)
    kinds = [start.shape.element_type for window in windows for start in window.starts]
    outside = Writer(loop.instruction)
    initial = [outside.scalar(1, PRED), *(outside.scalar(0, kind) for kind in kinds)]
    following = [body.scalar(0, PRED), *(start for window in windows for start in window.starts)]
    first, *starts = carry(loop, initial, following)
    _rewrite_chain(steps, first, _placed(windows, starts))
    return True


def _placed(windows: Sequence[UpdateWindow], starts: Iterable[HloInstruction]) -> list[UpdateWindow]:
    """Return windows of the same sizes at the next start indices of ``starts``."""
    numbers = iter(starts)
    return [UpdateWindow(tuple(next(numbers) for _ in window.starts), window.sizes) for window in windows]


Steps: TypeAlias = list[tuple[HloInstruction, WindowAccumulation | None]]
"""Updates (None) and sums, each of the value before it."""


def _chain(loop: TupleLoop, n: int) -> Steps:
    """Return the updates and sums that compute the next value of element ``n`` from it, in order.

    Empty if another operation is among them.
    """
    steps: Steps = []
    finder = Accumulations()
    x = loop.following[n]
    while not (isinstance(x.operation, GetTupleElement) and x.operands[0] is loop.state):
        a = finder.of(x)
        if a is None and not isinstance(x.operation, DynamicUpdateSlice):
            return []
        steps.append((x, a))
        x = x.operands[0] if a is None else a.x
    return steps[::-1] if x.operation == GetTupleElement(index=n) else []


def _left(w: Writer, steps: Steps) -> list[UpdateWindow]:
    """Return the windows that may hold -0 after an iteration."""
    windows: list[UpdateWindow] = []
    for i, a in steps:
        if a is not None:
            windows = [a.parts(w)[1]]
        else:
            windows.append(UpdateWindow(tuple(i.operands[2:]), i.operands[1].shape.dimensions))
    return windows


def _rewrite_chain(steps: Steps, first: HloInstruction, before: Sequence[UpdateWindow]) -> None:
    """Rewrite the sums of an iteration, and replace -0 by 0 in the arrays that they add to.

    Args:
        steps: the updates and sums of an iteration, in order.
        first: a pred, true in the first iteration, in which any element may be -0.
        before: the windows that may hold -0 in later iterations.
    """
    windows, is_first = list(before), True
    for i, a in steps:
        if a is None:
            windows.append(UpdateWindow(tuple(i.operands[2:]), i.operands[1].shape.dimensions))
            continue
        w = Writer(i)
        u, window = a.parts(w)
        new = a.combine(w, _slice(w, a.x, window), u)
        if is_first:
            clean = _first_or_later(w, first, a.x, windows)
        else:
            clean = _without_minus_zeros(w, a.x, windows)
        w.replace(_update(w, clean, new, window))
        windows, is_first = [window], False


def _without_minus_zeros(w: Inserter, x: HloInstruction, windows: Sequence[UpdateWindow]) -> HloInstruction:
    """Return an array in which -0 is replaced by 0 in some windows."""
    for window in windows:
        there = _slice(w, x, window)
        x = _update(w, x, w.op(Add(), there, w.full(0, there.shape)), window)
    return x


def _first_or_later(
    w: Writer, first: HloInstruction, x: HloInstruction, windows: Sequence[UpdateWindow]
) -> HloInstruction:
    """Replace -0 by 0: in the first iteration everywhere, later in some windows."""
    starts = [start for window in windows for start in window.starts]
    operand = w.op(Tuple(), x, *starts)
    branches = Body(w.module, "everywhere"), Body(w.module, "in_windows")
    for body, is_first in zip(branches, (True, False), strict=True):
        state = body.parameter(operand.shape, "given")
        array, *numbers = (body.op(GetTupleElement(index=n), state) for n in range(len(starts) + 1))
        if is_first:
            zero = body.full(0, Shape(x.shape.element_type, x.shape.dimensions))
            body.computation.root = body.op(Add(), array, zero)
        else:
            body.computation.root = _without_minus_zeros(body, array, _placed(windows, numbers))
    computations = [body.computation for body in branches]
    return w.op(Conditional(), first, operand, operand, shape=x.shape, computations=computations)
