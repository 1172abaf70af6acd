"""simplify-conditional: remove conditionals with known or small branches, unused results and arguments."""

from __future__ import annotations

from hloom.analysis.purity import is_free
from hloom.analysis.values import is_cheap_constant, number
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.comparison import Select
from hloom.operations.control_flow import Conditional
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.expand.call_inliner import copy_body, replace_caller
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer, copy_into
from hloom.shape.shape import Shape


class ConditionalSimplifier(Pass, name="simplify-conditional", of=Conditional, needs={FLAT}):
    """A conditional with a known branch → that branch; with small branches → selects; unused results → none.

    Cheap constants are recomputed in the branches that use them, in place of arrays made for each execution.

    Attributes:
        most_instructions: maximum number of scalar instructions, in both branches together, that become
            selects.
    """

    most_instructions: int = 16

    def run(self, module: HloModule) -> bool:
        """Simplify every conditional, inner ones first."""
        changed = False
        for computation in module.post_order():
            for i in computation:
                ordered = i.has_control_dependencies
                if isinstance(i.operation, Conditional) and i.parent is computation and not ordered:
                    changed |= consume(f"%{i.name}") and self.simplify(i)
        return changed

    def simplify(self, i: HloInstruction) -> bool:
        """Simplify one conditional; return whether anything changed."""
        branch = known_branch(i)
        if branch is not None:
            inline(i, branch)
            return True
        if self.is_small(i):
            select(i)
            return True
        changed = recompute_constants(i)
        changed |= drop_unused_arguments(i)
        return drop_unused_results(i) or changed

    def is_small(self, i: HloInstruction) -> bool:
        """Return whether a pred selects between two branches of few elementwise operations on scalars."""
        if len(i.called_computations) != 2 or not i.operands[0].shape.element_type.is_predicate:
            return False
        steps = [s for branch in i.called_computations for s in branch.instructions]
        work = [s for s in steps if not is_free(s)]
        return len(work) <= self.most_instructions and all(
            (s.operation.elementwise or is_free(s))
            and all(leaf.is_array and not leaf.rank for leaf in _leaves(s.shape))
            and not s.has_control_dependencies
            for s in steps
        )


def _leaves(shape: Shape) -> list[Shape]:
    return [leaf for _, leaf in shape.leaves()]


def known_branch(i: HloInstruction) -> int | None:
    """Return the branch that is always taken: the only one, or that of a constant index; else None."""
    last = len(i.called_computations) - 1
    if not last:
        return 0
    index = i.operands[0]
    value = number(index)
    if value is None:
        return None
    if index.shape.element_type.is_predicate:
        return 0 if value else 1
    return int(value) if 0 <= value <= last else last


def inline(i: HloInstruction, branch: int) -> None:
    """``conditional(2, x, y, z)`` → the third branch on z."""
    replace_caller(i, _copied(i, branch))


def _copied(i: HloInstruction, branch: int) -> HloInstruction:
    computation, callee = i.parent, i.called_computations[branch]
    assert computation is not None
    return copy_body(callee, computation, [i.operands[branch + 1]])[callee.root]


def select(i: HloInstruction) -> None:
    """``conditional(p, x, y)`` → ``select(p, f(x), g(y))`` of every element of the results."""
    w = Writer(i)
    results = [_copied(i, branch) for branch in (0, 1)]
    replace_caller(i, _selected(w, i.operands[0], *results))


def _selected(w: Writer, p: HloInstruction, a: HloInstruction, b: HloInstruction) -> HloInstruction:
    if not a.shape.is_tuple:
        return w.op(Select(), p, a, b)
    parts: list[HloInstruction] = []
    for n in range(len(a.shape.tuple_shapes)):
        x, y = (
            t.operands[n] if isinstance(t.operation, Tuple) else w.op(GetTupleElement(index=n), t)
            for t in (a, b)
        )
        parts.append(_selected(w, p, x, y))
    return w.op(Tuple(), *parts)


def recompute_constants(i: HloInstruction) -> bool:
    """``conditional(p, (x, iota))`` → the iota in the branch; return whether a branch uses one."""
    changed = False
    for branch, argument in zip(i.called_computations, i.operands[1:], strict=True):
        (parameter,) = branch.parameters
        values = {parameter: argument}
        if isinstance(argument.operation, Tuple):
            values = {pick: argument.operands[index] for pick, index in _picks(parameter).items()}
        for inside, value in values.items():
            if is_cheap_constant(value) and (inside.users or inside.is_root):
                inside.replace_all_uses_with(copy_into(branch, value))
                changed = True
    return changed


def drop_unused_arguments(i: HloInstruction) -> bool:
    """``conditional(p, (x, y))`` → ``conditional(p, (x))`` if the branch does not use y."""
    changed = False
    for n, branch in enumerate(i.called_computations, 1):
        (parameter,), argument = branch.parameters, i.operands[n]
        picks = _picks(parameter)
        if not isinstance(argument.operation, Tuple) or len(picks) < len(parameter.users) + parameter.is_root:
            continue
        dead = [p for p in picks if not (p.users or p.is_root or p.has_control_dependencies)]
        used = sorted({index for pick, index in picks.items() if pick not in dead})
        if len(used) == len(argument.operands):
            continue
        for pick in dead:
            branch.remove(pick)
        for pick in parameter.users:
            pick.operation = GetTupleElement(index=used.index(picks[pick]))
        smaller = Writer(i).op(Tuple(), *[argument.operands[index] for index in used])
        parameter.shape = smaller.shape
        i.replace_operand(n, smaller)
        changed = True
    return changed


def _picks(whole: HloInstruction) -> dict[HloInstruction, int]:
    """Return the get-tuple-elements of a tuple, with their indices."""
    return {u: u.operation.index for u in whole.users if isinstance(u.operation, GetTupleElement)}


def drop_unused_results(i: HloInstruction) -> bool:
    """``conditional`` of a tuple → a conditional of the used elements."""
    if i.is_root or not i.shape.is_tuple:
        return False
    picks = _picks(i)
    if len(picks) < len(i.users):
        return False
    used = sorted({index for u, index in picks.items() if u.users or u.is_root})
    branches = i.called_computations
    if len(used) == len(i.shape.tuple_shapes):
        return False
    if not all(isinstance(b.root.operation, Tuple) for b in branches):
        return False
    for branch in branches:
        _keep_results(branch, used)
    w = Writer(i)
    new = w.op(Conditional(), *i.operands, shape=branches[0].root.shape, computations=branches)
    new.copy_annotations(i)
    new.sharding = None
    for user, index in picks.items():
        if index in used:
            element = w.op(GetTupleElement(index=used.index(index)), new, shape=user.shape)
            user.replace_all_uses_with(element)
            user.hand_over_control_dependencies(element)
        user.bypass_control_dependencies()
        w.computation.remove(user)
    w.computation.remove(i)
    return True


def _keep_results(branch: HloComputation, used: list[int]) -> None:
    """Reduce the root tuple of a branch to the used elements."""
    old = branch.root
    branch.root = Writer(old).op(Tuple(), *(old.operands[n] for n in used))
    remove_dead(branch)
