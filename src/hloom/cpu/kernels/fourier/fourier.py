"""fft: Stockham passes with lanes across transforms, or along a single one.

Lanes are neighboring columns, or rows that are gathered. A pass of radix r maps the elements at
q + s (p + m k), for all k < r, to those at q + s (r p + k), where n = r m is the length left and s is the
product of the radices of the earlier passes. The output of the last pass is in natural order. An inverse
transform is the forward one with the real and imaginary parts exchanged in operand and result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hloom.codegen.llvm import F32, I1, I8, I64, PTR, Function, Module, Type, Value
from hloom.codegen.llvm.memory import fill_bytes, gather, masked_load, masked_store, scatter
from hloom.codegen.llvm.values import select_lanes
from hloom.codegen.loops import LoopKernel
from hloom.codegen.target import Target
from hloom.cpu.kernels.fourier.axes import (
    AxisTransform,
    axes_of,
    group_count,
    lanes_of,
    scratch_array_count,
    slot_bytes,
    slot_count,
    within_bytes,
)
from hloom.cpu.kernels.fourier.butterflies import Pair, multiply, radices, transform
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.plan.kernel import KernelPlan

Load: TypeAlias = Callable[[Value], Pair]
Store: TypeAlias = Callable[[Value, Pair], None]


def workspace_bytes(i: HloInstruction, machine: Target) -> int:
    """Return the bytes of workspace of an fft, for scratch arrays of long transforms and a half spectrum.

    The half spectrum is the intermediate result of an inverse real transform along several dimensions.
    """
    if not i.shape.element_count:
        return 0
    axes = axes_of(i, machine)
    return max(slot_count(axis) * slot_bytes(axis) for axis in axes) + _spectrum_bytes(i, axes)


def _spectrum_bytes(i: HloInstruction, axes: Sequence[AxisTransform]) -> int:
    if len(axes) == 1 or axes[-1].source not in ("half", "spectrum"):
        return 0
    return -(-2 * axes[0].part.size * i.operands[0].shape.element_count // 64) * 64


@KERNELS.register("fft", workspace=workspace_bytes)
def emit_fft(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit an fft: a kernel and its call for each dimension."""
    i = plan.instruction
    target = program.view(i)
    if not target.count:
        return
    axes = axes_of(i, program.module.target)
    source, result = program.pointer(i.operands[0]), target.pointer
    space = program.workspace(i)
    if not i.operands[0].shape.element_count:
        fill_bytes(result, program.function.constant(I8, 0), program.leaf_size(i))
        return
    spectrum = _spectrum_bytes(i, axes)
    for number, axis in enumerate(axes):
        goal = space if spectrum and number < len(axes) - 1 else result
        kernel = program.shared(lambda name, a=axis: emit_axis(program.module, name, a))
        scratch = program.function.offset(space, spectrum) if spectrum else space
        program.call(i, kernel, [source, goal, scratch])
        source = goal


def emit_axis(module: Module, name: str, axis: AxisTransform) -> LoopKernel:
    """Emit the kernel (source, target, workspace, begin, end) of all transforms along one dimension."""
    function = module.function(name, [PTR] * 3 + [I64, I64])
    emitter = _LanesAlong(module, function, axis) if axis.within else _LanesAcross(module, function, axis)
    trips = emitter.emit()
    function.finish()
    work = 2 * axis.outer * axis.inner * axis.length * max(1, axis.length.bit_length())
    form = "lanes along the transform" if axis.within else f"{lanes_of(axis)} transforms at a time"
    return LoopKernel(name, trips, 1, work, form)


class _Transform:
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
        return pair[1] * (1.0 / self.n), pair[0] * (1.0 / self.n)

    def swap_operand(self, pair: Pair) -> Pair:
        """Return an element of the operand; an inverse transform swaps its real and imaginary parts."""
        return (pair[1], pair[0]) if self.axis.inverse else pair

    def half_turns(self) -> Value:
        """Return the address of a table of exp(-pi i k / n), 0 <= k <= n.

        All real parts come first, then all imaginary parts.
        """
        dtype = np.float32 if self.part is F32 else np.float64
        angle: Array = -np.pi * np.arange(self.n + 1) / self.n
        name = f"half_turns_{self.part.suffix}_{self.n}"
        self.module.constant_bytes(name, np.stack([np.cos(angle), np.sin(angle)]).astype(dtype).tobytes())
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


class _LanesAcross(_Transform):
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
            writes = number == len(self.radices) - 1 and self.axis.target != "spectrum"
            store: Store = self.write if writes else self.writer(self.areas[number % 2])
            self.vertical_pass(n, s, radix, 1, load, store)
            if not writes:
                load = self.reader(self.areas[number % 2])
            n, s = n // radix, s * radix
        if self.axis.target == "spectrum":
            self.join(load)

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


class _LanesAlong(_Transform):
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
