"""Contractions: dot, ragged-dot and scaled-dot.

The page's Dot, DotGeneral, RaggedDot and ScaledDot. Short sums of products are formed term by term, in
order, in the result's own precision (at least f32), every product and sum rounded, as in the
definition. Long ones are formed in f64 (complex ones in c128) and rounded once, which is nearer
to the exact sum than any order of additions in the result's precision. Integers wrap; for pred a product
is `and` and a sum is `or`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, cast

import numpy as np

from hloom.error_bounds.sums import sum_of_products
from hloom.errors import ShapeError
from hloom.ir.affine import Indices
from hloom.ir.codec import dims
from hloom.ir.contraction import dot_algorithm, operand_precision
from hloom.ir.indexing import Accumulation, Addressing, Condition, Read
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation, ProgramShape, Run, operation, require_dynamic
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import ElementCost, Family, Roundoff, shape_elements
from hloom.operations.arithmetic import Add
from hloom.operations.rounding import convert
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format
from hloom.shape.shape import Shape

SHORT_SUM: Final = 32
"""Maximum number of terms of a sum that is formed term by term in the result's own precision."""


# -- element types and sums of products, shared with convolution and reductions


def joint_precision(lhs: ElementType, rhs: ElementType) -> ElementType:
    """Return the type of a product: complex, float, integer; then range, precision, width."""
    return max(rhs, lhs, key=_precision_rank)


def _precision_rank(element_type: ElementType) -> tuple[bool, int, int, int, bool]:
    component = element_type.component
    exponent = mantissa = -1
    if component.is_floating:
        number = float_format(component)
        exponent, mantissa = number.largest_exponent, number.mantissa_bits
    return element_type.is_complex, exponent, mantissa, component.bits, element_type.is_signed


def check_result_type(opcode: str, inferred: Shape, stated: Shape) -> None:
    """Refuse a stated shape of other dimensions, or of a type that cannot hold the sums.

    Only pred is summed into pred and only complex numbers lose no part in the sum's type; integers need a
    type that is at least as wide.
    """
    if not stated.is_array or not inferred.with_element_type(stated.element_type).compatible(stated):
        message = f"the shape is stated as {stated}, but {inferred} follows from the operands"
        raise ShapeError(message, rule="instruction.shape-matches")
    require_dynamic(stated, inferred.with_element_type(stated.element_type))
    natural, preferred = inferred.element_type, stated.element_type
    narrowed = not natural.is_floating and preferred.bits < natural.bits
    part_lost = preferred.is_predicate or (natural.is_complex and not preferred.is_complex)
    if preferred is not natural and (narrowed or part_lost):
        message = f"{opcode} of {natural.name} values cannot have results of type {preferred.name}"
        raise ShapeError(message, rule=f"{opcode}.result-type")


def same_size(lhs: Shape, lhs_dimension: int, rhs: Shape, rhs_dimension: int) -> bool:
    """Return whether two sizes or bounds are equal; an unbounded dimension agrees with every size."""
    a, b = lhs.dimensions[lhs_dimension], rhs.dimensions[rhs_dimension]
    return a == b or Shape.UNBOUNDED in (a, b)


def accumulation_type(element_type: ElementType, terms: int) -> np.dtype:
    """Return the numpy type in which sums of ``terms`` products of an element type are formed."""
    if element_type.is_complex:
        return element_type.numpy_dtype if terms <= SHORT_SUM else np.dtype(np.complex128)
    if element_type.is_floating:
        if terms > SHORT_SUM:
            return np.dtype(np.float64)
        return element_type.numpy_dtype if element_type.bits >= 32 else np.dtype(np.float32)
    if element_type.bits < 8:
        return np.dtype(np.int8 if element_type.is_signed else np.uint8)
    return element_type.numpy_dtype


def summands(result: ElementType, lhs: Array, rhs: Array, terms: int) -> tuple[Array, Array]:
    """Convert the operands to the type in which products are summed, which holds operands and result."""
    types = [ElementType.from_dtype(array.dtype) for array in (lhs, rhs)]
    dtype = accumulation_type(joint_precision(joint_precision(*types), result), terms)
    return convert(lhs, dtype), convert(rhs, dtype)


def meet(lhs: Array, rhs: Array, pairs: Iterable[tuple[int, int]]) -> tuple[Array, Array]:
    """Cut operands to the smaller of the actual sizes of paired dimensions, one of which may be dynamic.

    Elements beyond the actual size of one operand count as zero, even if paired with NaN.
    """
    for i, j in pairs:
        size = min(lhs.shape[i], rhs.shape[j])
        lhs = lhs[(slice(None),) * i + (slice(size),)]
        rhs = rhs[(slice(None),) * j + (slice(size),)]
    return lhs, rhs


def matrix_product(lhs: Array, rhs: Array) -> Array:
    """Return ``lhs @ rhs`` of batches of matrices in an accumulation type: integers wrap, pred is or-and."""
    terms = lhs.shape[-1]
    with np.errstate(all="ignore"):
        if lhs.dtype.kind in "fc" and 0 < terms <= SHORT_SUM:
            total = lhs[..., :, :1] * rhs[..., :1, :]
            for k in range(1, terms):
                total += lhs[..., :, k, None] * rhs[..., None, k, :]
            return total
        if lhs.dtype.kind in "iu" and lhs.size and rhs.size:
            # Integers small enough go through the floating-point product, which is exact for them and faster.
            largest = _magnitude(lhs) * _magnitude(rhs) * terms
            if largest < 2**53:
                product = np.matmul(lhs.astype(np.float64), rhs.astype(np.float64))
                return product.astype(np.int64).astype(lhs.dtype)
        return np.matmul(lhs, rhs)


def _magnitude(array: Array) -> int:
    return max(abs(int(array.max())), abs(int(array.min())))


# -- dimension numbers


class _Contraction(Operation):
    """Common to the dots: batch and contracting dimensions."""

    family: ClassVar[Family] = Family.CONTRACTION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.ACCUMULATED
    errors = sum_of_products
    __slots__ = ()
    lhs_batch_dims: tuple[int, ...]
    lhs_contracting_dims: tuple[int, ...]
    rhs_batch_dims: tuple[int, ...]
    rhs_contracting_dims: tuple[int, ...]

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count a multiplication and an addition for each product; four of each for complex numbers."""
        scale = 4 if shape.is_array and shape.element_type.is_complex else 1
        contracted = math.prod(operands[0].dimensions[d] for d in self.lhs_contracting_dims)
        return 2.0 * scale * shape_elements(shape) * contracted

    def free_dims(self, lhs: Shape, rhs: Shape) -> tuple[list[int], list[int]]:
        """Return each operand's dimensions that are neither batch nor contracting; refuse invalid ones."""
        opcode = self.opcode
        for name, shape in (("lhs", lhs), ("rhs", rhs)):
            if not shape.is_array:
                raise ShapeError(f"{opcode} takes arrays, {name} is {shape}", rule=f"{opcode}.operand-arrays")
        lhs_free = self._free(lhs, "lhs", self.lhs_batch_dims, self.lhs_contracting_dims)
        right = self._free(rhs, "rhs", self.rhs_batch_dims, self.rhs_contracting_dims)
        for kind, one, other in (
            ("batch", self.lhs_batch_dims, self.rhs_batch_dims),
            ("contracting", self.lhs_contracting_dims, self.rhs_contracting_dims),
        ):
            if len(one) != len(other):
                message = f"lhs has {len(one)} {kind} dimensions, rhs has {len(other)}"
                raise ShapeError(message, rule=f"{opcode}.{kind}-count")
            for i, j in zip(one, other):
                if not same_size(lhs, i, rhs, j):
                    message = f"{kind} dimension {i} of {lhs} and {j} of {rhs} have different sizes"
                    raise ShapeError(message, rule=f"{opcode}.{kind}-sizes")
        return lhs_free, right

    def _free(
        self, shape: Shape, name: str, batch: tuple[int, ...], contracting: tuple[int, ...]
    ) -> list[int]:
        used = [*batch, *contracting]
        for dimension in used:
            if not 0 <= dimension < shape.rank:
                message = f"dimension {dimension} is out of range in {name} of shape {shape}"
                raise ShapeError(message, rule=f"{self.opcode}.dimension-range")
        if len(set(used)) != len(used):
            message = (
                f"batch and contracting dimensions of {name} must be distinct, got {batch} and {contracting}"
            )
            raise ShapeError(message, rule=f"{self.opcode}.dimensions-distinct")
        return [i for i in range(shape.rank) if i not in used]

    def dot_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        """Return batch dimensions, then the free dimensions of lhs and rhs."""
        lhs_free, rhs_free = self.free_dims(lhs, rhs)
        return self.joined_shape(lhs, rhs, lhs_free, rhs_free)

    def joined_shape(
        self, lhs: Shape, rhs: Shape, lhs_free: Sequence[int], rhs_free: Sequence[int], *groups: Shape
    ) -> Shape:
        """Return groups (the last dimension of their sizes), batch, and free dimensions."""
        places = [(sizes, sizes.rank - 1) for sizes in groups]
        places += [(lhs, i) for i in [*self.lhs_batch_dims, *lhs_free]] + [(rhs, j) for j in rhs_free]
        return Shape(
            joint_precision(lhs.element_type, rhs.element_type),
            tuple(shape.dimensions[i] for shape, i in places),
            tuple(shape.dynamic_dimensions[i] for shape, i in places),
        )

    def terms(self, *operands: Sequence[int]) -> int:
        """Return the number of products that are summed for one element of the result."""
        return math.prod(operands[0][d] for d in self.lhs_contracting_dims)

    def dot(self, lhs: Array, rhs: Array) -> Array:
        """Return the contraction of arrays of one accumulation type."""
        lhs_batch, rhs_batch = self.lhs_batch_dims, self.rhs_batch_dims
        lhs_inner, rhs_inner = self.lhs_contracting_dims, self.rhs_contracting_dims
        lhs, rhs = meet(lhs, rhs, zip((*lhs_batch, *lhs_inner), (*rhs_batch, *rhs_inner)))
        lhs_free = [i for i in range(lhs.ndim) if i not in (*lhs_batch, *lhs_inner)]
        right = [i for i in range(rhs.ndim) if i not in (*rhs_batch, *rhs_inner)]
        batch, rows, columns = _sizes(lhs, lhs_batch), _sizes(lhs, lhs_free), _sizes(rhs, right)
        b, m, n, k = math.prod(batch), math.prod(rows), math.prod(columns), self.terms(lhs.shape)
        a = lhs.transpose(*lhs_batch, *lhs_free, *lhs_inner).reshape(b, m, k)
        c = rhs.transpose(*rhs_batch, *rhs_inner, *right).reshape(b, k, n)
        return matrix_product(a, c).reshape(batch + rows + columns)

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check dimensions; the result may have the wider type to which the sums are rounded."""
        check_result_type(self.opcode, self.infer(*operands), shape)


def _sizes(array: Array, dimensions: Sequence[int]) -> tuple[int, ...]:
    return tuple(array.shape[i] for i in dimensions)


# -- the operations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered(_Contraction):
    """Common to dot and scaled-dot."""

    lhs_batch_dims: tuple[int, ...] = dims(default=(), proto="dot_dimension_numbers.lhs_batch_dimensions")
    lhs_contracting_dims: tuple[int, ...] = dims(
        default=(), always=True, proto="dot_dimension_numbers.lhs_contracting_dimensions"
    )
    rhs_batch_dims: tuple[int, ...] = dims(default=(), proto="dot_dimension_numbers.rhs_batch_dimensions")
    rhs_contracting_dims: tuple[int, ...] = dims(
        default=(), always=True, proto="dot_dimension_numbers.rhs_contracting_dimensions"
    )
    operand_precision: tuple[str, ...] = operand_precision()
    algorithm: str = dot_algorithm()


@operation("dot", "lhs rhs")
class Dot(_Numbered):
    """Sums of products of ``lhs`` and ``rhs`` over pairs of dimensions.

    The result has the batch dimensions (in the order given), then the remaining dimensions of ``lhs``,
    then those of ``rhs``. Its element type may be stated wider than that of the operands:
    ``s32[2,2] dot(s8[2,3], s8[3,2])``.

    Arguments:
        lhs, rhs: arrays; types may differ, the joint type is complex before float before integer, then the
            wider.
        lhs_batch_dims, rhs_batch_dims: dimensions of equal size that index independent products.
        lhs_contracting_dims, rhs_contracting_dims: dimensions of equal size that are summed over.
        operand_precision, algorithm: how inexact a device may be; the evaluation makes no use of it.
    """

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return batch dimensions, free ones, and contracted ones, of which devices have summands."""
        lhs, rhs = operands[:2]
        factors: list[Factor] = []
        batches = list(zip(self.lhs_batch_dims, self.rhs_batch_dims, strict=True))
        contracted = list(zip(self.lhs_contracting_dims, self.rhs_contracting_dims, strict=True))
        for number, (lhs_dimension, rhs_dimension) in enumerate(batches):
            factors.append(
                Factor(lhs.dimensions[lhs_dimension], {0: lhs_dimension, 1: rhs_dimension}, number)
            )
        result_dimension = len(batches)
        for operand, shape in enumerate((lhs, rhs)):
            bound = {pair[operand] for pair in (*batches, *contracted)}
            for d, extent in enumerate(shape.dimensions):
                if d not in bound:
                    factors.append(Factor(extent, {operand: d}, result_dimension))
                    result_dimension += 1
        for lhs_dimension, rhs_dimension in contracted:
            factors.append(
                Factor(lhs.dimensions[lhs_dimension], {0: lhs_dimension, 1: rhs_dimension}, None, Add())
            )
        return factors

    def accumulation(
        self, x: Addressing[Condition], i: HloInstruction, indices: Indices
    ) -> Accumulation[Condition]:
        """Loop over the contracted dimensions."""
        lhs, rhs = i.operands
        extents = tuple(lhs.shape.dimensions[d] for d in self.lhs_contracting_dims)
        count, free = len(self.lhs_batch_dims), lhs.shape.rank - len(extents)

        def terms(position: Indices) -> list[Read[Condition]]:
            bound = (*indices[:count], *position)
            left = _bound((*self.lhs_batch_dims, *self.lhs_contracting_dims), bound, indices[count:free])
            right = _bound((*self.rhs_batch_dims, *self.rhs_contracting_dims), bound, indices[free:])
            return [Read(lhs, left), Read(rhs, right)]

        return Accumulation(extents, terms, unrolled=x.unrolls)

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        """Return batch dimensions, then the free dimensions of lhs and rhs."""
        return self.dot_shape(lhs, rhs)

    def evaluate(self, run: Run, lhs: Array, rhs: Array) -> Array:
        """Contract in the accumulation type, round to the result's type."""
        lhs, rhs = summands(run.shape.element_type, lhs, rhs, self.terms(lhs.shape))
        return convert(self.dot(lhs, rhs), run.dtype)


def _bound(dimensions: Sequence[int], indices: Indices, free: Indices) -> Indices:
    """Return the index of an operand from those of some dimensions, and of the others in order."""
    bound, others = dict(zip(dimensions, indices, strict=True)), iter(free)
    return tuple(bound[d] if d in bound else next(others) for d in range(len(indices) + len(free)))


RAGGED: Final = "ragged_dot_dimension_numbers."


@operation("ragged-dot", "lhs rhs group_sizes")
class RaggedDot(_Contraction):
    """A dot with one dimension divided into groups of different sizes.

    The groups are consecutive ranges of the one ragged dimension of ``lhs``; elements after the last
    group belong to no group. The kind of the ragged dimension determines the computation:

    - a free dimension [m] of lhs: every group is multiplied with its own ``rhs``; rhs has a group
      dimension [g], and ``[b,m,k] x [g,b,k,n] -> [b,m,n]``. Rows that belong to no group are zero;
    - a contracting dimension [k]: every group gives its own product, ``[b,m,k] x [b,k,n] -> [g,b,m,n]``;
    - a batch dimension [b]: the groups do not change the product, ``[b,m,k] x [b,k,n] -> [b,m,n]``;
      entries that belong to no group are zero.

    Arguments:
        lhs, rhs: arrays as for ``dot``.
        group_sizes: integers ``[g]``, or ``[..., g]`` with the batch dimensions and then the dimensions of
            the ragged one's own kind that come before it, so that each has groups of its own.
        lhs_ragged_dims: the one ragged dimension of lhs.
        rhs_group_dims: the one group dimension of rhs where the ragged dimension is free, else nothing.
        operand_precision: how inexact a device may be; the evaluation makes no use of it.
    """

    lhs_batch_dims: tuple[int, ...] = dims(
        default=(), proto=RAGGED + "dot_dimension_numbers.lhs_batch_dimensions"
    )
    lhs_contracting_dims: tuple[int, ...] = dims(
        default=(), always=True, proto=RAGGED + "dot_dimension_numbers.lhs_contracting_dimensions"
    )
    rhs_batch_dims: tuple[int, ...] = dims(
        default=(), proto=RAGGED + "dot_dimension_numbers.rhs_batch_dimensions"
    )
    rhs_contracting_dims: tuple[int, ...] = dims(
        default=(), always=True, proto=RAGGED + "dot_dimension_numbers.rhs_contracting_dimensions"
    )
    lhs_ragged_dims: tuple[int, ...] = dims(default=(), proto=RAGGED + "lhs_ragged_dimensions")
    rhs_group_dims: tuple[int, ...] = dims(default=(), proto=RAGGED + "rhs_group_dimensions")
    operand_precision: tuple[str, ...] = operand_precision()

    def infer(self, lhs: Shape, rhs: Shape, group_sizes: Shape) -> Shape:
        """Return the dot's shape, with a leading group dimension if the ragged dimension is contracted."""
        lhs_free, rhs_free = self.free_dims(lhs, rhs)
        ragged = self._ragged(lhs)
        is_free = ragged in lhs_free
        if len(self.rhs_group_dims) != int(is_free):
            message = f"rhs needs {int(is_free)} group dimensions, got {self.rhs_group_dims}"
            raise ShapeError(message, rule="ragged-dot.group-dims")
        groups = self._groups(lhs, group_sizes, lhs_free)
        if is_free:
            group_dim = self.rhs_group_dims[0]
            if group_dim not in rhs_free:
                message = (
                    f"group dimension {group_dim} of rhs is out of range or a batch or contracting dimension"
                )
                raise ShapeError(message, rule="ragged-dot.group-dim-free")
            if groups not in (rhs.dimensions[group_dim], Shape.UNBOUNDED):
                message = f"group dimension {group_dim} of {rhs} needs the size {groups} that group_sizes has"
                raise ShapeError(message, rule="ragged-dot.group-count")
            rhs_free = [i for i in rhs_free if i != group_dim]
        leading = (group_sizes,) if ragged in self.lhs_contracting_dims else ()
        return self.joined_shape(lhs, rhs, lhs_free, rhs_free, *leading)

    def _ragged(self, lhs: Shape) -> int:
        if len(self.lhs_ragged_dims) != 1:
            message = f"lhs needs exactly one ragged dimension, got {self.lhs_ragged_dims}"
            raise ShapeError(message, rule="ragged-dot.one-ragged-dim")
        ragged = self.lhs_ragged_dims[0]
        if not 0 <= ragged < lhs.rank:
            message = f"ragged dimension {ragged} is out of range in {lhs}"
            raise ShapeError(message, rule="ragged-dot.ragged-dim-range")
        return ragged

    def _prefix(self, free: Sequence[int]) -> list[int]:
        """Return the dimensions of lhs that group sizes may depend on."""
        ragged = self.lhs_ragged_dims[0]
        if ragged in self.lhs_batch_dims:
            return list(self.lhs_batch_dims[: self.lhs_batch_dims.index(ragged)])
        kin = self.lhs_contracting_dims if ragged in self.lhs_contracting_dims else tuple(free)
        return [*self.lhs_batch_dims, *kin[: kin.index(ragged)]]

    def _groups(self, lhs: Shape, group_sizes: Shape, free: list[int]) -> int:
        if not group_sizes.is_array or not group_sizes.element_type.is_integer:
            message = f"group_sizes must be integers, got {group_sizes}"
            raise ShapeError(message, rule="ragged-dot.group-sizes-type")
        prefix = self._prefix(free)
        if group_sizes.rank not in (1, len(prefix) + 1):
            message = f"group_sizes must have rank 1 or {len(prefix) + 1}, got {group_sizes}"
            raise ShapeError(message, rule="ragged-dot.group-sizes-rank")
        prefix_sizes = tuple(lhs.dimensions[i] for i in prefix)
        if group_sizes.rank > 1 and group_sizes.dimensions[:-1] != prefix_sizes:
            message = f"group_sizes must begin with the sizes {prefix_sizes}, got {group_sizes}"
            raise ShapeError(message, rule="ragged-dot.group-sizes-dimensions")
        return group_sizes.dimensions[-1]

    def evaluate(self, run: Run, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        """Compute one dot per group; select the group's elements, so that NaN outside it does not matter."""
        lhs, rhs = summands(run.shape.element_type, lhs, rhs, self.terms(lhs.shape))
        zero = np.zeros((), lhs.dtype)
        ragged = self.lhs_ragged_dims[0]
        member = self._membership(lhs, group_sizes)
        if ragged in self.lhs_contracting_dims:
            products = [
                self.dot(np.where(inside, lhs, zero), np.where(self._in_rhs(inside, rhs.ndim), rhs, zero))
                for inside in member
            ]
            return convert(np.stack(products) if products else self._no_groups(lhs, rhs), run.dtype)
        if ragged in self.lhs_batch_dims:
            product = self.dot(lhs, rhs)
            inside = self._in_result(np.asarray(member.any(axis=0)), product.ndim)
            return convert(np.where(inside, product, zero), run.dtype)
        return convert(self._by_group(member, lhs, rhs, zero), run.dtype)

    def _by_group(self, member: Array, lhs: Array, rhs: Array, zero: Array) -> Array:
        """Return the result for groups of rows, each with a separate kernel."""
        group_dim = self.rhs_group_dims[0]
        plain = self.replace(
            rhs_batch_dims=tuple(i - (i > group_dim) for i in self.rhs_batch_dims),
            rhs_contracting_dims=tuple(i - (i > group_dim) for i in self.rhs_contracting_dims),
        )
        result: Array = np.zeros(
            plain.dot(lhs, np.zeros_like(rhs, shape=_without(rhs.shape, group_dim))).shape, zero.dtype
        )
        for inside, kernel in zip(member, np.moveaxis(rhs, group_dim, 0)):
            result = np.where(self._in_result(inside, result.ndim), plain.dot(lhs, kernel), result)
        return result

    def _no_groups(self, lhs: Array, rhs: Array) -> Array:
        return np.zeros((0, *self.dot(lhs, rhs).shape), lhs.dtype)

    def _membership(self, lhs: Array, group_sizes: Array) -> Array:
        """Return per group the mask of its elements of lhs, of size 1 along irrelevant dimensions."""
        used = (*self.lhs_batch_dims, *self.lhs_contracting_dims)
        ragged = self.lhs_ragged_dims[0]
        sizes = group_sizes.astype(np.int64)
        ends = np.cumsum(sizes, axis=-1)
        index = cast(Array, np.arange(lhs.shape[ragged]))
        inside = (index >= (ends - sizes)[..., None]) & (index < ends[..., None])
        prefix = self._prefix([i for i in range(lhs.ndim) if i not in used]) if group_sizes.ndim > 1 else []
        order = [*prefix, ragged]
        inside = np.moveaxis(inside, -2, 0).transpose(0, *(1 + i for i in np.argsort(order)))
        return inside.reshape(inside.shape[0], *(lhs.shape[i] if i in order else 1 for i in range(lhs.ndim)))

    def _in_result(self, inside: Array, rank: int) -> Array:
        """Map a mask over lhs, constant along the contracting dimensions, to the result."""
        batch, inner = self.lhs_batch_dims, self.lhs_contracting_dims
        free = [i for i in range(inside.ndim) if i not in (*batch, *inner)]
        outer = inside.transpose(*batch, *free, *inner)[(..., *(0 for _ in inner))]
        return outer.reshape(outer.shape + (1,) * (rank - outer.ndim))

    def _in_rhs(self, inside: Array, rank: int) -> Array:
        """Map a mask over lhs, constant along the free dimensions, to rhs."""
        shared = (*self.lhs_batch_dims, *self.lhs_contracting_dims)
        free = [i for i in range(inside.ndim) if i not in shared]
        mask = inside.transpose(*shared, *free)[(..., *(0 for _ in free))]
        places = (*self.rhs_batch_dims, *self.rhs_contracting_dims)
        order = sorted(range(len(places)), key=lambda i: places[i])
        sizes = dict(zip(places, mask.shape))
        return mask.transpose(order).reshape([sizes.get(i, 1) for i in range(rank)])


def _without(sizes: tuple[int, ...], dimension: int) -> tuple[int, ...]:
    return sizes[:dimension] + sizes[dimension + 1 :]


@operation("scaled-dot", "lhs lhs_scale rhs rhs_scale")
class ScaledDot(_Numbered):
    """The dot of two operands in block-scaled formats: ``dot(lhs * lhs_scale, rhs * rhs_scale)``.

    A scale has the rank of its operand and divides its sizes: it holds for a block of neighbours in every
    dimension (32 along the contracting dimension in the MX formats). A scalar scale stands for 1.

    Arguments:
        lhs, rhs: arrays as for ``dot``, such as f8e4m3fn or f4e2m1fn.
        lhs_scale, rhs_scale: arrays of scales, such as f8e8m0fnu.
        lhs_batch_dims, lhs_contracting_dims, rhs_batch_dims, rhs_contracting_dims: as for ``dot``.
        operand_precision, algorithm: how inexact a device may be; the evaluation makes no use of it.
    """

    def infer(self, lhs: Shape, lhs_scale: Shape, rhs: Shape, rhs_scale: Shape) -> Shape:
        """Return the dot's shape; check that scales divide their operands."""
        result = self.dot_shape(lhs, rhs)
        for name, operand, scale in (("lhs", lhs, lhs_scale), ("rhs", rhs, rhs_scale)):
            if not scale.is_array or not (
                scale.element_type.is_floating and operand.element_type.is_floating
            ):
                message = f"{name} and its scale must be floats, got {operand} and {scale}"
                raise ShapeError(message, rule="scaled-dot.element-type")
            if scale.is_scalar:
                continue
            if scale.rank != operand.rank or any(
                s < 1 or d % s for s, d in zip(scale.dimensions, operand.dimensions) if s != d
            ):
                message = f"the scale {scale} does not divide {name} of shape {operand}"
                raise ShapeError(message, rule="scaled-dot.scale-divides")
        return result

    def evaluate(self, run: Run, lhs: Array, lhs_scale: Array, rhs: Array, rhs_scale: Array) -> Array:
        """Scale in f64, where scaling is exact, contract, round once."""
        return convert(self.dot(_scaled(lhs, lhs_scale), _scaled(rhs, rhs_scale)), run.dtype)


def _scaled(operand: Array, scale: Array) -> Array:
    """Multiply every element by the scale of its block, in f64."""
    values, factors = operand.astype(np.float64), scale.astype(np.float64)
    if factors.ndim == 0:
        return values
    for axis, (size, blocks) in enumerate(zip(values.shape, factors.shape)):
        factors = np.repeat(factors, size // blocks if blocks else 1, axis=axis)
    return values * factors
