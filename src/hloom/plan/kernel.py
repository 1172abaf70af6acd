"""Kernel plans: the kernel of each instruction, decided once before code generation."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from hloom.analysis.instructions import used_results
from hloom.analysis.scalar_computations import applies_expressions
from hloom.analysis.structure import Key, operation_key
from hloom.analysis.subviews import Subview
from hloom.analysis.updates import is_alias, reads_replaced
from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import Family
from hloom.operations.control_flow import Call, Conditional, Fusion, While
from hloom.operations.custom_call import is_allocation
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.movement import Broadcast
from hloom.operations.reduction import Reduce
from hloom.operations.structure import (
    AfterAll,
    Constant,
    GetTupleElement,
    Iota,
    Parameter,
    Tuple,
    parameter_number,
)
from hloom.plan.evaluations import recomputation
from hloom.plan.iteration import planned_space, read_where_written
from hloom.plan.parts import KernelParts, kernel_parts, merge_narrow_dimensions
from hloom.plan.space import Space
from hloom.records import dataclass

MOST_NESTED: Final = 128
"""Maximum depth of loops and branches."""
LEAST_REPORTED: Final = 1.05
"""Smallest recomputation that a plan's text shows."""
CACHED: Final = 1 << 27
"""Bytes of a program's results of which caches keep little until they are read."""
SCALAR_RESULTS: Final = 8
"""Maximum number of scalar results computed inline, without a kernel function."""


class KernelKind(enum.Enum):
    """How an instruction runs."""

    NONE = "no code"
    """An alias or a subview of operands, an argument, a constant or memory."""
    CONTROL = "control flow"
    """A native loop, branch or call around the kernels of other computations."""
    SCALAR = "scalar code"
    """A few scalars, computed inline."""
    LOOP = "loop"
    """A loop nest over the elements of the results."""
    KERNEL = "kernel"
    """A kernel that the target has registered for the hero."""
    HOST = "host call"
    """Evaluation by the host."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelPlan:
    """The plan of one instruction.

    Attributes:
        instruction: the planned instruction.
        kind: the kind of kernel.
        hero: the operation that determines the kernel; other members compute its operands or its epilogue.
        parts: inputs, roots and members; those of a loop may have merged dimensions.
        space: the iteration space of a loop; None for other kinds.
        in_place: operands whose buffers the only result may overwrite.
        workspace: size of the scratch memory in bytes.
        recomputation: the ratio of the kernel's work to the work of computing every member once; above 1 if
            values are recomputed for several indices.
        is_last: the results are the program's, which returns more than caches keep.
    """

    instruction: HloInstruction
    kind: KernelKind
    hero: HloInstruction
    parts: KernelParts
    space: Space | None = None
    in_place: tuple[int, ...] = ()
    workspace: int = 0
    recomputation: float = 1.0
    is_last: bool = False

    @property
    def key(self) -> Key:
        """A key of all that the kernel depends on, used results included; equal keys share a kernel.

        Equal operands have equal numbers. Constants and iotas are part: code may contain their values.
        """
        number: dict[HloInstruction, int] = {}
        operands = [
            (number.setdefault(o, len(number)), o.shape, _computed_in_place_of_loads(o))
            for o in self.instruction.operands
        ]
        results = tuple(used_results(self.instruction))  # kernels of sorts and reductions store no others
        plan = (self.kind, self.in_place, self.workspace, self.is_last)
        return (*operation_key(self.instruction), tuple(operands), results, *plan)

    @property
    def epilogue(self) -> tuple[HloInstruction, ...]:
        """The members that depend on the hero's result, in order."""
        after: dict[HloInstruction, None] = {self.hero: None}
        for member in self.parts.members:
            if any(o in after for o in member.operands):
                after[member] = None
        return tuple(after)[1:]

    def __str__(self) -> str:
        words = [f"{self.instruction.name}: {self.kind.value}"]
        if self.kind is KernelKind.KERNEL or self.hero is not self.instruction:
            words.append(f"hero {self.hero.opcode}")
        if self.space is not None:
            words.append(f"space {self.space}")
        if self.epilogue:
            words.append(f"epilogue {', '.join(m.opcode for m in self.epilogue)}")
        if self.in_place:
            words.append(f"in place {', '.join(map(str, self.in_place))}")
        if self.workspace:
            words.append(f"workspace {self.workspace} B")
        if self.recomputation >= LEAST_REPORTED:
            words.append(f"recomputation {self.recomputation:.1f}")
        return "; ".join(words)


def _computed_in_place_of_loads(operand: HloInstruction) -> object:
    """Return a key of an operand whose values a kernel may compute; None for others."""
    match operand.operation:
        case Constant():
            return operand
        case Iota():
            return operand.operation
        case Broadcast() if isinstance(operand.operands[0].operation, Iota):
            return operand.operation, operand.operands[0].operation
        case _:
            return None


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class HeroKernels(Protocol[T_contra]):
    """Properties of a target's kernels that planning needs; see `hloom.plan.registry`."""

    def hero(self, i: HloInstruction) -> HloInstruction:
        """Return the operation that selects the kernel of an instruction."""
        ...

    def serves(self, i: HloInstruction) -> bool:
        """Return true if a kernel is registered for the instruction's hero."""
        ...

    def workspace(self, i: HloInstruction, target: T_contra) -> int:
        """Return the size in bytes of the scratch memory that the kernel needs."""
        ...


def plan_program(module: HloModule, kernels: HeroKernels[T], target: T) -> dict[HloInstruction, KernelPlan]:
    """Plan every instruction of the entry and of the computations that it runs."""
    check_nesting(module)
    plans = {
        i: plan_kernel(i, kernels, target) for c in program_computations(module.entry) for i in c.instructions
    }
    if module.entry.root.shape.unpadded_byte_size >= CACHED:
        plans |= {i: replace(plans[i], is_last=True) for i in _returned(module.entry)}
    return plans


def _returned(entry: HloComputation) -> set[HloInstruction]:
    """Return the instructions whose results a program returns, and does not read."""
    returned: set[HloInstruction] = set()
    for i in reversed(entry.post_order()):
        parts = all(u in returned and isinstance(u.operation, Tuple | GetTupleElement) for u in i.users)
        if i.is_root or (i.users and parts):
            returned.add(i)
    return returned


def check_nesting(module: HloModule) -> None:
    """Raise HloError by the rule ``cpu.nesting-depth`` for loops and branches nested too deeply."""
    depths: dict[HloComputation, int] = {}
    for computation in module.post_order():
        inside = [i for i in computation.instructions if _runs_inside(i)]
        depths[computation] = max([1 + depths[c] for i in inside for c in i.called_computations], default=0)
        if depths[computation] > MOST_NESTED:
            deepest = max(inside, key=lambda i: max(depths[c] for c in i.called_computations))
            message = (
                f"{depths[computation]} loops and branches are inside each other; at most {MOST_NESTED} are "
                f"compiled. Write the inner ones as one loop over all their iterations"
            )
            raise HloError(message, rule="cpu.nesting-depth", instruction=deepest.name)


def program_computations(entry: HloComputation) -> Iterator[HloComputation]:
    """Yield a computation and, transitively, the computations that its loops, branches and calls run."""
    waiting, seen = [entry], {entry}
    while waiting:
        computation = waiting.pop()
        yield computation
        for i in computation.instructions:
            if _runs_inside(i):
                fresh = [c for c in i.called_computations if c not in seen]
                seen.update(fresh)
                waiting.extend(fresh)


def _runs_inside(i: HloInstruction) -> bool:
    return isinstance(i.operation, While | Conditional | Call)


def plan_kernel(i: HloInstruction, kernels: HeroKernels[T], target: T) -> KernelPlan:
    """Plan one instruction."""
    parts = kernel_parts(i)
    structure = isinstance(i.operation, Parameter | Constant | Tuple | GetTupleElement | AfterAll)
    if is_alias(i) or structure or is_allocation(i) or i.annotation(Subview) is not None:
        return KernelPlan(i, KernelKind.NONE, i, parts)
    if _runs_inside(i):
        return KernelPlan(i, KernelKind.CONTROL, i, parts)
    hero = kernels.hero(i)
    if not applies_expressions(hero):
        in_place = _in_place_operands(i, hero, parts, is_loop=False)
        return KernelPlan(i, KernelKind.HOST, hero, parts, in_place=in_place)
    if kernels.serves(i):
        in_place = _in_place_operands(i, hero, parts, is_loop=False)
        workspace = kernels.workspace(i, target)
        return KernelPlan(i, KernelKind.KERNEL, hero, parts, None, in_place, workspace, _repeated(parts))
    shapes = [leaf for _, leaf in i.shape.leaves()]
    if len(shapes) <= SCALAR_RESULTS and all(s.is_array and not s.rank for s in shapes):
        return KernelPlan(i, KernelKind.SCALAR, hero, parts)
    in_place = _in_place_operands(i, hero, parts, is_loop=True)
    repeated = _repeated(parts)
    parts = merge_narrow_dimensions(parts)
    space = planned_space(parts.inputs, parts.roots, parts.members)
    return KernelPlan(i, KernelKind.LOOP, hero, parts, space, in_place, 0, repeated)


def _repeated(parts: KernelParts) -> float:
    """Return the ratio of a kernel's work to that without recomputation.

    It is 1 for kernels without movements and with at most one reduction.
    """
    moves = any(m.operation.family is Family.MOVEMENT for m in parts.members)
    passes = sum(isinstance(m.operation, Reduce) for m in parts.members)
    if len(parts.members) == 1 or not (moves or passes > 1):
        return 1.0
    return recomputation(parts.roots, parts.members)


# -- in place


def _in_place_operands(
    i: HloInstruction, hero: HloInstruction, parts: KernelParts, *, is_loop: bool
) -> tuple[int, ...]:
    """Return the operands that the result may overwrite: no index is read after it is written."""
    if not i.shape.is_array or not i.shape.rank:
        return ()
    if i.operation.elementwise:
        return tuple(range(len(i.operands)))
    if hero.operation.updates_operand:
        return _in_place_updates(i, hero, parts)
    if is_loop and isinstance(i.operation, Fusion):
        read = read_where_written(parts.inputs, parts.roots[0])
        return tuple(number for number, p in enumerate(parts.inputs) if p in read)
    return ()


def _in_place_updates(i: HloInstruction, hero: HloInstruction, parts: KernelParts) -> tuple[int, ...]:
    """Return the operand that an update may modify in place; none if the kernel reads it elsewhere."""
    if not hero.operation.updates_operand or not i.shape.is_array or not i.shape.rank:
        return ()
    changed = hero.operands[0]
    if i is hero:
        return (0,) if i.operands.count(changed) == 1 else ()
    others, members = set(changed.users) - {hero}, frozenset(parts.members)
    is_update = isinstance(hero.operation, DynamicUpdateSlice)
    reads_first = all(is_update and reads_replaced(other, hero, members) for other in others)
    if not isinstance(changed.operation, Parameter) or hero.operands.count(changed) > 1 or not reads_first:
        return ()
    return (parameter_number(changed),)


def plan_report(plans: Sequence[KernelPlan]) -> str:
    """Return one line per plan that generates code."""
    return "".join(f"{plan}\n" for plan in plans if plan.kind is not KernelKind.NONE)
