"""fusion: group operations that can run as one loop over the elements of their results.

Groups grow from consumers to producers. A producer joins if all its users are in one group. Free producers
(broadcasts, iotas, reshapes ...) are duplicated into every group that uses them. A producer with users
outside the group joins as an additional output if it has the same loop and fusing it creates no cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hloom.analysis.column_reductions import is_small_reduction
from hloom.analysis.instructions import loads_single_elements, operation_of
from hloom.analysis.subviews import is_consecutive, is_lasting, memory_of
from hloom.analysis.updates import Updates, early_reads, is_alias, reads_replaced
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction, replace_uses
from hloom.ir.module import HloModule
from hloom.ir.traits import ElementCost
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Concatenate, Pad, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Constant, GetTupleElement, Iota, Tuple
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.fusion.group import Group
from hloom.passes.fusion.loop_operations import (
    extends,
    gives_starts,
    in_place,
    is_costless,
    is_expensive,
    is_table,
    loops,
    reads_few,
)
from hloom.passes.fusion.recomputation import Recomputation, reads_twice
from hloom.passes.fusion.row_groups import Limits, join_rows
from hloom.passes.fusion.spans import Spans
from hloom.passes.fusion.stored_values import recompute_stored_values
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Inserter
from hloom.plan.evaluations import element_work, is_uniform
from hloom.shape.shape import Shape

_FEW: Final = 6
_LITTLE: Final = 16
"""Recompute a producer if the group reads at most 1/16 of its elements."""
_NARROW: Final = 16
"""Elements of a narrow row: a row kernel has rows as lanes."""
_MOST_COMPUTING: Final = 4
"""Maximum number of groups that compute the same value, unless it is costless."""


class InstructionFusion(Pass, name="fusion"):
    """Elementwise, broadcasting and data-moving operations → ``fusion`` with kind kLoop or kInput.

    Attributes:
        most_evaluated: maximum number of elements that a group evaluates for each result; an instruction
            that is read at several indices counts several times.
        most_repeated: maximum work, in vector instructions per element, that a group repeats instead of
            storing a value that it reads at several indices; twice as much for a value of more bytes than
            the cache.
        cache_bytes: size of the cache.
        most_work: maximum ratio of a group's work to the work of one loop for each instruction.
        small_transpose: transposes of the minor dimension with at most this many elements are not tiled.
        most_in_tiles: maximum number of instructions in a group with a tiled transpose.
        most_inputs: maximum number of arrays that a group reads; all of them are live at once.
        products: the dots and convolutions that accept an elementwise epilogue.
        most_streams: maximum number of arrays of a product's size that its epilogue reads and writes. The
            epilogue runs tile by tile, which defeats the hardware prefetcher that a loop over whole arrays
            has.
        prefetches: the dots whose kernels prefetch what the epilogue reads, while they multiply.
        most_prefetched: maximum number of arrays for them, if the dot's result has more bytes than the cache.
    """

    most_evaluated: int = 256
    most_repeated: float = 20.0
    cache_bytes: int = 1 << 22
    most_work: float = 4.0
    small_transpose: int = 2048
    most_in_tiles: int = 20
    most_inputs: int = 12
    products: Callable[[HloInstruction], bool] = lambda dot: False
    most_streams: int = 2
    prefetches: Callable[[HloInstruction], bool] = lambda dot: False
    most_prefetched: int = 8

    def run(self, module: HloModule) -> bool:
        """Fuse in the entry and in every computation of control flow."""
        changed = False
        updates = Updates(module)
        for computation in control_computations(module):
            changed |= self.fuse(computation, updates)
        return changed

    def fuse(self, computation: HloComputation, updates: Updates) -> bool:
        """Fuse the instructions of one computation."""
        return _Plan(self, computation, updates).materialize()


def control_computations(module: HloModule) -> list[HloComputation]:
    """Return the entry and the bodies, conditions and branches reachable from it, callers first."""
    return module.entry.reachable(lambda i: i.operation.calls_program)


def _is_subview_alone(group: Group) -> bool:
    """Return whether all that a group computes is one slice or update of an array, which may need no copy."""
    arrays = [m for m in group.members if m.shape.rank and not is_alias(m)]
    return len(group.outputs) == len(arrays) == 1 and is_consecutive(arrays[0])


class _Plan:
    """The assignment of a computation's instructions to groups."""

    def __init__(self, options: InstructionFusion, computation: HloComputation, updates: Updates) -> None:
        self.options = options
        self.computation = computation
        self.order = computation.post_order()
        self.position = {i: n for n, i in enumerate(self.order)}
        self.early = early_reads(self.order, updates)
        self.updated = updates.last(self.order).keys()
        self.groups: dict[HloInstruction, list[Group]] = {}
        self.all: list[Group] = []
        self.spans = Spans()
        """Position ranges of groups with several outputs."""
        self._steps: dict[HloInstruction, int] = {}
        self._fusible: dict[HloInstruction, bool] = {}
        for instruction in self.order:
            self.steps(instruction)
        self.recomputation = Recomputation(self.order, self.fusible)
        for instruction in reversed(self.order):
            self.groups[instruction] = self.place(instruction)
        self.join_rows()
        recompute_stored_values(self.all, self.consumers, self.position)

    def place(self, p: HloInstruction) -> list[Group]:
        """Return the groups of an instruction: those of its users that accept it, or a new one."""
        groups = self._placed(p)
        for group in self.consumers(p):
            group.waiting.discard(p)
        return groups

    def _placed(self, p: HloInstruction) -> list[Group]:
        if isinstance(p.operation, (Dot, Convolution)) and not p.has_control_dependencies:
            group = self.epilogue_of(p)
            if group is not None:
                group.hero = p
                group.members[p] = None
                return self.groups[next(iter(p.users))]
        if not self.fusible(p):
            return [self.open(p)]
        users = self.consumers(p)
        takers = [g for g in users if self.takes(g, p)]
        needed_outside = p.is_root or len(takers) < len(users)
        dense = [g for g in users if not self.reads_little(g, p)]
        few = self.costless(p) or (len(dense) < 2 and len(users) <= _MOST_COMPUTING)
        room = few and all(self.has_room(g, p, g.reads(p)) for g in users)
        if users and not needed_outside and (len(users) == 1 or room):
            for group in users:
                self.admit(group, p)
            return users
        if is_uniform(p):
            for group in takers:
                self.admit(group, p)
            return [*takers, self.open(p)]
        if not needed_outside and self.are_siblings(users, p):
            group = self.merge(users)
            self.admit(group, p)
            return [group]
        for group in users:
            if self.may_output(group, p, users):
                return [self.output(group, p)]
        ended = [g for g in users if g.full and p.shape.dimensions == g.dimensions]
        for group in ended:
            continuation = group.continuation
            while continuation is not None and continuation.absorbed_by is not None:
                continuation = continuation.absorbed_by
            if continuation is not None and self.may_output(continuation, p, users):
                return [self.output(continuation, p)]
        opened = self.open(p)
        for group in ended:
            group.continuation = opened
        return [opened]

    def output(self, group: Group, p: HloInstruction) -> Group:
        """Add an instruction to a group as an additional result."""
        group.evaluations.request(p, group.index)
        self.admit(group, p)
        group.outputs.append(p)
        self.spans.add(self.position[p], self.position[group.outputs[0]])
        return group

    def are_siblings(self, users: Sequence[Group], p: HloInstruction) -> bool:
        """Return whether the groups that use a value have the same loop, and could be one kernel.

        The value has the dimensions of the loop, or is a large part of an array that has them.
        """
        if len(users) < 2 or any(g.dimensions != users[0].dimensions or not g.is_plain for g in users):
            return False
        trips, count = users[0].trips, p.shape.element_count
        if p.shape.dimensions != users[0].dimensions and not trips <= 2 * count <= 2 * trips:
            return False
        read = {o for g in users for o in g.read} | {o for o in p.operands if o.shape.rank}
        room = sum(g.evaluated for g in users) + max(g.reads(p) for g in users) <= self.options.most_evaluated
        if not room or len(read) > self.options.most_inputs:
            return False
        after = dict.fromkeys((a, g) for a in users for g in self.following(a) if g is not a)
        return not any(self.reaches([g], b) for _, g in after for b in users)

    def merge(self, users: Sequence[Group]) -> Group:
        """Merge groups with the same loop into one group that computes the results of all."""
        first, *others = sorted(users, key=lambda g: -self.position[g.outputs[0]])
        for other in others:
            first.absorb(other)
            for member in other.members:
                groups = self.groups[member]
                self.groups[member] = list(dict.fromkeys(first if g is other else g for g in groups))
            self.all.remove(other)
        first.outputs.sort(key=self.position.__getitem__, reverse=True)
        self.spans.add(self.position[first.outputs[-1]], self.position[first.outputs[0]])
        return first

    def epilogue_of(self, dot: HloInstruction) -> Group | None:
        """Return the only group that consumes a product, if it can be the product's elementwise epilogue."""
        groups = self.consumers(dot)
        if len(groups) != 1 or dot.is_root or not self.options.products(dot):
            return None
        (group,) = groups
        is_plain = group.accepts and group.hero is None and not (group.reduces or group.tiles)
        if not is_plain or group.dimensions != dot.shape.dimensions:
            return None
        if isinstance(group.outputs[0].operation, DynamicUpdateSlice) or not self.elementwise_up(dot, group):
            return None
        if any(map(loads_single_elements, group.members)):
            return None
        is_large = dot.shape.byte_size > self.options.cache_bytes and self.options.prefetches(dot)
        most = self.options.most_prefetched if is_large else self.options.most_streams
        costliest = max(m.operation.element_cost for m in group.members)
        # long elementwise chains need more elements in parallel than a row of a tile has
        is_short = costliest <= (ElementCost.MODERATE if is_large else ElementCost.CHEAP)
        return group if is_short and self.streams(group, dot) <= most else None

    def streams(self, group: Group, dot: HloInstruction) -> int:
        """Return the number of arrays, of a product's size, that its epilogue reads and writes."""
        read = {
            o
            for m in group.members
            for o in m.operands
            if o not in group.members and o is not dot and o.shape.element_count == dot.shape.element_count
        }
        return len(group.outputs) + sum(not self.costless(o) for o in read)

    def elementwise_up(self, p: HloInstruction, group: Group) -> bool:
        """Return whether only elementwise operations lie between an instruction and the group's outputs."""
        waiting, seen = list(p.users), set[HloInstruction]()
        while waiting:
            user = waiting.pop()
            if user in seen or user not in group.members:
                continue
            if not user.operation.elementwise or user.shape.dimensions != p.shape.dimensions:
                return False
            seen.add(user)
            waiting.extend(user.users)
        return True

    def open(self, p: HloInstruction) -> Group:
        """Create a group with an instruction as its root."""
        reduces, updates = isinstance(p.operation, Reduce), isinstance(p.operation, DynamicUpdateSlice)
        shape = p.operands[0].shape if reduces else p.operands[1].shape if updates else p.shape
        accepts = (
            (reduces or updates or loops(p)) and not p.has_control_dependencies and not self.is_subview(p)
        )
        group = Group(shape.dimensions if shape.is_array else (), accepts, reduces)
        group.outputs.append(p)
        if reduces or updates:
            self.read_operands(group, p)
        elif accepts:
            group.evaluations.request(p, group.index)
        self.admit(group, p)
        self.all.append(group)
        return group

    def read_operands(self, group: Group, root: HloInstruction) -> None:
        """Request the elements that a reduction or an update reads in each step of its loop."""
        updates = isinstance(root.operation, DynamicUpdateSlice)
        arrays = root.operands[1:2] if updates else root.operands[: len(root.operands) // 2]
        for o in root.operands:
            if o in arrays:
                group.evaluations.request(o, group.index)
            elif not o.shape.rank:
                group.evaluations.request(o, ())

    def fusible(self, p: HloInstruction) -> bool:
        """Return whether an instruction may join the group of its users."""
        is_fusible = self._fusible.get(p)
        if is_fusible is None:
            is_fusible = self._fusible[p] = self._may_join(p)
        return is_fusible

    def _may_join(self, p: HloInstruction) -> bool:
        if p.has_side_effect or p.has_control_dependencies or not p.shape.is_static or p in self.early:
            return False
        if isinstance(p.operation, Constant):
            return p.shape.rank == 0
        if self.is_subview(p):
            return False
        joins = not isinstance(p.operation, Concatenate) or gives_starts(p) or extends(p)
        return (loops(p) and joins) or is_small_reduction(p)

    def is_subview(self, p: HloInstruction) -> bool:
        """Return whether an instruction is a slice of an array that stays in memory, and needs no copy."""
        if not isinstance(p.operation, DynamicSlice) or not is_consecutive(p):
            return False
        leaves = memory_of(p.operands[0])
        return is_lasting(leaves[-1]) and self.updated.isdisjoint(leaves[:1])

    def reads_little(self, group: Group, p: HloInstruction) -> bool:
        """Return whether a group reads at most 1/16 of an elementwise instruction's elements."""
        return p.operation.elementwise and math.prod(group.dimensions) * _LITTLE <= p.shape.element_count

    def costless(self, p: HloInstruction) -> bool:
        """Return whether recomputing an instruction's elements in every group is (almost) free."""
        return is_costless(p) or extends(p) or 0 < self.steps(p) <= _FEW

    def steps(self, p: HloInstruction) -> int:
        """Return the number of cheap operations between scalars, iotas or small arrays and an instruction.

        0 for other sources.

        A scalar, which a loop computes once, counts as 1 for an array, and as its work for another scalar. A
        broadcast of an array with much fewer elements counts as 1, too: the cache has these elements.
        """
        count = self._steps.get(p)
        if count is None:
            count = 0
            if p.shape.is_array and p.shape.rank == 0:
                count = self._scalar_steps(p)
            elif isinstance(p.operation, Iota) or reads_few(p):
                count = 1
            elif p.operation.element_cost is ElementCost.CHEAP or is_costless(p):
                before = [self.steps(o) if o.shape.rank else 1 for o in p.operands]
                count = 1 + sum(before) if all(before) else 0
            self._steps[p] = count
        return count

    def _scalar_steps(self, p: HloInstruction) -> int:
        """Return the work of computing a scalar, in operations.

        Operand scalars with more than a few operations are stored, and count as 1.
        """
        if not self.fusible(p) or not p.operands:
            return 1
        before = [self.steps(o) for o in p.operands if not isinstance(o.operation, Constant)]
        return max(1, element_work(p)) + sum(n if 0 < n <= _FEW else 1 for n in before)

    def has_room(self, group: Group, p: HloInstruction, reads: int) -> bool:
        """Return whether a group may grow; the limit is doubled for free producers, none for a scalar."""
        limit = self.options.most_evaluated
        if is_uniform(p):
            return True
        if self.costless(p):
            return group.evaluated + reads <= 2 * limit
        group.full |= group.evaluated + reads > limit
        return not group.full

    def note_width(self, group: Group) -> None:
        """Stop the growth of a group that is over three quarters full, at a point where few values wait.

        That is, where no more values wait than at any point while it was from half to three quarters full.
        """
        limit, width = self.options.most_evaluated, len(group.waiting)
        if 4 * group.evaluated > 3 * limit:
            group.full |= width <= group.narrowest
        elif 2 * group.evaluated > limit:
            group.narrowest = min(group.narrowest, width)

    def is_worth_repeating(self, group: Group, p: HloInstruction, reads: int) -> bool:
        """Return whether a group may compute a value for each of its reads, rather than store it."""
        if reads * group.trips <= p.shape.element_count:
            return True
        most = self.options.most_repeated * (2 if p.shape.byte_size > self.options.cache_bytes else 1)
        if self.recomputation.repeated(p, reads, group.trips) > most:
            return False
        separate = group.separate + group.separate_work(p)
        return group.work + group.repeated_work(p, reads) <= self.options.most_work * separate

    def moves_minor(self, p: HloInstruction) -> bool:
        """Return whether a transpose of a large array changes the minor dimension."""
        if not isinstance(p.operation, Transpose):
            return False
        real = [d for d in p.operation.dimensions if p.operands[0].shape.dimensions[d] != 1]
        if not real or p.shape.element_count <= self.options.small_transpose:
            return False
        return real[-1] != max(real)

    def takes(self, group: Group, p: HloInstruction) -> bool:
        """Return whether a group may include ``p`` as a member."""
        return self.may_include(group, p, group.reads(p))

    def may_include(self, group: Group, p: HloInstruction, reads: int) -> bool:
        """Return whether a group may include ``p`` and evaluate it for a number of reads."""
        if not group.accepts or not self.has_room(group, p, reads):
            return False
        if self.moves_minor(p) and not group.interleaves(p) and not self.may_tile(group, p):
            return False
        if group.tiles and not (in_place(p) and (is_uniform(p) or self.has_room_in_tiles(group, 1))):
            return False
        if group.hero is not None and group.hero in p.users:
            return False
        root = group.outputs[0]
        if isinstance(root.operation, DynamicUpdateSlice):
            array, value = root.operands[:2]
            if array in (p, *p.operands) and not reads_replaced(p, root, group.members):
                return False  # the kernel updates the array in place
            if p is value and reads_twice(value, array, self.fusible):
                return False
        if isinstance(p.operation, Reduce) and not group.has_columns:
            return False
        if isinstance(p.operation, Pad) and group.reduces and self.splits_words(group, p):
            return False
        if extends(p) and (group.reduces or group.hero is not None or group.tiles):
            return False  # only loops have an interior without tests
        if group.hero is not None and loads_single_elements(p):
            return False  # only loops gather vectors
        if self.costless(p) or not p.shape.rank:
            return True
        if not self.is_worth_repeating(group, p, reads):
            return False
        if len(group.members) + 2 > self.options.most_inputs and self.reads_much(group, p):
            return False
        loop, mine = math.prod(group.dimensions), p.shape.element_count
        is_row = group.has_columns and p.shape.dimensions == group.dimensions[:-1] and not is_table(p)
        is_part = reads == 1 and group.joins(p)
        return mine >= loop or is_row or is_part or (not is_expensive(p) and mine * 4 >= loop)

    def splits_words(self, group: Group, p: HloInstruction) -> bool:
        """Return whether a reduction of narrow rows reads elements of less than a word.

        Its lanes are rows. Processors gather words; whole rows in memory are read as vectors.
        """
        *rows, columns = group.dimensions
        is_narrow = columns <= _NARROW and len(rows) in operation_of(group.outputs[0], Reduce).dimensions
        return is_narrow and p.shape.element_type.bits < 32

    def reads_much(self, group: Group, p: HloInstruction) -> bool:
        """Return whether a group with ``p`` would exceed the maximum number of inputs.

        Fusible operands are not counted because they may still join the group.
        """
        read = group.read | {o for o in p.operands if o.shape.rank and not self.fusible(o)}
        return sum(o is not p and o not in group.members for o in read) > self.options.most_inputs

    def admit(self, group: Group, p: HloInstruction) -> None:
        """Add an instruction, whose reads are known, to a group."""
        group.members[p] = None
        if not group.accepts:
            return
        reads = max(group.reads(p), 1)
        group.evaluations.evaluate(p)
        group.evaluated += reads
        group.work += group.repeated_work(p, reads)
        group.separate += group.separate_work(p)
        group.waiting.discard(p)
        group.waiting.update(
            o for o in p.operands if o.shape.rank and self.fusible(o) and not self.costless(o)
        )
        group.tiles |= self.moves_minor(p) and not group.interleaves(p)
        group.read.update(o for o in p.operands if o.shape.rank and not self.fusible(o))
        self.note_width(group)

    def may_tile(self, group: Group, p: HloInstruction) -> bool:
        """Return whether a group may contain a tiled transpose: at most half full, and else elementwise."""
        return (
            group.is_loop
            and group.dimensions == p.shape.dimensions
            and self.has_room_in_tiles(group, self.options.most_in_tiles // 2)
            and all(in_place(m) or m.operation == p.operation for m in group.members)
        )

    def has_room_in_tiles(self, group: Group, count: int) -> bool:
        """Return whether a group with a tiled transpose may have ``count`` more members.

        Scalars are in registers.
        """
        members = sum(not is_uniform(m) for m in group.members)
        return members + count <= self.options.most_in_tiles

    def may_output(self, group: Group, p: HloInstruction, users: list[Group]) -> bool:
        """Return whether a group may compute ``p`` as one more result: same loop, and no cycle arises."""
        updates = isinstance(group.outputs[0].operation, DynamicUpdateSlice)
        if group.reduces or updates or p.shape.dimensions != group.dimensions or self.costless(p):
            return False
        reads = group.reads(p) + (not group.evaluations.requests(p, group.index))
        if not self.may_include(group, p, reads):
            return False
        outside = dict.fromkeys(g for u in p.users for g in self.groups[u] if g is not group)
        return not self.reaches(outside, group)

    def reaches(self, starts: Iterable[Group], group: Group) -> bool:
        """Return whether a group uses, directly or not, the results of one of ``starts``."""
        limit = self.spans.limit(self.position[group.outputs[0]])
        seen: set[Group] = set()
        waiting = list(starts)
        while waiting:
            other = waiting.pop()
            if other is group:
                return True
            if other not in seen and min(self.position[o] for o in other.outputs) <= limit:
                seen.add(other)
                waiting.extend(g for g in self.following(other) if g is not other)
        return False

    def following(self, group: Group) -> dict[Group, None]:
        """Return the groups that must run after a group, by uses or control dependencies."""
        after = (u for o in group.outputs for u in (*o.users, *o.control_successors))
        return dict.fromkeys(g for u in after for g in self.groups[u])

    def consumers(self, p: HloInstruction) -> list[Group]:
        """Return the groups of the users of an instruction."""
        return list(dict.fromkeys(g for u in p.users for g in self.groups[u]))

    # -- rows

    def join_rows(self) -> None:
        """Join groups that iterate over the same rows."""
        users: dict[int, list[Group]] = {}
        for group in self.all:
            users[id(group)] = [g for g in self.following(group) if g is not group]

        candidates = {id(g) for g in self.all if not (g.tiles or any(map(extends, g.members)))}
        limits = Limits(self.options.most_evaluated, self.options.most_work)
        union_of: dict[Group, Group] = {}
        for cluster in join_rows(self.all, candidates, users, limits):
            union_of.update(dict.fromkeys(cluster, self.join(dict.fromkeys(cluster))))
        unions = dict.fromkeys(union_of.values())
        for member in dict.fromkeys(m for union in unions for m in union.members):
            self.groups[member] = list(dict.fromkeys(union_of.get(g, g) for g in self.groups[member]))
        self.all = [*(g for g in self.all if g not in union_of), *unions]

    def join(self, cluster: dict[Group, None]) -> Group:
        """Merge several groups; values used only inside the merged group are no longer outputs."""
        base = next((g for g in cluster if not g.reduces), next(iter(cluster)))
        joined = Group(base.dimensions, True, False, rows=True)
        for group in cluster:
            joined.members.update(group.members)
        for group in cluster:
            for output in group.outputs:
                # a free user may also be in groups outside
                if output.is_root or any(g not in cluster for u in output.users for g in self.groups[u]):
                    joined.outputs.append(output)
        joined.outputs.sort(key=self.position.__getitem__, reverse=True)
        return joined

    # -- creating the fusions

    def materialize(self) -> bool:
        """Replace every group of more than one instruction by a fusion.

        Uses are replaced at the end, in one walk: an instruction with many operands uses many fusions.
        """
        replacements: dict[HloInstruction, HloInstruction] = {}
        members: dict[HloInstruction, None] = {}
        for group in sorted(self.all, key=lambda g: min(self.position[o] for o in g.outputs)):
            names = ", ".join(f"%{output.name}" for output in group.outputs)
            fuses = len(group.members) > 1 and group.accepts and not _is_subview_alone(group)
            if fuses and consume(names):
                replacements.update(self.fuse(group))
                members.update(group.members)
        replace_uses(replacements)
        for member in sorted(members, key=self.position.__getitem__, reverse=True):
            if not member.users and not member.is_root:
                self.computation.remove(member)
        return bool(replacements)

    def fuse(self, group: Group) -> dict[HloInstruction, HloInstruction]:
        """Add a fusion of the members of a group; return the replacement of each output."""
        assert self.computation.module is not None
        body = FusedBody(self.computation.module)
        copies: dict[HloInstruction, HloInstruction] = {}
        for member in sorted(group.members, key=self.position.__getitem__):
            operands = [copies[o] if o in group.members else body.input(o) for o in member.operands]
            copies[member] = body.copy(member, operands)
        outputs = group.outputs[::-1]
        roots = [copies[o] for o in outputs]
        shape = Shape.tuple_(o.shape for o in outputs)
        body.computation.root = roots[0] if len(roots) == 1 else body.op(Tuple(), *roots, shape=shape)
        kind = "kCustom" if group.rows else "kInput" if group.reduces else "kLoop"
        fusion = body.fusion(outputs[0], f"{outputs[0].name}_fusion", kind)
        if len(outputs) == 1:
            return {outputs[0]: fusion}
        w = Inserter(fusion)
        w.metadata = None
        return {o: w.op(GetTupleElement(index=n), fusion, shape=o.shape) for n, o in enumerate(outputs)}
