"""sparse-constant-dots: skip the zeros of constant matrices in dots.

Resizing an image multiplies each of its dimensions by a matrix of interpolation weights; finite differences,
permutations and selections are also written as dots with constant matrices. The columns of such a matrix have
few nonzero elements, and a sum over these alone is short.

A product with zero is zero unless the other factor is infinite or NaN. A conditional therefore chooses
between two branches: the short sums, if the operand is so small that nothing in a chain of dots overflows,
and the original dots otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from typing import Final

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Array
from hloom.operations.arithmetic import And
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Conditional
from hloom.operations.movement import Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.unary import Abs
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.rules.contraction import free_of, inner_of
from hloom.passes.simplify.constant_folding import closed_value, closed_work
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Body, Inserter, Writer
from hloom.records import dataclass
from hloom.shape.element_type import BF16, F16, F32, F64, PRED
from hloom.shape.float_format import float_format

_FLOATS: Final = frozenset((BF16, F16, F32, F64))


class SparseConstantDots(Pass, name="sparse-constant-dots", of=Dot, needs={FLAT}):
    """``dot(x, c)`` → ``all(|x| <= bound) ? 0 + x[i] * c[i] + x[j] * c[j] + ... : dot(x, c)``.

    Within the rounding errors of sums in the order of the contracted dimension. Integers need no branches.

    Attributes:
        sparsity: minimum ratio of all elements of a column to its nonzero elements.
        sparsity_of_few: the same for sums that gather single elements, where x is a vector or has few rows.
        most_terms: maximum number of nonzero elements of a column.
        least: minimum number of products of a dot.
    """

    sparsity: int = 4
    sparsity_of_few: int = 48
    most_terms: int = 64
    least: int = 1 << 12

    def run(self, module: HloModule) -> bool:
        """Rewrite the chains of dots of every computation."""
        changed = False
        for computation in module.computations:
            dots = [i for i in computation if isinstance(i.operation, Dot)]
            closed = closed_work(computation) if dots else ()
            factors = {i: f for i in dots if (f := self.factor(i, closed)) is not None}
            for chain in _chains(computation, factors):
                changed |= consume(f"%{chain.last.name}") and _rewrite(chain)
        return changed

    def factor(self, i: HloInstruction, closed: Container[HloInstruction]) -> SparseFactor | None:
        """Return the sparse constant factor of a dot; None if it has none or short sums do not pay.

        Args:
            closed: the instructions that depend on constants alone.
        """
        if not isinstance(i.operation, Dot) or not _has_plain_types(i) or i.operation.lhs_batch_dims:
            return None
        inner = [inner_of(i.operation, side) for side in (0, 1)]
        if len(inner[0]) != 1:
            return None
        for side in (0, 1):
            x, constant = i.operands[side], i.operands[1 - side]
            length = x.shape.dimensions[inner[side][0]]
            if i.shape.element_count * length < self.least:
                continue
            value = closed_value(constant) if constant in closed else None
            if value is not None:
                factor = SparseFactor(i, side, np.moveaxis(value, inner[1 - side][0], 0).reshape(length, -1))
                return factor if self.pays(factor) else None
        return None

    def pays(self, factor: SparseFactor) -> bool:
        """Return whether a constant is finite and so sparse that short sums are faster than the dot."""
        from hloom.passes.expand import sparse_products  # for programs that have constant factors

        if not math.isfinite(factor.gain):
            return False
        terms, length = sparse_products.terms_of(factor.matrix), len(factor.matrix)
        in_vectors = sparse_products.reads_vectors(factor.x.shape, factor.axis, factor.matrix)
        sparsity = self.sparsity if in_vectors else self.sparsity_of_few
        return terms <= self.most_terms and terms * sparsity <= length


def _has_plain_types(i: HloInstruction) -> bool:
    """Return whether a dot has static shapes and types whose sums are integers, f32 or f64."""
    values = (i, *i.operands)
    kinds = {value.shape.element_type for value in values}
    is_plain = kinds <= _FLOATS or all(k.is_integer and k.bits >= 8 for k in kinds)
    return is_plain and all(v.shape.is_static and not v.has_control_dependencies for v in values)


@dataclass(slots=True, eq=False)
class SparseFactor:
    """The constant factor of a dot.

    Attributes:
        dot: the dot.
        side: operand number of the other factor, x.
        matrix: the constant; its rows are contracted.
    """

    dot: HloInstruction
    side: int
    matrix: Array

    @property
    def x(self) -> HloInstruction:
        """Return the other factor."""
        return self.dot.operands[self.side]

    @property
    def axis(self) -> int:
        """Return the contracted dimension of x."""
        (axis,) = inner_of(operation_of(self.dot, Dot), self.side)
        return axis

    @property
    def gain(self) -> float:
        """Return the 1-norm of the matrix: results are at most that many times the largest element of x."""
        return float(np.abs(self.matrix.astype(float)).sum(axis=0).max())

    def sum(self, w: Inserter, x: HloInstruction) -> HloInstruction:
        """Write the product of ``x`` and the constant as short sums, with the shape of the dot."""
        from hloom.passes.expand.sparse_products import sparse_product

        dot, kind = operation_of(self.dot, Dot), self.dot.shape.element_type
        if not kind.is_integer:
            kind = F64 if F64 in {kind, *(o.shape.element_type for o in self.dot.operands)} else F32
        total = sparse_product(w, w.convert(x, kind), self.axis, self.matrix.astype(kind.numpy_dtype))
        free = free_of(self.dot, dot, self.side)
        order = (*free, self.axis) if self.side == 0 else (self.axis, *free)
        if order != tuple(range(len(order))):
            total = w.op(Transpose(dimensions=order), total)
        return w.reshape(w.convert(total, self.dot.shape.element_type), self.dot.shape.dimensions)


@dataclass(slots=True, eq=False)
class Chain:
    """A sequence of dots with constants in which each multiplies the result of the one before.

    Attributes:
        x: the operand of the first dot.
        steps: the dots, and transposes and reshapes between and after them, in order.
        factors: the constant factors of the dots.
    """

    x: HloInstruction
    steps: list[HloInstruction]
    factors: Mapping[HloInstruction, SparseFactor]

    @property
    def last(self) -> HloInstruction:
        """Return the last instruction."""
        return self.steps[-1]

    @property
    def bound(self) -> float:
        """Return a power of two such that no dot overflows if no magnitude in x is larger.

        All results and partial sums are then at most half of the largest number: room for rounding errors.
        """
        growth = largest = 0
        kinds = {self.x.shape.element_type}
        for factor in (self.factors[step] for step in self.steps if step in self.factors):
            growth += math.frexp(factor.gain)[1]
            largest = max(largest, growth)
            kinds.add(factor.dot.shape.element_type)
        return math.ldexp(1.0, min(float_format(kind).largest_exponent for kind in kinds) - largest)

    def short(self, w: Inserter, x: HloInstruction) -> HloInstruction:
        """Write the chain with short sums in place of its dots."""
        for step in self.steps:
            x = self.factors[step].sum(w, x) if step in self.factors else w.copy(step, [x])
        return x

    def long(self, w: Inserter, x: HloInstruction) -> HloInstruction:
        """Write a copy of the chain and of its constants, into a branch."""
        copies = {self.x: x}

        def copy(i: HloInstruction) -> HloInstruction:
            if i not in copies:
                copies[i] = w.copy(i, [copy(o) for o in i.operands])
            return copies[i]

        return copy(self.last)


def _chains(computation: HloComputation, factors: Mapping[HloInstruction, SparseFactor]) -> Iterator[Chain]:
    """Yield the longest chains of dots, the last ones first, without those that rewriting has removed."""
    done: set[HloInstruction] = set()
    for last in computation.post_order()[::-1] if factors else ():
        if last in factors and last not in done and last.parent is computation:
            dots = _dots_until(last, factors)
            done.update(dots)
            yield Chain(factors[dots[0]].x, dots + _moves_after(last), factors)


def _dots_until(last: HloInstruction, factors: Mapping[HloInstruction, SparseFactor]) -> list[HloInstruction]:
    """Return the dots of a chain that ends with a dot, and the transposes and reshapes between them."""
    steps: list[HloInstruction] = [last]
    moves: list[HloInstruction] = []
    i = factors[last].x
    while _only_user(i) is not None and (i in factors or _moves(i)):
        moves.insert(0, i)
        if i in factors:
            steps, moves = [*moves, *steps], []
        i = factors[i].x if i in factors else i.operands[0]
    return steps


def _moves_after(dot: HloInstruction) -> list[HloInstruction]:
    """Return the chain of transposes and reshapes that are the only users of a dot."""
    moves: list[HloInstruction] = []
    user = _only_user(dot)
    while user is not None and _moves(user):
        moves.append(user)
        user = _only_user(user)
    return moves


def _only_user(i: HloInstruction) -> HloInstruction | None:
    return next(iter(i.users)) if len(i.users) == 1 and not i.is_root else None


def _moves(i: HloInstruction) -> bool:
    is_plain = i.shape.is_static and not i.has_control_dependencies
    return isinstance(i.operation, (Transpose, Reshape)) and is_plain


def _rewrite(chain: Chain) -> bool:
    """Replace a chain by short sums, under a condition if its numbers are floats."""
    w, x = Writer(chain.last), chain.x
    if x.shape.element_type.is_integer:
        w.replace(chain.short(w, x))
    else:
        branches = Body(w.module, "short_sums"), Body(w.module, "dots")
        for body, write in zip(branches, (chain.short, chain.long), strict=True):
            body.metadata = w.metadata
            body.computation.root = write(body, body.parameter(x.shape, "x"))
        computations = [body.computation for body in branches]
        fits = _all_at_most(w, x, chain.bound)
        w.replace(w.op(Conditional(), fits, x, x, shape=chain.last.shape, computations=computations))
    remove_dead(w.computation)
    return True


def _all_at_most(w: Inserter, x: HloInstruction, bound: float) -> HloInstruction:
    """Write the test ``all(|x| <= bound)``, which is false for NaN."""
    is_small = w.compare(w.op(Abs(), x), "LE", w.full(bound, x.shape))
    every = Reduce(dimensions=tuple(range(x.shape.rank)))
    return w.op(every, is_small, w.scalar(True, PRED), computations=[w.combiner(And(), PRED)])
