"""elementwise-loop-fusion: move while loops with elementwise bodies into kernels.

``for (t = 0; t < n; ++t) x = f(x, t)`` with an elementwise f becomes one kernel that runs all iterations on
each vector of elements while it is in registers, instead of traversing the arrays in every iteration.
"""

from __future__ import annotations

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.trip_count import TripCount, condition_is_pure
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.structure import Constant, GetTupleElement, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.loops.elementwise_loops import Surroundings, evaluations_of, index_in
from hloom.passes.loops.while_loops import loop_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


class ElementwiseLoopFusion(Pass, name="elementwise-loop-fusion", of=While, needs={FLAT}):
    """A while with a known trip count and an elementwise body → a ``fusion`` that contains the while.

    Attributes:
        most_members: maximum number of instructions in the body, and of those around the loop.
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
            counted = [i for i in computation if i.annotation(TripCount) is not None]
            if counted:
                changed |= remove_dead(computation)  # unused elements of loops would be stored
            for i in counted:
                if i.parent is computation and self.fuse_counted(i):
                    remove_dead(computation)  # other loops would keep what has joined the kernel
                    changed = True
        return changed

    def fuse_counted(self, i: HloInstruction) -> bool:
        """Fuse a while with a known trip count if its body is elementwise."""
        loop, count = loop_of(i), i.annotation(TripCount)
        if loop is None or count is None or not self.fits(loop, count) or not consume(f"%{i.name}"):
            return False
        carry_constants(loop)
        fuse(loop, count, self.most_members)
        return True

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
        arrays = loop.carried_arrays
        sizes = {shapes[n].dimensions for n in arrays}
        if len(sizes) != 1 or len(arrays) > self.most_carried or len(loop.body) > self.most_members:
            return False
        (dimensions,) = sizes
        evaluations = evaluations_of(loop, index_in(dimensions)) if 0 not in dimensions else None
        if evaluations is None or sum(map(evaluations.count, loop.body.instructions)) > self.most_evaluated:
            return False
        picked = [u for u in loop.instruction.users if u.users or u.is_root]
        used = {element_number(u, loop.instruction) for u in picked}
        scalars = {n for n in used if n is None or (not shapes[n].rank and not loop.is_invariant(n))}
        return scalars <= {count.element}


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


def fuse(loop: TupleLoop, count: TripCount, most: int) -> None:
    """Move a loop, and the elementwise operations around it, into a fusion."""
    old = loop.instruction
    w = Writer(old)
    arrays = loop.carried_arrays
    for user in list(old.users):
        number = element_number(user, old)
        assert number is not None
        if number == count.element:
            user.replace_all_uses_with(w.scalar(count.final, user.shape.element_type))
        elif number not in arrays:
            user.replace_all_uses_with(loop.initial(number))
    if not any(picks(old, number) for number in arrays):
        w.op(GetTupleElement(index=arrays[0]), old)
    around = Surroundings(loop, old.shape.tuple_shapes[arrays[0]].dimensions, most)
    body = FusedBody(w.module)
    copies: dict[HloInstruction, HloInstruction] = {}

    def inside(i: HloInstruction) -> HloInstruction:
        if i not in around.members:
            return body.input(i)
        if i not in copies:
            copies[i] = body.copy(i, [inside(o) for o in i.operands])
        return copies[i]

    for i in around.members:
        inside(i)
    copies[old].annotate(count)
    results = [copies[i] for i in around.results]
    shape = Shape.tuple_(r.shape for r in results)
    body.computation.root = results[0] if len(results) == 1 else body.op(Tuple(), *results, shape=shape)
    fusion = body.fusion(old, f"{old.name}_fusion")
    for number, result in enumerate(around.results):
        new = fusion if len(results) == 1 else w.op(GetTupleElement(index=number), fusion)
        result.replace_all_uses_with(new)
