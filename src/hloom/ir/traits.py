"""Traits: facts about an operation that analyses, passes, planning and code generation use.

A fact about an operation is stated once, in its declaration. Nothing outside `hloom.operations` keeps tables
of opcodes, so a new operation is supported everywhere once it states its traits.
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
    """Result elements are operand elements at other positions, or their bits."""
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
    """Calls of code outside the program."""


class ElementCost(enum.IntEnum):
    """The work for one result element whose operand elements are in registers."""

    FREE = 0
    """None: the element is a load at an affine index, or needs no instruction."""
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


class Roundoff(enum.Enum):
    """The rounding errors that an operation itself adds, of operands without errors."""

    NONE = "none"
    """Nothing is rounded here; what a called computation rounds, or the program does, is counted there."""
    ONCE = "once"
    """The exact result is rounded once: all correct computations give equal bits."""
    FUNCTION = "function"
    """The result is within a few units in the last place."""
    COMBINED = "combined"
    """A called computation combines elements in any order: it rounds if that computation does."""
    ACCUMULATED = "accumulated"
    """As many roundings as terms; `Operation.errors` bounds them."""
    UNKNOWN = "unknown"
    """No bound is known."""


class LayoutSource(enum.Enum):
    """The layout of a result whose shape the text does not state, by the convention of XLA's parser."""

    DEFAULT = "default"
    """The default layout."""
    INFERRED = "inferred"
    """The layouts that the shape rule gives."""
    OPERANDS = "operands"
    """The layouts of the operands, element by element of a tuple; of the first operand for an array."""
    SECOND_OPERAND = "second operand"
    """The layout of operand 1."""


class Traits:
    """The traits of an operation, inherited by `Operation` and stated by families and operations.

    A test requires ``family``, ``element_cost`` and ``roundoff`` of every operation.
    """

    __slots__ = ()
    family: ClassVar[Family]
    element_cost: ClassVar[ElementCost]
    roundoff: ClassVar[Roundoff] = Roundoff.UNKNOWN
    elementwise: ClassVar[bool] = False
    """Each result element depends on the operand elements of the same index only; evaluate broadcasts."""
    side_effect: ClassVar[bool] = False
    """The operation must run even if its result is unused."""
    communicates: ClassVar[bool] = False
    """The operation waits for, or sends to, another device or the host."""
    calls_program: ClassVar[bool] = False
    """Called computations run on whole values, as parts of the program: while, conditional, call."""
    distinct: ClassVar[bool] = False
    """Equal instructions must not be merged: their values may differ, or each has a meaning of its own."""
    commutative: ClassVar[bool] = False
    """The operands may be exchanged without changing a bit of the result, except for NaN payloads."""
    idempotent: ClassVar[bool] = False
    """Combining a value any number of times, in any order, gives the same bits: maximum, minimum, and, or."""
    transcendental: ClassVar[bool] = False
    """Counted as a transcendental function, as in XLA's HloCostAnalysis, not as one flop."""
    often_underflows: ClassVar[bool] = False
    """Results are often subnormal, or so large that quotients by them are."""
    aliases_operand: ClassVar[bool] = False
    """The result may share the memory of operand 0: both have the same row-major bytes."""
    updates_operand: ClassVar[bool] = False
    """The result is operand 0 with some elements replaced, so it may be computed in place."""
    configured: ClassVar[bool] = False
    """The value depends on the backend config and the frontend attributes of the instruction."""
    reads_layout: ClassVar[bool] = False
    """The result depends on the layout of the operands in memory."""
    layout_source: ClassVar[LayoutSource] = LayoutSource.DEFAULT
    """Source of the result's layout if the text states no shape."""
    scalar_identity: ClassVar[bool] = False
    """On a scalar, the result is operand 0."""
    never_negative_zero: ClassVar[bool] = False
    """No element of a floating-point result is -0, whatever the operands are."""
    copied_operands: ClassVar[tuple[int, ...]] = ()
    """The operands that result elements are copied from, where their number is fixed."""
    begun_by: ClassVar[tuple[str, ...]] = ()
    """Opcodes that may begin the asynchronous operation that this one continues or ends."""
    pending_index: ClassVar[tuple[int, ...] | None] = None
    """The index of the value in flight in the result of a start, or in the operand of a done."""

    def element_sources(self, operand_count: int) -> Sequence[int]:
        """Return the operands that result elements are copied from; empty if elements are computed."""
        return self.copied_operands

    def value_range(self, element_type: ElementType, *ranges: Range) -> Range | None:
        """Return bounds of the result before it wraps, given those of the operands; None if unknown."""
        return None

    def neutral_element(self, element_type: ElementType) -> float | int | None:
        """Return e with ``op(e, x) = x`` bit for bit for every x of the type, or None if there is none."""
        return None

    def leading_of_operands(self, leading: int, rank: int) -> int | None:
        """Return how the operands are read where the result is read at an index, in order.

        Args:
            leading: the number of leading dimensions of the result that have indices of their own; the others
                have one linear index.
            rank: of the result.

        Returns:
            the same number for the operands, which are read at the same linear index; their rank if no
            linear index is needed; None if they are read otherwise.
        """
        if self.elementwise:
            return leading
        return 0 if self.aliases_operand else None

    def loop_dimensions(self, shape: Shape) -> Sequence[int]:
        """Return the dimensions of a result, divided where elements at a regular distance are alike."""
        return shape.dimensions

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Return the number of additions, multiplications, comparisons and similar operations of one run.

        Args:
            shape: shape of the result.
            operands: shapes of the operands.
            applied: flops of one application of the called computation, if one is applied to elements.
        """
        return 0.0

    def traffic(self, shape: Shape, *operands: Shape) -> int:
        """Return the bytes read and written by one run that is not fused with other instructions."""
        if self.family is Family.STRUCTURE:
            return 0
        return shape_bytes(shape) + sum(map(shape_bytes, operands))

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the largest number of values combined into one result element.

        Args:
            operands: the sizes of each operand.
        """
        return 1.0

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
        is_order: the result is pred; otherwise its results have the types of the instruction's.
    """

    parameters: tuple[ElementType, ...]
    is_order: bool = False


def shape_bytes(shape: Shape) -> int:
    """Return the bytes of all arrays of a shape, padding included; 0 for arrays without a bound."""
    if shape.is_tuple:
        return sum(map(shape_bytes, shape.tuple_shapes))
    return shape.byte_size if shape.is_array and not shape.is_unbounded else 0


def shape_elements(shape: Shape) -> int:
    """Return the number of elements of an array, or of the first array of a tuple; 0 without a bound."""
    if shape.is_tuple:
        return shape_elements(shape.tuple_shapes[0]) if shape.tuple_shapes else 0
    return shape.element_count if shape.is_array and not shape.is_unbounded else 0
