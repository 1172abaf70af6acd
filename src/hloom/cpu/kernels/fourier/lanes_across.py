"""Fourier transforms with lanes across them: neighboring columns, or rows that are gathered."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.codegen.llvm import F32, I1, I64, Function, Module, Value
from hloom.codegen.llvm.memory import gather, masked_load, masked_store, scatter
from hloom.cpu.kernels.fourier.axes import (
    AxisTransform,
    group_count,
    lanes_of,
    scratch_array_count,
    slot_bytes,
    slot_count,
)
from hloom.cpu.kernels.fourier.butterflies import Pair, multiply, radices
from hloom.cpu.kernels.fourier.passes import Load, Store, Transform
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.ir.operation import Array

COARSE: Final = 64
"""Elements of the first of two steps that have the same coarse rotation."""


class LanesAcross(Transform):
    """Emits Fourier transforms with one transform per lane: of neighboring columns, or of gathered rows."""

    def __init__(self, module: Module, function: Function, axis: AxisTransform) -> None:
        lanes = lanes_of(axis)
        super().__init__(module, function, axis, lanes, axis.part.vector(lanes), 1)
        self.rows = axis.inner == 1
        factors = radices(self.n)
        assert factors is not None
        self.radices = factors
        if not slot_bytes(axis):
            count = scratch_array_count(axis, len(factors))
            self.areas = [function.allocate(self.wide, 2 * self.n) for _ in range(count)]

    def emit(self) -> int:
        """Emit the kernel's loop over vectors of transforms, one transform per lane; return its trip count.

        If the scratch memory is in the workspace, the loop is over scratch areas instead: each iteration
        runs, one after another, all vectors of transforms that use the same area.
        """
        f, axis = self.f, self.axis
        groups = group_count(axis)
        total = groups if self.rows else groups * axis.outer
        size, slots = slot_bytes(axis), slot_count(axis)
        with f.loop(self.begin, self.end) as loop:
            if not size:
                self.numbered(loop.index, groups)
                return total
            space = f.offset(self.space, loop.index * size)
            self.areas = [space, f.offset(space, 2 * self.n, self.wide)]
            with f.loop(loop.index, total, slots) as inner:
                self.numbered(inner.index, groups)
        return slots

    def numbered(self, number: Value, groups: int) -> None:
        """Emit the transforms of the vector with index ``number``, one transform per lane.

        ``groups`` is the number of vectors for each outer index of the array.
        """
        if self.rows:
            self.group(self.f.constant(I64, 0), number * self.lanes, self.axis.outer)
            return
        outer = number.unsigned_divide(groups)
        self.group(outer, (number - outer * groups) * self.lanes, self.axis.inner)

    def group(self, outer: Value, first: Value, count: int) -> None:
        """Emit all passes of one vector of transforms, one transform per lane.

        Args:
            outer: index in the merged dimensions before the transformed one; unused if lanes are rows.
            first: index of the transform in lane 0, among adjacent transforms.
            count: number of adjacent transforms; lanes beyond the last one are masked.
        """
        f = self.f
        self.outer, self.first = outer, first
        if count % self.lanes:
            numbers = f.constant(I64.vector(self.lanes), list(range(self.lanes)))
            rows_left = f.constant(I64, count) - first
            self.mask = numbers.compare("slt", rows_left.splat(self.lanes))
        else:
            self.mask = f.constant(I1.vector(self.lanes), 1)
        n, s = self.n, 1
        load: Load = self.read
        if not self.radices:
            self.write(f.constant(I64, 0), self.read(f.constant(I64, 0)))
        for number, radix in enumerate(self.radices):
            writes = number == len(self.radices) - 1 and not (
                self.axis.target == "spectrum" or self.axis.is_first
            )
            store: Store = self.write if writes else self.writer(self.areas[number % 2])
            self.vertical_pass(n, s, radix, 1, load, store)
            if not writes:
                load = self.reader(self.areas[number % 2])
            n, s = n // radix, s * radix
        if self.axis.target == "spectrum":
            self.join(load)
        if self.axis.is_first:
            self.turn(load)

    def turn(self, load: Load) -> None:
        """Emit the loop that multiplies the first step's transforms by rotations and stores them transposed.

        Element k of column j is multiplied by exp(-2 pi i k j / whole): by the rotations of ``COARSE`` times
        the quotient and of the remainder of k.
        """
        f, lanes, n, columns = self.f, self.lanes, self.n, self.axis.inner
        coarse, fine = self.turns("coarse", -(-n // COARSE), COARSE), self.turns("fine", COARSE, 1)
        target = self.at(self.target, self.outer * (2 * n * columns))
        numbers, last = f.constant(I64.vector(lanes), list(range(lanes))), f.constant(I64, n - 1)
        with f.loop(0, n, lanes) as loop:
            start, block = loop.index, loop.index.unsigned_divide(COARSE)
            far = self.rotation(coarse, block)
            pairs: list[Pair] = []
            for lane in range(lanes):
                index = start + lane
                if n % lanes:
                    index = index.compare("slt", n).select(index, last)
                near = self.rotation(fine, start - block * COARSE + lane)
                pairs.append(multiply(f, load(index), multiply(f, far, near)))
            f.split_block()
            real, imaginary = (transposed([pair[part] for pair in pairs]) for part in range(2))
            within = numbers.compare("sle", (last - start).splat(lanes))
            both = within.shuffle([m // 2 for m in range(2 * lanes)])
            for lane in range(lanes):
                column = self.first + lane
                with f.when(column.compare("slt", columns)):
                    address = self.at(target, (column * n + start) * 2)
                    masked_store(real[lane].interleave(imaginary[lane]), address, both)

    def turns(self, kind: str, count: int, step: int) -> Value:
        """Return the address of a table of exp(-2 pi i step k j / whole), k < count; see `rotations`.

        Columns j have room for the lanes beyond the last column.
        """
        columns, whole = -(-self.axis.inner // self.lanes) * self.lanes, self.axis.whole
        turns: Array = np.arange(count)[:, None] * step * np.arange(columns)[None, :] % whole
        return self.rotations(f"{kind}_rotations_{whole}_{self.n}_{columns}", -2 * np.pi * turns / whole)

    def rotation(self, table: Value, k: Value) -> Pair:
        """Emit the load of the rotations of element k in the lanes' columns."""
        columns = -(-self.axis.inner // self.lanes) * self.lanes
        address = self.at(table, k * (2 * columns) + self.first)
        return self.f.load(self.wide, address), self.f.load(self.wide, self.at(address, columns))

    def join(self, load: Load) -> None:
        """Emit the loop that computes and stores the spectra of real signals, one per lane.

        ``load`` reads the transforms of their pairs of neighbors.
        """
        f, zero = self.f, self.f.constant(I64, 0)
        with f.loop(0, self.n + 1) as loop:
            k, opposite = loop.index, self.n_value - loop.index
            a = load(k.compare("eq", self.n).select(zero, k))
            b = load(opposite.compare("eq", self.n).select(zero, opposite))
            values = list(self.joined(a, b, self.half_turn(k)))
            self.put(k, values, self.axis.elements("spectrum"))

    def half_turn(self, k: Value) -> Pair:
        """Emit the load of exp(-pi i k / n) and its broadcast to every lane; n is the transform's length."""
        address = self.at(self.half_turns(), k)
        w = self.f.load(self.part, address), self.f.load(self.part, self.at(address, self.n + 1))
        return w[0].splat(self.lanes), w[1].splat(self.lanes)

    # -- operand and result

    def read(self, index: Value) -> Pair:
        """Emit the load of element ``index`` of each lane's transform from the operand."""
        if self.axis.source == "real":
            (real,) = self.numbers(self.source, index, 1, self.axis.elements("real"))
            return self.swap_operand((real, self.f.constant(self.wide, 0.0)))
        if self.axis.source == "half":
            return self.swap_operand(self.read_half(index))
        if self.axis.source == "spectrum":
            return self.swap_operand(self.read_spectrum(index))
        real, imaginary = self.numbers(self.source, index, 2, self.axis.elements("complex"))
        return self.swap_operand((real, imaginary))

    def read_half(self, index: Value) -> Pair:
        """Emit the load of element ``index`` of each lane's Hermitian spectrum, of which only half is stored.

        Elements beyond the half are conjugates of stored ones. Where the spectrum must be real, imaginary
        parts in memory are ignored.
        """
        f = self.f
        mirrored = index.compare("sgt", self.n // 2)
        position = mirrored.select(f.constant(I64, self.n) - index, index)
        real, imaginary = self.numbers(self.source, position, 2, self.axis.elements("half"))
        alone = position.compare("eq", 0) | (position + position).compare("eq", self.n)
        imaginary = mirrored.splat(self.lanes).select(-imaginary, imaginary)
        return real, alone.splat(self.lanes).select(0.0, imaginary)

    def read_spectrum(self, index: Value) -> Pair:
        """Emit element ``index`` of each lane's transform of pairs, given the spectrum in memory.

        It is the spectrum of a real signal, whose neighbors are paired as complex numbers.
        """
        row, alone = self.axis.elements("spectrum"), index.compare("eq", 0).splat(self.lanes)
        a, b = (self.numbers(self.source, k, 2, row) for k in (index, self.n_value - index))
        a, b = ((real, alone.select(0.0, imaginary)) for real, imaginary in (a, b))
        return self.separated(a, b, self.half_turn(index))

    def numbers(self, base: Value, index: Value, width: int, row: int) -> list[Value]:
        """Emit loads of one real or complex number for every lane's transform; return its parts as vectors.

        Args:
            base: address of the array.
            index: index of the element along the transformed dimension.
            width: 1 for real numbers, 2 for complex ones.
            row: number of real and imaginary parts that the array has along the transformed dimension.
        """
        if not self.rows:
            start = (self.outer * (row // width) + index) * self.axis.inner + self.first
            address = self.at(base, start * width)
            if width == 1:
                return [masked_load(self.wide, address, self.mask)]
            both = self.mask.shuffle([n // 2 for n in range(2 * self.lanes)])
            mixed = masked_load(self.part.vector(2 * self.lanes), address, both)
            return list(mixed.deinterleave())
        if width == 2 and self.part is F32:
            pairs = gather(I64.vector(self.lanes), self.places(base, index * 2, row), self.mask)
            return list(pairs.bitcast(F32.vector(2 * self.lanes)).deinterleave())
        places = [self.places(base, index * width + k if k else index * width, row) for k in range(width)]
        return [gather(self.wide, address, self.mask) for address in places]

    def places(self, base: Value, column: Value, row: int) -> Value:
        """Return a vector of addresses: that of real number ``column`` in each lane's row of the array.

        Each row has ``row`` real numbers; a complex number counts as two.
        """
        f = self.f
        lanes = f.constant(I64.vector(self.lanes), [row * lane for lane in range(self.lanes)])
        index = (self.first * row + column).splat(self.lanes) + lanes
        return f.offset(base, index, self.part)

    def write(self, index: Value, pair: Pair) -> None:
        """Emit the store of element ``index`` of each lane's result; no store if beyond the half to store."""
        real, imaginary = self.scale_result(pair)
        if self.axis.target == "half":
            with self.f.when(index.compare("sle", self.n // 2)):
                self.put(index, [real, imaginary], self.axis.elements("half"))
        elif self.axis.target == "real":
            self.put(index, [real], self.axis.elements("real"))
        else:
            self.put(index, [real, imaginary], self.axis.elements("complex"))

    def put(self, index: Value, values: list[Value], row: int) -> None:
        """Emit stores of one real or complex number into the result of every lane's transform.

        Args:
            index: index of the element along the transformed dimension.
            values: the vector of real parts, then that of imaginary parts if the numbers are complex.
            row: number of real and imaginary parts that the result has along the transformed dimension.
        """
        width = len(values)
        if not self.rows:
            start = (self.outer * (row // width) + index) * self.axis.inner + self.first
            address = self.at(self.target, start * width)
            if width == 1:
                masked_store(values[0], address, self.mask)
                return
            both = self.mask.shuffle([n // 2 for n in range(2 * self.lanes)])
            masked_store(values[0].interleave(values[1]), address, both)
            return
        if width == 2 and self.part is F32:
            pairs = values[0].interleave(values[1]).bitcast(I64.vector(self.lanes))
            scatter(pairs, self.places(self.target, index * 2, row), self.mask)
            return
        for k, value in enumerate(values):
            places = self.places(self.target, index * width + k if k else index * width, row)
            scatter(value, places, self.mask)
