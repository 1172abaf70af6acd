"""The step between transforms of pairs of neighbors and the spectra of real signals, of long rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.codegen.llvm import I64, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load, masked_store
from hloom.cpu.kernels.fourier.axes import AxisTransform
from hloom.cpu.kernels.fourier.butterflies import Pair, multiply
from hloom.cpu.kernels.fourier.passes import Transform

BLOCK: Final = 512
"""Elements of a task."""


class Spectra(Transform):
    """Emits the step between transforms of pairs and spectra; lanes are neighboring elements."""

    def __init__(self, module: Module, function: Function, axis: AxisTransform) -> None:
        super().__init__(module, function, axis, axis.lanes, axis.part, axis.lanes)

    def emit(self) -> int:
        """Emit the kernel's loop over blocks of elements of all rows; return its trip count."""
        f, axis = self.f, self.axis
        blocks = -(-self.n // BLOCK)
        with f.loop(self.begin, self.end) as loop:
            row = loop.index.unsigned_divide(blocks)
            block = loop.index - row * blocks
            source = self.at(self.source, row * axis.elements(axis.source))
            target = self.at(self.target, row * axis.elements(axis.target))
            with f.when(block.compare("eq", 0)):
                self.ends(source, target)
            self.block(block, source, target)
        return axis.outer * blocks

    def ends(self, source: Value, target: Value) -> None:
        """Emit element 0 and, of a spectrum, the last one: both are real."""
        f, last = self.f, 2 * self.n
        first = f.load(self.part, source)
        if self.axis.target == "spectrum":
            second = f.load(self.part, self.at(source, 1))
            for index, value in ((0, first + second), (last, first - second)):
                f.store(value, self.at(target, index))
                f.store(f.constant(self.part, 0.0), self.at(target, index + 1))
        else:
            second = f.load(self.part, self.at(source, last))
            f.store((first + second) * 0.5, target)
            f.store((first - second) * 0.5, self.at(target, 1))

    def block(self, block: Value, source: Value, target: Value) -> None:
        """Emit the elements k = 1 + BLOCK block + r, 0 <= r < BLOCK, that are less than n."""
        f, lanes = self.f, self.lanes
        far = self.rotation(self.turns("coarse", -(-self.n // BLOCK), BLOCK, 1), block)
        fine = self.turns("fine", BLOCK, 1, 0)
        numbers = f.constant(I64.vector(lanes), list(range(lanes)))
        start = block * BLOCK + 1
        rest = self.n_value - start
        count = rest.compare("slt", BLOCK).select(rest, f.constant(I64, BLOCK))
        with f.loop(0, count, lanes) as loop:
            k = start + loop.index
            valid = numbers.compare("slt", (self.n_value - k).splat(lanes))
            near = self.near(fine, loop.index)
            w = multiply(f, near, (far[0].splat(lanes), far[1].splat(lanes)))
            a = self.pairs(self.at(source, k * 2), valid)
            order = list(range(lanes))[::-1]
            opposite = self.at(source, (self.n_value - k - (lanes - 1)) * 2)
            real, imaginary = self.pairs(opposite, valid.shuffle(order))
            b = real.shuffle(order), imaginary.shuffle(order)
            combine = self.joined if self.axis.target == "spectrum" else self.separated
            result = combine(a, b, w)
            both = valid.shuffle([n // 2 for n in range(2 * lanes)])
            masked_store(result[0].interleave(result[1]), self.at(target, k * 2), both)

    def pairs(self, address: Value, valid: Value) -> Pair:
        """Emit the load of complex numbers in the valid lanes; return real and imaginary parts."""
        both = valid.shuffle([n // 2 for n in range(2 * self.lanes)])
        return masked_load(self.part.vector(2 * self.lanes), address, both).deinterleave()

    def turns(self, kind: str, count: int, step: int, first: int) -> Value:
        """Return the address of a table of exp(-pi i (first + step k) / n), k < count; see `rotations`."""
        turns = first + step * np.arange(count)
        return self.rotations(f"{kind}_half_turns_{self.n}", -np.pi * turns / self.n)

    def rotation(self, table: Value, block: Value) -> Pair:
        """Emit the load of the coarse rotation of a block."""
        address = self.at(table, block)
        return self.f.load(self.part, address), self.f.load(self.part, self.at(address, -(-self.n // BLOCK)))

    def near(self, table: Value, index: Value) -> Pair:
        """Emit the load of the fine rotations of neighboring elements."""
        address = self.at(table, index)
        return self.f.load(self.wide, address), self.f.load(self.wide, self.at(address, BLOCK))
