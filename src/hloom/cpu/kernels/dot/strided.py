"""Views (slices, reshapes, transposes in a fusion; parts of arrays read in place) as strides into arrays."""

from __future__ import annotations

from hloom.analysis.subviews import Subview
from hloom.analysis.updates import Leaf, origin
from hloom.ir.affine import Index, Variable, delinearize, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Multiply, Subtract
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.movement import Slice, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Parameter
from hloom.passes.layout.product_views import factor_operand, is_factor_view
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


@dataclass(frozen=True, slots=True)
class Strided:
    """An array whose elements lie at strides inside a different array, such as a transpose of a slice.

    Attributes:
        source: the instruction whose dense row-major array holds the elements.
        offset: elements of the source before the first element.
        strides: the distance in the source, in elements, between neighbours along each dimension.
        packed: the 4-bit type of the elements if each byte of the source holds two of them, else None.
        group: the number of consecutive elements, along one dimension, that share a scale; 0 if there are
            no scales.
    """

    source: HloInstruction
    offset: int
    strides: tuple[int, ...]
    packed: ElementType | None = None
    group: int = 0

    @property
    def element_type(self) -> ElementType:
        """Return the type of the elements as they are stored in memory."""
        return self.packed or self.source.shape.element_type


def read_through(i: HloInstruction, *, computed: bool = False) -> Strided | None:
    """Return where the elements of ``i`` lie in the array that ``i`` is a view of, if at constant strides.

    The array is found through slices, reshapes, transposes and lossless converts. With ``computed``, also
    through lossy converts and dequantization by groups, ``(q - zero) * scale``; the strides are then those of
    q. Return None if the strides are not constant.
    """
    variables = [Variable(size) for size in i.shape.dimensions]
    indices: tuple[Index, ...] | None = tuple(map(Index.of, variables))
    linear, packed, group = linearize(indices, i.shape.dimensions), None, 0
    while (source := factor_operand(i)) is not None and (computed or is_factor_view(i)):
        match i.operation:
            case Convert() if is_factor_view(i):
                pass
            case Multiply() | Add() | Subtract() | Convert():
                rows = i.shape.dimensions[-2] if i.shape.rank > 1 else 1
                group = group or rows
            case BitcastConvert():
                packed, indices = i.shape.element_type, None
            case Slice(slice=ranges) if indices is not None and packed is None:
                indices = tuple(
                    index * part.stride + part.start for index, part in zip(indices, ranges, strict=True)
                )
                linear = linearize(indices, source.shape.dimensions)
            case Transpose(dimensions=permutation) if indices is not None and packed is None:
                places = dict(zip(permutation, indices, strict=True))
                indices = tuple(places[d] for d in range(source.shape.rank))
                linear = linearize(indices, source.shape.dimensions)
            case Reshape():
                indices = delinearize(linear, source.shape.dimensions) if packed is None else None
            case _:
                return None
        i = source
    return _strided(i, linear, variables, packed, group)


def written_through(dot: HloInstruction, root: HloInstruction) -> Strided | None:
    """Return the strides with which the elements of ``dot`` lie in ``root``; None if they are not constant.

    Return None also if ``root`` is computed from the dot by operations besides reshapes and transposes.
    """
    chain: list[HloInstruction] = []
    while root is not dot:
        if not isinstance(root.operation, Reshape | Transpose):
            return None
        chain.append(root)
        (root,) = root.operands
    variables = [Variable(size) for size in dot.shape.dimensions]
    indices: tuple[Index, ...] = tuple(map(Index.of, variables))
    dimensions = dot.shape.dimensions
    for i in reversed(chain):
        if isinstance(i.operation, Transpose):
            indices = tuple(indices[d] for d in i.operation.dimensions)
        else:
            result_indices = delinearize(linearize(indices, dimensions), i.shape.dimensions)
            if result_indices is None:
                return None
            indices = result_indices
        dimensions = i.shape.dimensions
    return _strided(dot, linearize(indices, dimensions), variables)


def _strided(
    source: HloInstruction,
    linear: Index,
    variables: list[Variable],
    packed: ElementType | None = None,
    group: int = 0,
) -> Strided:
    terms = dict(linear.terms)
    return Strided(source, linear.constant, tuple(terms.get(v, 0) for v in variables), packed, group)


def is_argument(array: HloInstruction) -> bool:
    """Return whether ``array`` is a parameter of its computation, or a slice of one that is read in place."""
    leaf, _ = origin(array)
    return isinstance(sliced_array(leaf)[0].operation, Parameter)


def sliced_array(slice: HloInstruction) -> Leaf:
    """Return the (instruction, shape index) of the whole array of which ``slice`` is a part."""
    leaf, index = slice, ()
    while leaf.annotation(Subview) is not None:
        leaf, index = origin(leaf.operands[0])
    return leaf, index
