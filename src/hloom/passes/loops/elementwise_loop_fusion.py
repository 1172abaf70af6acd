"""elementwise-loop-fusion: move while loops with elementwise bodies into kernels.

``for (t = 0; t < n; ++t) x = f(x, t)`` with an elementwise f becomes one kernel that runs all iterations on
each vector of elements while it is in registers, instead of traversing the arrays in every iteration.
"""

from __future__ import annotations

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.trip_count import TripCount, condition_is_pure
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import ElementCost, Family
from hloom.operations.control_flow import While
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Pad
from hloom.operations.structure import Constant, GetTupleElement, Iota, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.loops.while_loops import loop_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.plan.evaluations import evaluated_elements
from hloom.shape.shape import Shape


def _reads_elsewhere(i: HloInstruction) -> bool:
    """Return whether elements are those of an operand at other indices, or constants."""
    operation = i.operation
    movement = operation.family is Family.MOVEMENT and operation.element_cost <= ElementCost.INDEXED
    return isinstance(operation, Constant) or (
        movement and not operation.updates_operand and not isinstance(operation, Gather | Pad)
    )


class ElementwiseLoopFusion(Pass, name="elementwise-loop-fusion", of=While, needs={FLAT}):
    """A while with a known trip count and an elementwise body → a ``fusion`` that contains the while.

    Attributes:
        most_members: maximum number of instructions in the body.
        most_evaluated: maximum number of elements that an iteration evaluates for each result.
        most_carried: maximum number of carried arrays, which must fit in registers.
        most_iterations: maximum trip count, because a kernel cannot be interrupted.
    """

    most_members: int = 200
    most_evaluated: int = 256
    most_carried: int = 12
    most_iterations: int = 1 << 22

    def run(self, module: HloModule) -> bool:
        """Fuse the loops of every computation."""
        changed = False
        for computation in module.post_order():
            fused = False
            for instruction in list(computation):
                count = instruction.annotation(TripCount)
                loop = loop_of(instruction) if count is not None else None
                if loop is None or count is None or not self.fits(loop, count):
                    continue
                if consume(f"%{instruction.name}"):
                    carry_constants(loop)
                    fuse(loop, count)
                    fused = changed = True
            if fused:
                remove_dead(computation)  # once: it visits every instruction
        return changed

    def fits(self, loop: TupleLoop, count: TripCount) -> bool:
        """Return whether a loop may run inside a kernel."""
        if (
            not 1 <= count.iterations <= self.most_iterations
            or loop.count < 2
            or not condition_is_pure(loop.instruction)
        ):
            return False
        shapes = loop.instruction.shape.tuple_shapes
        if not all(s.is_array and s.is_static for s in shapes):
            return False
        arrays = carried_arrays(loop)
        sizes = {shapes[n].dimensions for n in arrays}
        if len(sizes) != 1 or len(arrays) > self.most_carried or len(loop.body) > self.most_members:
            return False
        (dimensions,) = sizes
        if 0 in dimensions or not is_elementwise(loop, dimensions):
            return False
        following = [loop.following[n] for n in carried_arrays(loop)]
        if sum(evaluated_elements(following, loop.body.post_order()).values()) > self.most_evaluated:
            return False
        picked = [u for u in loop.instruction.users if u.users or u.is_root]
        used = {element_number(u, loop.instruction) for u in picked}
        scalars = {n for n in used if n is None or (not shapes[n].rank and not loop.is_invariant(n))}
        return scalars <= {count.element}


def carried_arrays(loop: TupleLoop) -> list[int]:
    """Return the numbers of the array elements of the state that are not loop-invariant."""
    shapes = loop.instruction.shape.tuple_shapes
    return [n for n in range(loop.count) if shapes[n].rank and not loop.is_invariant(n)]


def is_elementwise(loop: TupleLoop, dimensions: tuple[int, ...]) -> bool:
    """Return whether elements of the next state depend on carried arrays only at their own index."""
    carried = set(carried_arrays(loop))
    in_place: set[HloInstruction] = set()
    for i in loop.body.post_order():
        if i.has_control_dependencies or i.called_computations:
            return False
        if i is loop.state or i is loop.body.root:
            continue
        number = element_number(i, loop.state)
        if number is not None:
            if number in carried:
                in_place.add(i)
            continue
        if not (i.shape.is_array and i.shape.is_static):
            return False
        if not i.operation.elementwise and not _reads_elsewhere(i):
            return False
        if any(o in in_place for o in i.operands):
            if not i.operation.elementwise or i.shape.dimensions != dimensions:
                return False
            in_place.add(i)
    return True


def carry_constants(loop: TupleLoop) -> None:
    """Carry the array constants of a body in the loop's state, so that they are allocated outside."""
    w = Writer(loop.instruction)
    constants = [i for i in loop.body.post_order() if isinstance(i.operation, Constant) and i.shape.rank]
    if not constants:
        return
    outside = [w.copy(i, []) for i in constants]
    inside = rebuild(loop, range(loop.count), outside)
    for old, new in zip(constants, inside, strict=True):
        old.replace_all_uses_with(new)
    remove_dead(loop.body)


def fuse(loop: TupleLoop, count: TripCount) -> None:
    """Move a loop into a fusion whose results are the carried arrays."""
    old = loop.instruction
    w = Writer(old)
    body = FusedBody(w.module)
    initial = [_inside(body, loop.initial(n)) for n in range(loop.count)]
    copy = body.copy(old, [body.op(Tuple(), *initial, shape=old.operands[0].shape)])
    copy.annotate(count)
    arrays = [n for n in carried_arrays(loop) if picks(old, n)] or carried_arrays(loop)[:1]
    elements = [body.op(GetTupleElement(index=n), copy, shape=old.shape.tuple_shapes[n]) for n in arrays]
    shape = Shape.tuple_(e.shape for e in elements)
    body.computation.root = elements[0] if len(elements) == 1 else body.op(Tuple(), *elements, shape=shape)
    fusion = body.fusion(old, f"{old.name}_fusion")
    for user in list(old.users):
        number = element_number(user, old)
        assert number is not None
        if number in arrays:
            position = arrays.index(number)
            new = fusion if len(arrays) == 1 else w.op(GetTupleElement(index=position), fusion)
        elif number == count.element:
            new = w.scalar(count.final, user.shape.element_type)
        else:
            new = loop.initial(number)
        user.replace_all_uses_with(new)


def _inside(body: FusedBody, i: HloInstruction) -> HloInstruction:
    """Return an initial value in a fusion: a parameter, or a copy if it is free to recompute."""
    scalar = isinstance(i.operation, Constant) and not i.shape.rank
    spread = isinstance(i.operation, Broadcast) and isinstance(i.operands[0].operation, Constant)
    if scalar or spread or isinstance(i.operation, Iota):
        return body.copy(i, [_inside(body, o) for o in i.operands])
    if i not in body.inputs:
        body.inputs[i] = body.parameter(i.shape)
    return body.inputs[i]
