"""Stockham passes of Fourier transforms, with tables and scratch memory.

A pass of radix r maps the elements at q + s (p + m k), for all k < r, to those at q + s (r p + k), where
n = r m is the length left and s is the product of the radices of the earlier passes. The output of the last
pass is in natural order. An inverse transform is the forward one with the real and imaginary parts exchanged
in operand and result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hloom.codegen.llvm import F32, I64, Function, Module, Type, Value
from hloom.cpu.kernels.fourier.axes import AxisTransform
from hloom.cpu.kernels.fourier.butterflies import Pair, multiply, transform
from hloom.ir.operation import Array

Load: TypeAlias = Callable[[Value], Pair]
Store: TypeAlias = Callable[[Value, Pair], None]


class Transform:
    """Base of the emitters of Fourier transforms along one dimension: tables, scratch memory and passes.

    Attributes:
        lanes, wide: the number of lanes of a vector, and the vector type.
        unit, apart: in scratch memory, the imaginary part of an element begins ``apart`` elements of type
            ``unit`` after its real part.
    """

    def __init__(
        self, module: Module, function: Function, axis: AxisTransform, lanes: int, unit: Type, apart: int
    ) -> None:
        self.module, self.f, self.axis = module, function, axis
        self.lanes, self.wide, self.unit, self.apart = lanes, axis.part.vector(lanes), unit, apart
        self.source, self.target, self.space, self.begin, self.end = function.parameters
        self.part, self.n = axis.part, axis.length
        self.n_value = function.constant(I64, self.n)

    def table(self, n: int, radix: int, *, planar: bool) -> Value:
        """Return the address of a constant table of a pass's twiddle factors, exp(-2 pi i p k / n).

        Here 0 <= p < n / radix and 0 < k < radix. The indices of the table are p, k and part (real or
        imaginary), in this order; if ``planar``, they are k, part and p.
        """
        dtype = np.float32 if self.part is F32 else np.float64
        p, k = np.arange(n // radix)[:, None], np.arange(1, radix)[None, :]
        angle: Array = -2 * np.pi * ((p * k) % n) / n
        both: Array = np.stack([np.cos(angle), np.sin(angle)], -1)
        data = (both.transpose(1, 2, 0) if planar else both).astype(dtype)
        name = f"rotations_{self.part.suffix}_{n}_{radix}{'_planar' if planar else ''}"
        self.module.constant_bytes(name, np.ascontiguousarray(data).tobytes())
        return self.f.address(name)

    def at(self, base: Value, index: Value | int) -> Value:
        """Return the address of real number ``index`` from ``base`` on; complex numbers count as two."""
        return self.f.offset(base, index, self.part)

    def scale_result(self, pair: Pair) -> Pair:
        """Return an element of the result; an inverse transform swaps its parts and divides by the length."""
        if not self.axis.inverse:
            return pair
        scale = 1.0 / (self.axis.whole or self.n)
        return pair[1] * scale, pair[0] * scale

    def swap_operand(self, pair: Pair) -> Pair:
        """Return an element of the operand; an inverse transform swaps its real and imaginary parts."""
        swaps = self.axis.inverse and (not self.axis.whole or self.axis.is_first)
        return (pair[1], pair[0]) if swaps else pair

    def half_turns(self) -> Value:
        """Return the address of a table of exp(-pi i k / n), 0 <= k <= n; see `rotations`."""
        return self.rotations(f"half_turns_{self.n}", -np.pi * np.arange(self.n + 1) / self.n)

    def rotations(self, name: str, angle: Array) -> Value:
        """Return the address of a constant table of exp(i angle), which equal names share.

        The last index is that of the angles; of each row all real parts come first, then all imaginary parts.
        """
        dtype = np.float32 if self.part is F32 else np.float64
        data: Array = np.stack([np.cos(angle), np.sin(angle)], -2).astype(dtype)
        name = f"{name}_{self.part.suffix}"
        self.module.constant_bytes(name, np.ascontiguousarray(data).tobytes())
        return self.f.address(name)

    def joined(self, a: Pair, b: Pair, w: Pair) -> Pair:
        """Emit element k of the spectrum of a real signal from the transform of its pairs of neighbors.

        It is e + w o, where e = (a + b*) / 2 belongs to the even elements of the signal and o = (a - b*) / 2i
        to the odd ones.

        Args:
            a, b: the elements k and n - k of the transform of the pairs.
            w: exp(-pi i k / n).
        """
        even = (a[0] + b[0]) * 0.5, (a[1] - b[1]) * 0.5
        odd = multiply(self.f, ((a[1] + b[1]) * 0.5, (b[0] - a[0]) * 0.5), w)
        return even[0] + odd[0], even[1] + odd[1]

    def separated(self, a: Pair, b: Pair, w: Pair) -> Pair:
        """Emit element k of the transform of pairs from the spectrum of the real signal; reverses `joined`.

        It is e + i o, where ``a`` and ``b`` are the elements k and n - k of the spectrum, ``w`` as for
        `joined`.
        """
        even = (a[0] + b[0]) * 0.5, (a[1] - b[1]) * 0.5
        odd = multiply(self.f, ((a[0] - b[0]) * 0.5, (a[1] + b[1]) * 0.5), (w[0], -w[1]))
        return even[0] - odd[1], even[1] + odd[0]

    def reader(self, area: Value) -> Load:
        """Return a function that emits the load of a complex vector at an index of scratch array ``area``."""

        def load(index: Value) -> Pair:
            address = self.f.offset(area, index * 2, self.unit)
            real = self.f.load(self.wide, address)
            return real, self.f.load(self.wide, self.f.offset(address, self.apart, self.unit))

        return load

    def writer(self, area: Value) -> Store:
        """Return a function that emits the store of a complex vector, at an index of array ``area``."""

        def store(index: Value, pair: Pair) -> None:
            address = self.f.offset(area, index * 2, self.unit)
            self.f.store(pair[0], address)
            self.f.store(pair[1], self.f.offset(address, self.apart, self.unit))

        return store

    def vertical_pass(self, n: int, s: int, radix: int, step: int, load: Load, store: Store) -> None:
        """Emit a Stockham pass of radix ``radix`` whose twiddle factors are the same in all lanes.

        With m = n / radix, its transforms of ``radix`` elements read the elements q + s (p + m k), k < radix,
        and write q + s (radix p + k).

        Args:
            n: the length that the earlier passes left to transform.
            s: the product of the earlier radices.
            step: the increment of q, which runs from 0 to s; p runs from 0 to m.
            load, store: emit the load and the store of the complex vector at an element index.
        """
        f, m = self.f, n // radix
        table = self.table(n, radix, planar=False) if m > 1 else None
        lanes = 0
        with f.loop(0, m) as outer:
            rotations: list[tuple[Value, Value]] = []
            if table is not None:
                for k in range(radix - 1):
                    address = self.at(table, outer.index * (2 * (radix - 1)) + 2 * k)
                    rotations.append((f.load(self.part, address), f.load(self.part, self.at(address, 1))))
            with f.loop(0, s, step) as inner:
                x = [load(inner.index + (outer.index + m * k) * s) for k in range(radix)]
                lanes = x[0][0].type.lanes
                y = transform(f, x)
                f.split_block()
                for k, pair in enumerate(y):
                    if k and rotations:
                        w = rotations[k - 1]
                        pair = multiply(f, pair, (w[0].splat(lanes), w[1].splat(lanes)))
                    store(inner.index + (outer.index * radix + k) * s, pair)
