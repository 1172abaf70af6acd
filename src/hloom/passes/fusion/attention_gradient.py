"""attention-gradient: join the products and row operations of a gradient of attention into one kernel.

The gradient of softmax(Q Kᵀ) V reads exponentials and weights that the forward pass computed. The fusion
computes them again from Q and K, so that neither pass stores an array with an element for each pair of a
query and a key.

The body of a fusion has one form, from which its kernel reads strides: arrays have no dimensions of size 1;
row operations have the dimensions of the weights, of which the last ones are rows and keys; the weights are
the first factor of their products. Where there are few batches the rows are divided into parts, a dimension
before that of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop
from hloom.analysis.trip_count import trip_count
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.contraction import Dot
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import GetTupleElement, Iota, Tuple
from hloom.operations.transcendental import Exponential
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.fusion.attention_region import Axes, Region
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.layout.product_views import is_view
from hloom.passes.loops.recomputed_rows import RecomputedRows, value_of
from hloom.passes.loops.while_loop_simplifier import drop_dead_elements
from hloom.passes.loops.while_loops import loop_of
from hloom.passes.pipeline import Pass
from hloom.passes.rules.contraction import batch_of, free_of, inner_of, results_of
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Inserter, Writer
from hloom.shape import element_type as et
from hloom.shape.shape import Shape

LEAST_BYTES: Final = 1 << 24
"""Bytes of the weights, or of a loop's stack of them, from which it pays to compute them again.

With a third-level cache of 32 MiB the gradient of 12 heads takes 0.95 of the time for 1024 rows, 1.1 for 512.
"""
ENOUGH: Final = 12
"""Batches from which the rows of a batch are not divided."""
TASKS: Final = 16
"""Batches and parts otherwise."""
LEAST_PART: Final = 32
"""Minimum rows of a part."""


class AttentionGradient(Pass, name="attention-gradient", of=Exponential, needs={FLAT}):
    """Products of the weights of a softmax, and of their gradient → one fusion.

    Attributes:
        takes: whether the target has a kernel for such a fusion.
    """

    takes: Callable[[HloInstruction], bool]

    def run(self, module: HloModule) -> bool:
        """Fuse the gradients of every loop and every computation."""
        changed = False
        for i in list(module.instructions()):
            target = loop_of(i) if i.parent is not None else None
            if target is not None:
                changed |= self.join_loops(target)
        for computation in control_computations(module):
            for i in computation.post_order():
                if i.parent is computation and isinstance(i.operation, Exponential):
                    changed |= self.join(i)
        return changed

    def join_loops(self, target: TupleLoop) -> bool:
        """Fuse the gradients of a loop, of attentions whose weights another loop stores."""
        initial = [value_of(target.initial(n)) for n in range(target.count)]
        picked = [i.operands[0] for i in initial if isinstance(i.operation, GetTupleElement)]
        changed = False
        for instruction in dict.fromkeys(picked):
            source = loop_of(instruction)
            if source is None or source.instruction is target.instruction:
                continue
            joined = [self.join_across(source, target, i) for i in source.body.post_order()]
            if any(joined):
                changed = True
                for loop in (target, source):
                    drop_dead_elements(loop)
                    _take_apart(loop.instruction.parent)
        return changed

    def join_across(self, source: TupleLoop, target: TupleLoop, i: HloInstruction) -> bool:
        """Fuse the gradient in a loop of an attention in another one, if it is an attention's exponential."""
        if not isinstance(i.operation, Exponential):
            return False
        region = Region(i)
        if not region.spread():
            return False
        rows = RecomputedRows(source, target, {*region.axes, *region.members(i, region.axes[i])})
        replaces = rows.replace()
        copies = [copy for (original, _), copy in rows.copies.items() if original is i]
        count = trip_count(target)
        joined = (
            replaces and len(copies) == 1 and count is not None and self.join(copies[0], count.iterations)
        )
        if replaces and not joined:
            rows.undo()
        remove_dead(target.body)
        return joined

    def join(self, exponential: HloInstruction, count: int = 1) -> bool:
        """Fuse the gradient of the attention that an exponential belongs to; ``count``: rows of its stack."""
        region = Region(exponential)
        if count * exponential.shape.byte_size < LEAST_BYTES or not region.spread() or not region.choose():
            return False
        if not self.write(region, region.gradient):
            return False
        for product in region.forward:
            self.write(region, [product])
        return True

    def write(self, region: Region, products: Sequence[tuple[HloInstruction, int]]) -> bool:
        """Replace products by results of one fusion; return false if there is no kernel for it."""
        for absorbs in (True, False):
            writer = _FusionWriter(region, products, absorbs=absorbs)
            fusion = writer.write()
            if fusion is not None and self.takes(fusion) and consume(f"%{region.start.name}"):
                writer.replace(fusion)
                return True
            writer.remove(fusion)
        return False


class _FusionWriter:
    """Writes a fusion of a region.

    Args:
        products: those of the weights that it computes; a tuple if there are several.
        absorbs: transposes and reshapes of a product become part of the fusion.
    """

    def __init__(
        self, region: Region, products: Sequence[tuple[HloInstruction, int]], *, absorbs: bool
    ) -> None:
        self.region, self.products, self.absorbs = region, products, absorbs
        assert region.start.parent is not None and region.start.parent.module is not None
        self.module = region.start.parent.module
        self.body = FusedBody(self.module)
        self.copies: dict[tuple[HloInstruction, Axes], HloInstruction] = {}
        self.rests: list[tuple[HloInstruction, Callable[[Writer, HloInstruction], HloInstruction]]] = []
        batches, rows = math.prod(region.sizes[: region.row]), region.sizes[region.row]
        self.parts = 1
        if batches < ENOUGH and len(products) > 1:
            fitting = [n for n in range(1, rows // LEAST_PART + 1) if rows % n == 0]
            enough = [n for n in fitting if n * batches >= TASKS]
            self.parts = min(enough) if enough else max(fitting, default=1)

    def write(self) -> HloInstruction | None:
        """Add the fusion, without uses; None if a product is in no form that has a kernel."""
        roots: list[HloInstruction] = []
        for dot, side in self.products:
            root = self.product(dot, side)
            if root is None:
                return None
            roots.append(root)
        if self.is_cyclic():
            return None
        (root, *others) = roots
        if others:
            root = self.body.op(Tuple(), *roots, shape=Shape.tuple_(r.shape for r in roots))
        self.body.computation.root = root
        name = f"{self.region.start.name}_{'gradient' if others else 'attention'}"
        return self.body.fusion(self.products[0][0], name, "kCustom")

    def is_cyclic(self) -> bool:
        """Return whether an array from outside depends on a result."""
        dots = {dot for dot, _ in self.products}
        waiting = list(self.body.inputs)
        visited: set[HloInstruction] = set(waiting)
        while waiting:
            i = waiting.pop()
            if i in dots:
                return True
            new = [o for o in (*i.operands, *i.control_predecessors) if o not in visited]
            visited.update(new)
            waiting += new
        return False

    def replace(self, fusion: HloInstruction) -> None:
        """Replace the products by results of the fusion."""
        for number, (target, rest) in enumerate(self.rests):
            writer = Writer(target)
            result = fusion
            if fusion.shape.is_tuple:
                shape = fusion.shape.tuple_shapes[number]
                result = writer.op(GetTupleElement(index=number), fusion, shape=shape)
            target.replace_all_uses_with(rest(writer, result))
        assert fusion.parent is not None
        remove_dead(fusion.parent)

    def remove(self, fusion: HloInstruction | None) -> None:
        """Remove the fusion, or what was written of it."""
        if fusion is not None:
            assert fusion.parent is not None
            fusion.parent.remove(fusion)
        self.module.remove(self.body.computation)

    # -- dimensions

    def extents(self, axis: int) -> tuple[int, ...]:
        """Return the sizes of the dimensions of an axis: of the rows those of parts, and of a part."""
        size = self.region.sizes[axis]
        return (self.parts, size // self.parts) if axis == self.region.row and self.parts > 1 else (size,)

    def sizes(self, axes: Iterable[int]) -> tuple[int, ...]:
        """Return the dimensions of an array with some axes."""
        return tuple(size for axis in axes for size in self.extents(axis))

    def places(self, chosen: Iterable[int], axes: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of some axes in an array."""
        first: dict[int, int] = {}
        count = 0
        for axis in axes:
            first[axis] = count
            count += len(self.extents(axis))
        return tuple(first[a] + n for a in chosen for n in range(len(self.extents(a))))

    def arranged(self, i: HloInstruction, axes: Axes, others: Sequence[int] = ()) -> HloInstruction:
        """Return an array with its axes in order, then other dimensions."""
        order = sorted((d for d, a in enumerate(axes) if a >= 0), key=axes.__getitem__)
        rest = [d for d in others if i.shape.dimensions[d] != 1]
        ones = [d for d in range(i.shape.rank) if d not in order and d not in rest]
        turned = _transposed(self.body, i, [*order, *rest, *ones])
        sizes = (*self.sizes(axes[d] for d in order), *(i.shape.dimensions[d] for d in rest))
        return self.body.reshape(turned, sizes)

    # -- members

    def value(self, i: HloInstruction, axes: Axes) -> HloInstruction | None:
        """Return the copy of an array of the region, or of what it reads; None if axes contradict."""
        known = self.region.axes.get(i, axes)
        if (i, axes) in self.copies:
            return self.copies[i, axes]
        if known != axes:
            return None
        copy = self.scores(i, axes) if self.region.is_scores(i, axes) else self.member(i, axes)
        if copy is not None:
            self.copies[i, axes] = copy
        return copy

    def member(self, i: HloInstruction, axes: Axes) -> HloInstruction | None:
        """Return the copy of an instruction between products, or a parameter for an array from outside."""
        described = self.region.operands(i, axes)
        if described is None:
            return self.arranged(self.body.input(i), axes)
        operands = [self.value(o, a) for o, a in described]
        inputs = [o for o in operands if o is not None]
        if len(inputs) != len(operands):
            return None
        ordered = sorted(a for a in axes if a >= 0)
        shape = Shape(i.shape.element_type, self.sizes(ordered))
        match i.operation:
            case Iota():
                return self.arranged(self.body.copy(i, []), axes)
            case Reshape() | Transpose():
                return inputs[0]
            case Broadcast():
                kept = sorted(a for a in described[0][1] if a >= 0)
                return self.body.op(Broadcast(dimensions=self.places(kept, ordered)), inputs[0], shape=shape)
            case Reduce():
                reduced = (inputs[0].shape.rank - 1,)
                operation = operation_of(i, Reduce).replace(dimensions=reduced)
                return self.body.op(operation, *inputs, shape=shape, computations=i.called_computations)
            case _:
                return self.body.copy(i, inputs, shape=shape if i.shape.rank else i.shape)

    def view(self, i: HloInstruction) -> HloInstruction:
        """Return the copy of an array from outside, with the views in front of it."""
        return self.body.copy(i, [self.view(i.operands[0])]) if is_view(i) else self.body.input(i)

    # -- products

    def scores(self, dot: HloInstruction, axes: Axes) -> HloInstruction | None:
        """Return the copy of a product of scores: rows are those of the first factor."""
        region, operation = self.region, operation_of(dot, Dot)
        of_side = [{d: axes[r] for d, r in results_of(dot, side).items()} for side in (0, 1)]
        first = 0 if region.row in of_side[0].values() else 1
        if region.row in of_side[1 - first].values() or region.last in of_side[first].values():
            return None
        factors: list[HloInstruction] = []
        kept: list[list[int]] = []
        for side in (first, 1 - first):
            operand = self.view(dot.operands[side])
            factor_axes = tuple(of_side[side].get(d, -1) for d in range(operand.shape.rank))
            factors.append(self.arranged(operand, factor_axes, inner_of(operation, side)))
            kept.append(sorted(a for a in factor_axes if a >= 0))
        both = [a for a in kept[0] if a in kept[1]]
        ranks = [len(self.sizes(some)) for some in kept]
        new = operation.replace(
            lhs_batch_dims=self.places(both, kept[0]),
            rhs_batch_dims=self.places(both, kept[1]),
            lhs_contracting_dims=tuple(range(ranks[0], factors[0].shape.rank)),
            rhs_contracting_dims=tuple(range(ranks[1], factors[1].shape.rank)),
        )
        order = [*both, *(a for some in kept for a in some if a not in both)]
        shape = Shape(dot.shape.element_type, self.sizes(order))
        product = self.body.op(new, *factors, shape=shape)
        return _transposed(self.body, product, self.places(sorted(order), order))

    def product(self, dot: HloInstruction, side: int) -> HloInstruction | None:
        """Return the copy of a product of the weights, or the sums of parts that become it."""
        region, operation = self.region, operation_of(dot, Dot)
        axes = region.axes[dot.operands[side]]
        weights = self.value(dot.operands[side], axes)
        free = free_of(dot, operation, 1 - side)
        if weights is None or len({*axes} - {-1}) != len(region.sizes) or len(free) == 0:
            return None
        pairs = zip(
            (*batch_of(operation, side), *inner_of(operation, side)),
            (*batch_of(operation, 1 - side), *inner_of(operation, 1 - side)),
            strict=True,
        )
        places = {other: axes[own] for own, other in pairs}
        operand = self.view(dot.operands[1 - side])
        factor_axes = tuple(places.get(d, -1) for d in range(operand.shape.rank))
        factor = self.arranged(operand, factor_axes, free)
        kept, every = sorted(a for a in factor_axes if a >= 0), list(range(len(region.sizes)))
        summed = region.summed(dot, side)
        over_rows = region.last not in summed
        if (over_rows and kept != every[:-1]) or (not over_rows and region.row in kept):
            return None
        inner = region.row if over_rows else region.last
        others = [a for a in kept if a != inner]
        batch = list(self.places(others, every))
        in_factor = list(self.places(others, kept))
        if over_rows and self.parts > 1:  # one dimension of parts is left
            batch.append(self.places([inner], every)[0])
            in_factor.append(self.places([inner], kept)[0])
        new = operation.replace(
            lhs_batch_dims=tuple(batch),
            rhs_batch_dims=tuple(in_factor),
            lhs_contracting_dims=(self.places([inner], every)[-1],),
            rhs_contracting_dims=(self.places([inner], kept)[-1],),
        )
        columns = tuple(factor.shape.dimensions[len(self.sizes(kept)) :])
        lines = [p for p in range(weights.shape.rank) if p not in (*batch, new.lhs_contracting_dims[0])]
        sizes = (*(weights.shape.dimensions[p] for p in (*batch, *lines)), *columns)
        again = sorted(summed) != [inner] or (over_rows and self.parts > 1)
        kind = dot.shape.element_type
        if over_rows and kind.bits < et.F32.bits:  # sums of blocks are added in the type of sums
            kind = et.F32
        result = self.body.op(new, weights, factor, shape=Shape(kind, sizes))
        order = [a for a in kept if a != inner] + [a for a in every if a not in kept and a != inner]
        if over_rows:
            order = [*every[: region.row], region.last]
        return self.root(dot, side, result, order, sorted(summed - {inner}) if again else None)

    def root(
        self,
        dot: HloInstruction,
        side: int,
        product: HloInstruction,
        order: list[int],
        again: list[int] | None,
    ) -> HloInstruction:
        """Return a root of the fusion, and remember what remains to be computed from it.

        ``order``: the axes of the product, followed by columns. ``again``: the axes that remain to be summed,
        besides the parts of the rows; None if the product is complete.
        """
        region = self.region
        if again is None and product.shape.element_type is dot.shape.element_type:
            root = self.restored(self.body, dot, side, product, order)
            if root is not None:
                target = dot
                while self.absorbs and (view := _only_view(target)) is not None:
                    root, target = self.body.copy(view, [root]), view
                self.rests.append((target, lambda _, result: result))
                return root

        def rest(w: Writer, result: HloInstruction) -> HloInstruction:
            kept = [a for a in order if a not in (again or ())]
            summed = [n for n, a in enumerate(order) if a in (again or ())]
            if again is not None and self.parts > 1:
                summed.append(region.row)
            result = w.sum(result, summed) if summed else result
            whole = self.restored(w, dot, side, result, kept, is_root=False)
            assert whole is not None
            return w.convert(whole, dot.shape.element_type)

        self.rests.append((dot, rest))
        return product

    def restored(
        self,
        w: Inserter,
        dot: HloInstruction,
        side: int,
        product: HloInstruction,
        order: Sequence[int],
        *,
        is_root: bool = True,
    ) -> HloInstruction | None:
        """Return a product with the dimensions of the original one; None if they are not last in a root."""
        axes = self.region.axes[dot.operands[side]]
        columns = free_of(dot, operation_of(dot, Dot), 1 - side)
        of_columns, of_weights = results_of(dot, 1 - side), results_of(dot, side)
        names: dict[int, int] = {r: axes[d] for d, r in of_weights.items()}
        names |= {of_columns[d]: len(axes) + n for n, d in enumerate(columns)}
        wanted = [names[r] for r, size in enumerate(dot.shape.dimensions) if size != 1]
        present = [len(axes) + n for n, d in enumerate(columns) if dot.shape.dimensions[of_columns[d]] != 1]
        if is_root and wanted[len(order) :] != present:
            return None
        whole = [*(self.region.sizes[a] for a in order), *product.shape.dimensions[-len(present) :]]
        present = [*order, *present]
        turned = _transposed(w, w.reshape(product, whole), [present.index(name) for name in wanted])
        return w.reshape(turned, dot.shape.dimensions)


def _take_apart(computation: HloComputation | None) -> None:
    """Read operands of tuples in place of elements of the tuples, and remove what is dead."""
    assert computation is not None
    for i in list(computation.instructions):
        if (value := value_of(i)) is not i:
            i.replace_all_uses_with(value)
    remove_dead(computation)


def _transposed(w: Inserter, i: HloInstruction, order: Sequence[int]) -> HloInstruction:
    """Transpose an array; return it unchanged if the order is that of its dimensions."""
    return i if list(order) == list(range(i.shape.rank)) else w.op(Transpose(dimensions=tuple(order)), i)


def _only_view(i: HloInstruction) -> HloInstruction | None:
    """Return the only user of an instruction if it transposes or reshapes it."""
    users = list(i.users)
    if len(users) != 1 or i.is_root or not isinstance(users[0].operation, Transpose | Reshape):
        return None
    return None if users[0].has_control_dependencies else users[0]
