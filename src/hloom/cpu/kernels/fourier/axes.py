"""The transforms of an fft along its dimensions: their lengths and forms, lanes, and scratch memory.

A real signal of an even length is transformed as half as many complex numbers, its pairs of neighbors; its
spectrum is joined from the elements k and n - k of the transform (Press et al., Numerical Recipes, 12.3).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.llvm import F32, F64, Type
from hloom.codegen.target import Target
from hloom.cpu.kernels.fourier.butterflies import radices
from hloom.ir.instruction import HloInstruction
from hloom.operations.linear_algebra import Fft
from hloom.records import dataclass
from hloom.shape.element_type import C64
from hloom.shape.element_type import F32 as REAL32

STACK_BYTES: Final = 1 << 20
"""Bytes of stack that the passes may use; bounds the number of lanes."""
SLOTS: Final = 16
LEAST_PAIRED: Final = 8
"""Length from which a real signal is transformed as pairs."""
LEAST_LONG: Final = 600
"""Length from which transforms take two steps if the lanes of vectors cannot be elements of one."""
LEAST_OF_FEW: Final = 64
"""The same for transforms that are at most a quarter of the lanes."""
LEAST_BYTES: Final = 1 << 21
"""Size from which transforms take two steps although lanes may be their elements."""
LEAST_BYTES_ALONE: Final = 1 << 18
"""The same for one transform: threads share the steps."""


@dataclass(frozen=True, slots=True)
class AxisTransform:
    """The one-dimensional Fourier transforms along one dimension of an array, as a kernel computes them.

    Attributes:
        part: the type of a real or imaginary part, f32 or f64.
        length: number of complex elements of a transform, of its operand and of its result.
        outer, inner: products of the dimensions before and after the transformed one.
        inverse: whether the transform is inverse: it is computed as the forward one, with the real and
            imaginary parts exchanged before and after, and the result divided by the length.
        source: how the operand represents these elements: ``complex``; ``real``, without imaginary parts;
            ``half``, the non-redundant half of a Hermitian spectrum; or ``spectrum``, the non-redundant
            length + 1 elements of the spectrum of a real signal, if the elements of the transform are pairs
            of neighbors of this signal.
        target: how the result represents its elements, one of the same names.
        vector_bytes: bytes of a vector.
        whole: the length of a transform of which these are one of two steps; 0 for whole transforms.
        is_first: whether these are the first step: results are multiplied by rotations and transposed.
        converts: whether this is no transform, but the step between those of pairs and spectra.
    """

    part: Type
    length: int
    outer: int
    inner: int
    inverse: bool
    source: str = "complex"
    target: str = "complex"
    vector_bytes: int = 64
    whole: int = 0
    is_first: bool = False
    converts: bool = False

    @property
    def lanes(self) -> int:
        """Return the number of elements of type ``part`` in a vector of ``vector_bytes`` bytes."""
        return self.vector_bytes // self.part.size

    @property
    def within(self) -> bool:
        """Return whether a vector's lanes are elements of one transform; if not, each lane has its own."""
        return self.inner == 1 and self.length % (self.lanes * self.lanes) == 0

    @property
    def half(self) -> int:
        """Return the number of non-redundant elements of a Hermitian spectrum: length // 2 + 1."""
        return self.length // 2 + 1

    def elements(self, form: str) -> int:
        """Return how many real numbers an array has for each transform; complex numbers count as two.

        ``form`` says how the array represents a transform: ``complex``, ``real``, ``half`` or ``spectrum``.
        """
        return {
            "complex": 2 * self.length,
            "real": self.length,
            "half": 2 * self.half,
            "spectrum": 2 * self.length + 2,
        }[form]


def axes_of(i: HloInstruction, machine: Target) -> list[AxisTransform]:
    """Return the one-dimensional transforms of an fft instruction, in execution order.

    The vectors have 32 bytes if that is the size of the target's vectors of partial sums, else 64. The number
    of lanes determines the order of additions, and how many vectors the first pass keeps in registers.
    """
    vector_bytes = 32 if machine.partial_sum_bytes == 32 else 64
    operation = operation_of(i, Fft)
    lengths, kind = operation.fft_length, operation.fft_type
    part = F32 if i.shape.element_type in (C64, REAL32) else F64
    spectrum = i.operands[0].shape.dimensions if kind == "IRFFT" else i.shape.dimensions
    rank = len(spectrum)
    axes: list[AxisTransform] = []
    for number, length in enumerate(lengths):
        dimension = rank - len(lengths) + number
        outer, inner = math.prod(spectrum[:dimension]), math.prod(spectrum[dimension + 1 :])
        last = number == len(lengths) - 1
        source = "real" if last and kind == "RFFT" else "half" if last and kind == "IRFFT" else "complex"
        target = "half" if last and kind == "RFFT" else "real" if last and kind == "IRFFT" else "complex"
        axis = AxisTransform(part, length, outer, inner, kind[0] == "I", source, target, vector_bytes)
        axes.append(_of_pairs(axis))
    if kind == "IRFFT":
        return [*axes[:-1], *_steps(axes[-1])]
    return [*_steps(axes[-1]), *axes[-2::-1]]


def _steps(axis: AxisTransform) -> list[AxisTransform]:
    """Return the steps of transforms along rows if they are long; else the transforms.

    These are columns, columns again, and after or before them the conversion to spectra or from them.
    """
    if axis.inner > 1 or {axis.source, axis.target} - {"complex", "spectrum"}:
        return [axis]
    if axis.within:
        least = (LEAST_BYTES if axis.outer > 1 else LEAST_BYTES_ALONE) // (2 * axis.part.size)
    else:
        least = LEAST_LONG if 4 * axis.outer > axis.lanes else LEAST_OF_FEW
    if axis.length < least:
        return [axis]
    divisors = [n for n in range(2, math.isqrt(axis.length) + 1) if axis.length % n == 0]
    divisors += [axis.length // n for n in divisors]
    if not divisors:
        return [axis]
    first = min(divisors, key=lambda n: (n % axis.lanes > 0, abs(math.log(n * n / axis.length))))
    second, whole = axis.length // first, axis.length
    columns = replace(axis, source="complex", target="complex", whole=whole)
    steps = [
        replace(columns, length=first, inner=second, is_first=True),
        replace(columns, length=second, inner=first),
    ]
    conversion = [replace(axis, converts=True)]
    before = conversion if axis.source == "spectrum" else []
    return [*before, *steps, *(conversion if axis.target == "spectrum" else [])]


def _of_pairs(axis: AxisTransform) -> AxisTransform:
    """Return the complex transform of half the length by which a kernel computes a real transform.

    Its elements are pairs of neighbors of the real signal. Returns ``axis`` unchanged if it is complex, of
    odd length or short, or if only its full length allows the lanes of a vector to be elements of one
    transform.
    """
    if axis.length % 2 or axis.length < LEAST_PAIRED or "real" not in (axis.source, axis.target):
        return axis
    source, target = ("complex", "spectrum") if axis.source == "real" else ("spectrum", "complex")
    pairs = replace(axis, length=axis.length // 2, source=source, target=target)
    return pairs if pairs.within or not axis.within else axis


def scratch_array_count(axis: AxisTransform, passes: int) -> int:
    """Return the number of scratch arrays, at most two, that hold a transform between its ``passes``.

    Computing the spectrum of a real signal from the transform of its pairs counts as one more pass, and so do
    the rotations after the first of two steps.
    """
    return max(0, min(2, passes - 1 + (axis.target == "spectrum" or axis.is_first)))


def within_bytes(axis: AxisTransform) -> int:
    """Return the bytes of scratch memory of a transform whose elements are the vector lanes: two arrays."""
    return 4 * axis.part.size * axis.length


def lanes_of(axis: AxisTransform) -> int:
    """Return the number of vector lanes to use if each lane has its own transform.

    It is limited by the number of transforms, and by the stack memory that they need.
    """
    lanes = axis.lanes
    many = axis.outer if axis.inner == 1 else axis.inner
    while lanes > 4 and (lanes // 2 >= many or _lane_bytes(axis) * lanes > STACK_BYTES):
        lanes //= 2
    return lanes


def _lane_bytes(axis: AxisTransform) -> int:
    """Return the bytes of scratch memory per lane if each vector lane has its own transform."""
    return scratch_array_count(axis, len(radices(axis.length) or ())) * 2 * axis.length * axis.part.size


def slot_bytes(axis: AxisTransform) -> int:
    """Return the bytes of workspace for the transforms computed at a time; 0 if they fit on the stack.

    These are one transform if the lanes of a vector are its elements, else one transform per lane.
    """
    size = within_bytes(axis) if axis.within else _lane_bytes(axis) * lanes_of(axis)
    return size if size > STACK_BYTES else 0


def group_count(axis: AxisTransform) -> int:
    """Return the number of vectors of transforms if each vector lane has its own transform.

    If ``inner`` is 1, this is the number for the whole array, and a vector spans outer indices. Otherwise it
    is the number for each outer index.
    """
    return -(-(axis.outer if axis.inner == 1 else axis.inner) // lanes_of(axis))


def slot_count(axis: AxisTransform) -> int:
    """Return the number of scratch areas in the workspace for long transforms; each is used by one task.

    This limits the number of threads that can compute transforms at the same time.
    """
    if axis.within:
        return min(SLOTS, axis.outer)
    return min(SLOTS, group_count(axis) * (1 if axis.inner == 1 else axis.outer))
