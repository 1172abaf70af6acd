"""Fourier transforms with lanes along them."""

from __future__ import annotations

from hloom.codegen.llvm import I1, I64, Function, Module, Value
from hloom.codegen.llvm.values import select_lanes
from hloom.cpu.kernels.fourier.axes import (
    AxisTransform,
    scratch_array_count,
    slot_bytes,
    slot_count,
    within_bytes,
)
from hloom.cpu.kernels.fourier.butterflies import Pair, multiply, radices, transform
from hloom.cpu.kernels.fourier.passes import Store, Transform
from hloom.cpu.kernels.movement.transposition import transposed


class LanesAlong(Transform):
    """Emits one Fourier transform at a time, with its elements in the lanes of vectors.

    The radix of its first pass is the lane count.
    """

    def __init__(self, module: Module, function: Function, axis: AxisTransform) -> None:
        super().__init__(module, function, axis, axis.lanes, axis.part, axis.lanes)
        factors = radices(self.n, self.lanes)
        assert factors is not None
        self.radices = factors
        size = 2 * self.n // self.lanes
        self.on_stack = not slot_bytes(axis)
        if self.on_stack:
            self.areas = [
                function.allocate(self.wide, size) for _ in range(scratch_array_count(axis, len(factors)))
            ]

    def emit(self) -> int:
        """Emit the kernel's loop over transforms; return its trip count.

        If the scratch memory is in the workspace, the loop is over scratch areas instead: each iteration
        runs, one after another, all transforms that use the same area.
        """
        f = self.f
        if self.on_stack:
            with f.loop(self.begin, self.end) as loop:
                self.one(loop.index)
            return self.axis.outer
        slots = slot_count(self.axis)
        with f.loop(self.begin, self.end) as loop:
            space = f.offset(self.space, loop.index * within_bytes(self.axis))
            self.areas = [space, self.at(space, 2 * self.n)]
            with f.loop(loop.index, self.axis.outer, slots) as rows:
                self.one(rows.index)
        return slots

    def one(self, row: Value) -> None:
        """Emit all passes of the transform of row ``row`` of the array."""
        source = self.at(self.source, row * self.axis.elements(self.axis.source))
        target = self.at(self.target, row * self.axis.elements(self.axis.target))
        self.first_pass(source)
        n, s = self.n // self.lanes, self.lanes
        for number, radix in enumerate(self.radices[1:]):
            writes = number == len(self.radices) - 2 and self.axis.target != "spectrum"
            store = self.result(target) if writes else self.writer(self.areas[(number + 1) % 2])
            self.vertical_pass(n, s, radix, self.lanes, self.reader(self.areas[number % 2]), store)
            n, s = n // radix, s * radix
        if self.axis.target == "spectrum":
            self.join(self.areas[(len(self.radices) - 1) % 2], target)

    def join(self, area: Value, target: Value) -> None:
        """Emit the loop that computes the spectrum of a real signal and stores it at ``target``.

        The scratch array ``area`` has the transform of the signal's pairs of neighbors.
        """
        f, lanes, load, zero = self.f, self.lanes, self.reader(area), self.f.constant(I64, 0)
        # The element n - k, before it those back to n - k - lanes + 1.
        opposite = [(1, 0), *((0, lane) for lane in range(lanes - 1, 0, -1))]
        with f.loop(0, self.n, lanes) as loop:
            k, rest = loop.index, self.n_value - loop.index
            below, first = load(rest - lanes), load(rest.compare("eq", self.n).select(zero, rest))
            b = select_lanes([below[0], first[0]], opposite), select_lanes([below[1], first[1]], opposite)
            real, imaginary = self.joined(load(k), b, self.half_turn(k))
            f.store(real.interleave(imaginary), self.at(target, k * 2))
        start = f.load(self.part, area), f.load(self.part, self.at(area, self.apart))
        last = self.at(target, 2 * self.n)
        f.store(start[0] - start[1], last)
        f.store(f.constant(self.part, 0.0), self.at(last, 1))

    def half_turn(self, k: Value) -> Pair:
        """Emit the load of a vector of exp(-pi i j / n), j = k, k + 1, ...; n is the transform's length."""
        address = self.at(self.half_turns(), k)
        return self.f.load(self.wide, address), self.f.load(self.wide, self.at(address, self.n + 1))

    def first_pass(self, source: Value) -> None:
        """Emit the first pass: transforms of as many elements as a vector has lanes, one in each lane.

        The results are transposed in registers, so that those of each transform are contiguous in memory.
        """
        f, lanes, m = self.f, self.lanes, self.n // self.lanes
        table = self.table(self.n, lanes, planar=True)
        with f.loop(0, m, lanes) as loop:
            x = [self.swap_operand(self.read(source, loop.index, m * k)) for k in range(lanes)]
            f.split_block()
            y = transform(f, x)
            f.split_block()
            for k in range(1, lanes):
                address = self.at(table, loop.index + (k - 1) * 2 * m)
                w = f.load(self.wide, address), f.load(self.wide, self.at(address, m))
                y[k] = multiply(f, y[k], w)
            real, imaginary = (transposed([pair[part] for pair in y]) for part in range(2))
            store = self.writer(self.areas[0])
            for j in range(lanes):
                store((loop.index + j) * lanes, (real[j], imaginary[j]))

    def read(self, source: Value, index: Value, ahead: int) -> Pair:
        """Emit the load of a vector of operand elements from index ``index + ahead`` on.

        ``ahead`` is a constant: the distance to this input from the first input of the same transform of the
        first pass. ``source`` is the address of the operand of the whole transform.
        """
        f = self.f
        if self.axis.source == "real":
            return f.load(self.wide, self.at(source, index + ahead)), f.constant(self.wide, 0.0)
        if self.axis.source == "spectrum":
            a, b = self.pairs(self.at(source, (index + ahead) * 2)), self.backwards(source, index, ahead)
            if not ahead:
                a, b = self.alone(index, a), self.alone(index, b)
            return self.separated(a, b, self.half_turn(index + ahead))
        if self.axis.source == "complex" or 2 * ahead < self.n:
            pair = self.pairs(self.at(source, (index + ahead) * 2))
        else:
            real, imaginary = self.backwards(source, index, ahead)
            pair = real, -imaginary
        if self.axis.source == "half" and ahead in (0, self.n // 2):
            pair = self.alone(index, pair)
        return pair

    def backwards(self, source: Value, index: Value, ahead: int) -> Pair:
        """Emit the load of a vector of complex elements in descending order.

        The first one has index n - (index + ahead) in the array at ``source``, where n is the length.
        """
        position = self.f.constant(I64, self.n - ahead - (self.lanes - 1)) - index
        real, imaginary = self.pairs(self.at(source, position * 2))
        order = list(range(self.lanes))[::-1]
        return real.shuffle(order), imaginary.shuffle(order)

    def alone(self, index: Value, pair: Pair) -> Pair:
        """Return ``pair``, with 0 as the imaginary part of lane 0 if ``index`` is 0 at run time.

        That is element 0 of a Hermitian spectrum, which is real: an imaginary part in memory is ignored.
        """
        first = self.f.constant(I1.vector(self.lanes), [1, *[0] * (self.lanes - 1)])
        start = index.compare("eq", 0).splat(self.lanes) & first
        return pair[0], start.select(0.0, pair[1])

    def pairs(self, place: Value) -> Pair:
        """Emit the load of a vector of complex numbers at ``place``; return (real parts, imaginary parts)."""
        return self.f.load(self.part.vector(2 * self.lanes), place).deinterleave()

    def result(self, target: Value) -> Store:
        """Return a function that emits the store of a vector of results, in the result's representation.

        If that is half a spectrum, elements beyond it are not stored.
        """
        f = self.f

        def store(index: Value, pair: Pair) -> None:
            real, imaginary = self.scale_result(pair)
            if self.axis.target == "real":
                f.store(real, self.at(target, index))
                return
            both = real.interleave(imaginary)
            address = self.at(target, index * 2)
            if self.axis.target == "complex":
                f.store(both, address)
                return
            with f.when(index.compare("slt", self.n // 2)):
                f.store(both, address)
            with f.when(index.compare("eq", self.n // 2)):  # the last element of the half
                f.store(both.shuffle([0, 1]), address)

        return store
