"""fft-decomposer: rewrite transforms of lengths with large prime factors as convolutions.

Rader, "Discrete Fourier transforms when the number of data samples is prime" (Proceedings of the IEEE 56(6),
1968): with a generator g of the numbers modulo a prime n, X[g^-p] - x[0] is the cyclic convolution of x[g^q]
and exp(-2 pi i g^-q / n), of length n - 1. It is used if that is a cheap length.

Bluestein, "A linear filtering approach to the computation of discrete Fourier transform" (IEEE Transactions
on Audio and Electroacoustics 18(4), 1970): with w = exp(-pi i / n) the transform is
X[k] = w^(k^2) sum (x[j] w^(j^2)) w^(-(k - j)^2).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, Complex, Multiply
from hloom.operations.comparison import Select
from hloom.operations.gather_scatter import Gather
from hloom.operations.linear_algebra import Fft
from hloom.operations.movement import Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.structure import Constant
from hloom.operations.unary import Imag, Negate, Real
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import C64, C128, F32, F64, PRED, S32, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_LANES_ALONG: Final = 256
_LARGEST_CHEAP_RADIX: Final = 5
_COMPLEX: Final = {F32: C64, F64: C128, C64: C64, C128: C128}


class FftDecomposer(OpExpander, name="fft-decomposer", of=Fft):
    """``fft`` of a length with a prime factor over ``largest_prime`` → chirp products and longer ffts."""

    largest_prime: int = 43

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not i.shape.is_static or not i.shape.element_count:
            return None
        lengths = operation_of(i, Fft).fft_length
        awkward = any(largest_factor(n) > self.largest_prime for n in lengths)
        return _Decomposition(i, w).run() if awkward else None


def largest_factor(n: int) -> int:
    """Return the largest prime factor; 1 for 0 and 1."""
    largest, divisor = 1, 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            largest, n = divisor, n // divisor
        divisor += 1
    return max(largest, n) if n > 1 else largest


def generator(n: int) -> int:
    """Return the least number whose powers are all numbers from 1 to n - 1 modulo a prime n."""
    factors = {p for p in range(2, n) if (n - 1) % p == 0 and largest_factor(p) == p}
    return next(g for g in range(1, n) if all(pow(g, (n - 1) // p, n) != 1 for p in factors))


def convolution_length(least: int) -> int:
    """Return the length of the transforms of a convolution: a power of two, or a shorter multiple of 256.

    Transforms whose length is a multiple of 256 have lanes along them.
    """
    if least <= _LANES_ALONG:
        return 1 << (least - 1).bit_length()
    multiple = -(-least // _LANES_ALONG)
    while largest_factor(multiple) > _LARGEST_CHEAP_RADIX:
        multiple += 1
    return multiple * _LANES_ALONG


class _Decomposition:
    """The decomposition of one fft."""

    def __init__(self, instruction: HloInstruction, w: Writer) -> None:
        self.w = w
        self.instruction = instruction
        operation = operation_of(instruction, Fft)
        self.lengths: tuple[int, ...] = operation.fft_length
        self.kind: str = operation.fft_type
        self.complex = _COMPLEX[instruction.shape.element_type]

    def run(self) -> HloInstruction:
        """Transform one dimension after the other; first the last one of real signals, which halves it."""
        w = self.w
        (x,) = self.instruction.operands
        if self.kind == "IRFFT":
            x = self.completed(x)
        x = w.convert(x, self.complex)
        rank = x.shape.rank
        dimensions = list(range(rank - len(self.lengths), rank))
        if self.kind == "RFFT":
            x = self.along(x, dimensions.pop(), self.lengths[-1])
            half = self.instruction.shape.dimensions
            x = w.op(Slice(slice=tuple(SliceDimension(0, size) for size in half)), x)
        for dimension, length in zip(dimensions, self.lengths, strict=False):
            x = self.along(x, dimension, length)
        if self.kind == "IRFFT":
            x = w.op(Real(), x)
        return x

    def completed(self, x: HloInstruction) -> HloInstruction:
        """Complete the conjugate-symmetric half of a spectrum, after transforming the other dimensions."""
        w, n = self.w, self.lengths[-1]
        rank, half = x.shape.rank, x.shape.dimensions[-1]
        others = list(range(rank - len(self.lengths), rank - 1))
        for number, dimension in enumerate(others):
            x = self.along(x, dimension, self.lengths[number])
        # only the last dimension remains, whose rows are spectra of real signals
        self.lengths = self.lengths[-1:]
        ends = tuple(0 if d < rank - 1 else 1 for d in range(rank))
        sizes = x.shape.dimensions
        limits = (*sizes[:-1], n - half + 1)
        if limits[-1] > 1:
            ranges = tuple(SliceDimension(a, b) for a, b in zip(ends, limits, strict=True))
            mirrored = w.op(Reverse(dimensions=(rank - 1,)), w.op(Slice(slice=ranges), x))
            mirror = w.op(Complex(), w.op(Real(), mirrored), w.op(Negate(), w.op(Imag(), mirrored)))
            x = w.op(Concatenate(dimensions=(rank - 1,)), x, mirror)
        return self.without_imaginary(x, n)

    def without_imaginary(self, x: HloInstruction, n: int) -> HloInstruction:
        """Clear the imaginary parts that are zero for a real signal: at 0 and in the middle."""
        w = self.w
        keep = np.ones(n)
        keep[0] = 0
        if n % 2 == 0:
            keep[n // 2] = 0
        part = F32 if self.complex is C64 else F64
        mask = self.constant(keep.astype(part.numpy_dtype), part)
        spread = w.broadcast(mask, x.shape.dimensions, [x.shape.rank - 1])
        zero = w.full(0, spread.shape)
        is_real = w.compare(spread, "NE", zero)
        return w.op(Complex(), w.op(Real(), x), w.op(Select(), is_real, w.op(Imag(), x), zero))

    def constant(self, values: Array, kind: ElementType) -> HloInstruction:
        """Return a constant vector."""
        shape = Shape(kind, values.shape)
        return self.w.op(Constant(literal=Literal(values.astype(kind.numpy_dtype), shape)), shape=shape)

    def along(self, x: HloInstruction, dimension: int, n: int) -> HloInstruction:
        """Transform one dimension, transposed to be the last."""
        w, rank = self.w, x.shape.rank
        order = [d for d in range(rank) if d != dimension] + [dimension]
        last = dimension == rank - 1
        if not last:
            x = w.op(Transpose(dimensions=tuple(order)), x)
        x = self.row_transform(x, n)
        if not last:
            x = w.op(Transpose(dimensions=tuple(order.index(d) for d in range(rank))), x)
        return x

    def row_transform(self, x: HloInstruction, n: int) -> HloInstruction:
        """Transform the last dimension."""
        w = self.w
        inverse = self.kind[0] == "I"
        if largest_factor(n) <= FftDecomposer.largest_prime:
            kind = "IFFT" if inverse else "FFT"
            return w.op(Fft(fft_type=kind, fft_length=(n,)), x)
        if _permutes(n):
            return self.permuted_transform(x, n)
        sizes, rank = x.shape.dimensions, x.shape.rank
        j = np.arange(n, dtype=object)
        sign = 1 if inverse else -1
        angles = np.array([int(k) for k in (j * j) % (2 * n)], np.float64) * (np.pi / n)
        chirp = np.exp(sign * 1j * angles)
        m = convolution_length(2 * n - 1)
        kernel = np.zeros(m, np.complex128)
        kernel[:n] = chirp.conj()
        kernel[m - n + 1 :] = chirp[1:][::-1].conj()
        scaled = chirp / n if inverse else chirp
        spread = w.broadcast(self.constant(chirp, self.complex), sizes, [rank - 1])
        padding = tuple(PaddingDimension(0, m - n if d == rank - 1 else 0, 0) for d in range(rank))
        long = w.op(Pad(padding=padding), w.op(Multiply(), x, spread), w.scalar(0, self.complex))
        spectrum = w.op(Fft(fft_type="FFT", fft_length=(m,)), long)
        filter_ = w.broadcast(
            self.constant(np.fft.fft(kernel), self.complex), spectrum.shape.dimensions, [rank - 1]
        )
        back = w.op(Fft(fft_type="IFFT", fft_length=(m,)), w.op(Multiply(), spectrum, filter_))
        prefix = w.op(Slice(slice=tuple(SliceDimension(0, size) for size in sizes)), back)
        return w.op(Multiply(), prefix, w.broadcast(self.constant(scaled, self.complex), sizes, [rank - 1]))

    def permuted_transform(self, x: HloInstruction, n: int) -> HloInstruction:
        """Transform the last dimension, of prime length, by Rader's convolution."""
        w, sizes, last = self.w, x.shape.dimensions, x.shape.rank - 1
        inverse, m, g = self.kind[0] == "I", n - 1, generator(n)
        powers = np.array([pow(g, q, n) for q in range(m)])
        kernel = np.exp((2j if inverse else -2j) * np.pi * np.roll(powers[::-1], 1) / n)
        spectrum = w.op(Fft(fft_type="FFT", fft_length=(m,)), self.gathered(x, powers))
        filter_ = w.broadcast(
            self.constant(np.fft.fft(kernel), self.complex), spectrum.shape.dimensions, [last]
        )
        sums = w.op(Fft(fft_type="IFFT", fft_length=(m,)), w.op(Multiply(), spectrum, filter_))
        places = np.zeros(n, np.int64)
        places[np.roll(powers[::-1], 1)] = np.arange(m)
        is_first = w.broadcast(self.constant(np.arange(n) == 0, PRED), sizes, [last])
        total = w.broadcast(self.first(spectrum), sizes, range(last))
        others = w.op(Select(), is_first, total, self.gathered(sums, places))
        result = w.op(Add(), others, w.broadcast(self.first(x), sizes, range(last)))
        return w.op(Multiply(), result, w.full(1 / n, result.shape)) if inverse else result

    def gathered(self, x: HloInstruction, places: Array) -> HloInstruction:
        """Return the elements of the last dimension at the given places."""
        last = x.shape.rank - 1
        gather = Gather(
            offset_dims=tuple(range(last)),
            collapsed_slice_dims=(last,),
            start_index_map=(last,),
            index_vector_dim=1,
            slice_sizes=(*x.shape.dimensions[:-1], 1),
            indices_are_sorted=False,
        )
        return self.w.op(gather, x, self.constant(places, S32))

    def first(self, x: HloInstruction) -> HloInstruction:
        """Return the first elements along the last dimension, without it."""
        sizes = x.shape.dimensions
        ranges = (*(SliceDimension(0, size) for size in sizes[:-1]), SliceDimension(0, 1))
        return self.w.reshape(self.w.op(Slice(slice=ranges), x), sizes[:-1])


def _permutes(n: int) -> bool:
    """Return whether Rader's convolution takes less time than Bluestein's, which has twice the length."""
    is_cheap = largest_factor(n) == n and largest_factor(n - 1) <= FftDecomposer.largest_prime
    return is_cheap and (n - 1) % _LANES_ALONG == 0
