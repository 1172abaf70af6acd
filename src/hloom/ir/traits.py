"""Traits: facts on an operation that analyses, passes, planning and code generation ask for.

A fact that belongs to an operation is stated once, in its declaration. Nothing outside `hloom.operations`
keeps tables of opcodes: a new operation states its traits and takes part everywhere.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeAlias

from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape


class Family(enum.Enum):
    """The kind of data flow of an operation."""

    ELEMENTWISE = "elementwise"
    """Each result element depends on the operands' elements of the same index."""
    MOVEMENT = "movement"
    """Result elements are operand elements in other places, or their bits."""
    CONTRACTION = "contraction"
    """Sums of products."""
    COMBINATION = "combination"
    """A called computation combines elements: reductions, windows, scatters, sorts, maps, scans."""
    LINEAR_ALGEBRA = "linear algebra"
    """Factorizations, solves and Fourier transforms of whole matrices or lines."""
    NORMALIZATION = "normalization"
    """Batch normalization."""
    RANDOM = "random"
    """Random numbers and their state."""
    STRUCTURE = "structure"
    """Parameters, constants, tuples, tokens, barriers, sizes: nothing is computed or moved."""
    CONTROL = "control"
    """Computations run on whole values: calls, loops, branches, fusions, asynchronous calls."""
    COLLECTIVE = "collective"
    """Devices exchange data."""
    TRANSFER = "transfer"
    """Data goes to or comes from the host or a channel."""
    CUSTOM = "custom"
    """Code that hloom does not see."""


class ElementCost(enum.IntEnum):
    """The work for one result element whose operand elements are in registers."""

    FREE = 0
    """None: the element is a load at an affine index, or nothing at all."""
    INDEXED = 1
    """Index arithmetic or a bounds check, then a load."""
    CHEAP = 2
    """One to three instructions of low latency."""
    MODERATE = 3
    """One instruction of high latency: division, square root."""
    TRANSCENDENTAL = 4
    """About twelve dependent instructions: a polynomial with range reduction."""
    COMBINED = 5
    """A loop over operand elements for each result element."""


class Traits:
    """The traits of an operation; `Operation` inherits them, families and operations state them.

    ``family`` and ``element_cost`` have no default: a test wants both from every operation.
    """

    __slots__ = ()
    family: ClassVar[Family]
    element_cost: ClassVar[ElementCost]
    elementwise: ClassVar[bool] = False
    """Each result element depends on the operand elements of the same index only; evaluate broadcasts."""
    side_effect: ClassVar[bool] = False
    """The operation must run although nothing uses its result."""
    communicates: ClassVar[bool] = False
    """The operation waits for, or sends to, another device or the host."""
    calls_program: ClassVar[bool] = False
    """Called computations run on whole values, as parts of the program: while, conditional, call."""
    distinct: ClassVar[bool] = False
    """Equal instructions must stay apart: their values may differ, or each stands for itself."""
    commutative: ClassVar[bool] = False
    """The two operands may be exchanged without changing a bit of the result, payloads of NaN aside."""
    idempotent: ClassVar[bool] = False
    """Combining a value any number of times, in any order, gives the same bits: maximum, minimum, and, or."""
    transcendental: ClassVar[bool] = False
    """Counted as a transcendental function, as in XLA's HloCostAnalysis, not as one flop."""
    aliases_operand: ClassVar[bool] = False
    """The result may share the memory of operand 0: both have the same row-major bytes."""
    updates_operand: ClassVar[bool] = False
    """The result is operand 0 with some elements replaced, so it may be computed in place."""
    reads_layout: ClassVar[bool] = False
    """The layout of the operands in memory is visible to the operation."""
    scalar_identity: ClassVar[bool] = False
    """On a scalar, the result is operand 0."""
    index_mapped: ClassVar[bool] = False
    """Each result element is the element of operand 0 at an index that is an affine map of the result's."""
    never_negative_zero: ClassVar[bool] = False
    """No element of a floating-point result is -0, whatever the operands are."""
    begun_by: ClassVar[tuple[str, ...]] = ()
    """Opcodes that may begin the asynchronous operation that this one continues or ends."""
    pending_index: ClassVar[tuple[int, ...] | None] = None
    """Where the value in flight lies in the result of a start, or in the operand of a done."""

    def element_sources(self, operand_count: int) -> Sequence[int]:
        """Return the operands whose elements the result's are; empty if elements are computed."""
        return ()

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return bounds of the result, before it wraps, from those of the operands; None if unknown."""
        return None

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return e with ``op(e, x) = x`` for every x of the type, bit for bit; None if there is none."""
        return None

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Return the additions, multiplications, comparisons and the like of one run.

        Args:
            shape: of the result.
            operands: shapes of the operands.
            applied: flops of one application of the called computation, where elements are combined by one.
        """
        return 0.0

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Return the bytes read and written by one run that is not fused with others."""
        return shape_bytes(shape) + sum(map(shape_bytes, operands))

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        """Return the parameter types of the computations applied to elements, one entry for each computation.

        Empty for operations that apply no computation to elements.
        """
        return ()


Range: TypeAlias = tuple[int, int]
"""The least and the greatest value of integers."""


class AppliedTypes(NamedTuple):
    """The types of a computation that is applied to elements.

    Attributes:
        parameters: types of its parameters.
        is_order: it gives pred; otherwise its results have the types of the instruction's.
    """

    parameters: tuple[ElementType, ...]
    is_order: bool = False


def shape_bytes(shape: Shape) -> int:
    """Return the bytes of all arrays of a shape, padding included; 0 for arrays without a bound."""
    if shape.is_tuple:
        return sum(map(shape_bytes, shape.tuple_shapes))
    return shape.byte_size if shape.is_array and not shape.is_unbounded else 0


def shape_elements(shape: Shape) -> int:
    """Return the elements of an array, or of the first array of a tuple; 0 without a bound."""
    if shape.is_tuple:
        return shape_elements(shape.tuple_shapes[0]) if shape.tuple_shapes else 0
    return shape.element_count if shape.is_array and not shape.is_unbounded else 0
