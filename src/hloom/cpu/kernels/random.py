"""rng-bit-generator: vectors of counters per iteration.

Threefry-2x32 and Philox-4x32 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(2011), with counters laid out as `hloom.operations.random` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.llvm import I32, I64, PTR, Function, Module, Value, make_type
from hloom.codegen.llvm.memory import masked_store
from hloom.codegen.llvm.structured import choose
from hloom.codegen.loops import LoopKernel
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.operations.random import RngBitGenerator
from hloom.plan.kernel import KernelPlan
from hloom.records import dataclass

LANES: Final = 16
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY: Final = 0x1BD11BDA
_PHILOX_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True, slots=True)
class WordLayout:
    """The arrangement of the random words of an rng-bit-generator in its result.

    Each counter value gives ``words`` random words; consecutive counter values form rows. The words of a
    counter value are either adjacent in the result, or two at neighboring indices of a dimension that is not
    the last.

    Attributes:
        threefry: whether the algorithm is Threefry-2x32; otherwise it is Philox-4x32.
        bits: width of a random word, 32 or 64.
        stored: width in bits of an element of the result in memory.
        random_bits: number of random bits in an element; less than ``bits`` if words are truncated.
        rows: number of rows of counter values.
        counters: number of counter values in a row.
        words: number of random words per counter value.
        length: if ``word_distance`` is 1, the number of elements of the result for each row of counter
            values; else the size of the dimension along which the words of a counter value are neighbors.
        word_distance: distance, in elements of the result, between the words of one counter value; 1 if
            adjacent.
    """

    threefry: bool
    bits: int
    stored: int
    random_bits: int
    rows: int
    counters: int
    words: int
    length: int
    word_distance: int

    @property
    def blocks(self) -> int:
        """Return the total number of counter values that the generator uses."""
        return self.rows * self.counters


def layout_of(i: HloInstruction) -> WordLayout:
    """Return how the random words of the rng-bit-generator ``i`` are arranged in its result."""
    output = i.shape.tuple_shapes[1]
    random_bits = output.element_type.bits
    sizes = output.dimensions
    bits, stored, count = 64 if random_bits == 64 else 32, max(8, random_bits), math.prod(sizes)
    if operation_of(i, RngBitGenerator).algorithm != "rng_three_fry":
        words = 128 // bits
        return WordLayout(False, bits, stored, random_bits, 1, -(-count // words), words, count, 1)
    if bits == 64 or not sizes:
        return WordLayout(True, bits, stored, random_bits, 1, count, 1, count, 1)
    even = [axis for axis, size in enumerate(sizes) if size % 2 == 0]
    axis = even[0] if even else sizes.index(max(sizes))
    half, inner, outer = (sizes[axis] + 1) // 2, math.prod(sizes[axis + 1 :]), math.prod(sizes[:axis])
    if inner != 1:
        return WordLayout(True, bits, stored, random_bits, outer * half, inner, 2, sizes[axis], inner)
    if sizes[axis] % 2 == 0:
        return WordLayout(True, bits, stored, random_bits, 1, outer * half, 2, count, 1)
    return WordLayout(True, bits, stored, random_bits, outer, half, 2, sizes[axis], 1)


@KERNELS.register("rng-bit-generator")
def emit_bits(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit an rng-bit-generator: stores of the next state, and a kernel that stores the random bits."""
    i = plan.instruction
    layout = layout_of(i)
    state, after = program.pointer(i.operands[0]), program.pointer(i, (0,))
    _advance(program.function, layout, i.operands[0].shape.dimensions[0], state, after)
    if program.view(i, (1,)).count:
        kernel = program.shared(lambda name: _kernel(program.module, name, layout, i))
        program.call(i, kernel, [state, program.pointer(i, (1,))])


def _advance(f: Function, layout: WordLayout, words: int, state: Value, after: Value) -> None:
    """Emit the store of the generator's next state at the address ``after``.

    The state is the key, then the counter, to which the number of counter values used is added. ``words`` is
    the number of u64 in the state: with 2 the counter has 64 bits, with 3 it has 128 bits.
    """
    key, low = f.load(I64, state), f.load(I64, f.offset(state, 1, I64))
    f.store(key, after)
    moved = low + layout.blocks
    f.store(moved, f.offset(after, 1, I64))
    if words == 3:
        high = f.load(I64, f.offset(state, 2, I64))
        f.store(high + moved.compare("ult", low).cast("zext", I64), f.offset(after, 2, I64))


def _kernel(module: Module, name: str, layout: WordLayout, i: HloInstruction) -> LoopKernel:
    """Emit the kernel (state, bits, begin, end) that stores the random bits.

    Its iterations [begin, end) are rows of counter values, or single counter values if they form one row.
    """
    function = module.function(name, [PTR, PTR, I64, I64])
    state, target, begin, end = function.parameters
    emitter = _Bits(function, layout, i.operands[0].shape.dimensions[0], state, target)
    if layout.rows == 1:
        emitter.row(function.constant(I64, 0), begin, end)
        trips, grain = layout.counters, 8 * LANES
    else:
        with function.loop(begin, end) as loop:
            emitter.row(loop.index, function.constant(I64, 0), function.constant(I64, layout.counters))
        trips, grain = layout.rows, 1
    function.finish()
    return LoopKernel(name, trips, grain, layout.blocks * layout.words * 20)


class _Bits:
    """Emits the computation of an rng-bit-generator's random words, and their stores to the result."""

    def __init__(
        self, function: Function, layout: WordLayout, words: int, state: Value, target: Value
    ) -> None:
        self.f, self.layout, self.target = function, layout, target
        self.key = function.load(I64, state)
        self.low = function.load(I64, function.offset(state, 1, I64))
        self.high = function.load(I64, function.offset(state, 2, I64)) if words == 3 else self.key

    def row(self, row: Value, begin: Value, end: Value) -> None:
        """Emit a loop that stores the random words of the counter values [begin, end) of the row ``row``."""
        layout = self.layout
        with self.f.loop(begin, end, LANES) as loop:
            number = row * layout.counters + loop.index
            words = [self.elements(w) for w in self.words(number)]
            if layout.word_distance == 1:
                self.write_together(words, row * layout.length, loop.index, end)
            else:
                self.write_apart(words, row, loop.index, end)

    def elements(self, word: Value) -> Value:
        """Emit the truncation of a vector of random words to elements of the result in their storage type."""
        element = word.cast("trunc", make_type(f"i{self.layout.stored}"))
        return element & ((1 << self.layout.random_bits) - 1) if self.layout.random_bits < 8 else element

    def write_together(self, words: Sequence[Value], start: Value, counter: Value, end: Value) -> None:
        """Emit the store of the random words of a vector of counter values, those of each value side by side.

        Args:
            words: the random words: first a vector with the first word of each counter value, then one with
                the second words, and so on.
            start: index in the result of the first element of the row of counter values.
            counter: index in the row of the first counter value of the vector.
            end: index in the row after the last counter value to store.
        """
        f, count = self.f, len(words)
        kind = words[0].type.scalar
        vector = words[0] if count == 1 else _interleaved(words)
        position = counter * count
        pointer = f.offset(self.target, start + position, kind)
        limit = f.intrinsic("smin", end * count, f.constant(I64, self.layout.length)) - position
        self.store(vector, pointer, limit)

    def write_apart(self, words: Sequence[Value], row: Value, counter: Value, end: Value) -> None:
        """Emit the store of two vectors of random words to neighboring indices of a dimension of the result.

        If the size of this dimension is odd, the second words that would be beyond its end are dropped.

        Args:
            words: two vectors, with the first and the second word of each counter value.
            row: the index of the row of counter values.
            counter: index in that row of the first counter value of the vectors.
            end: index in that row after the last counter value to store.
        """
        f, layout = self.f, self.layout
        kind = words[0].type.scalar
        half = (layout.length + 1) // 2
        outer = row.unsigned_divide(half)
        pair = row - outer * half
        for number, word in enumerate(words):
            line = pair * 2 + number
            position = (outer * layout.length + line) * layout.word_distance + counter
            limit = end - counter
            if number and layout.length % 2:
                limit = line.compare("slt", layout.length).select(limit, 0)
            self.store(word, f.offset(self.target, position, kind), limit)

    def store(self, vector: Value, pointer: Value, limit: Value) -> None:
        """Emit the store to ``pointer`` of a vector, or of its first ``limit`` lanes if it has more."""
        f = self.f
        with choose(f, limit.compare("sge", vector.type.lanes)) as choice:
            f.store(vector, pointer)
            choice.otherwise()
            lanes = vector.type.lanes
            numbers = f.constant(I64.vector(lanes), list(range(lanes)))
            masked_store(vector, pointer, numbers.compare("slt", limit.splat(lanes)))

    def words(self, number: Value) -> list[Value]:
        """Emit the random words of a vector of consecutive counter values.

        The first is the counter in the generator's state plus ``number``. Returns a vector with the first
        word of each counter value, then one with the second words, and so on.
        """
        f = self.f
        lanes = f.constant(I64.vector(LANES), list(range(LANES)))
        low = (self.low + number).splat(LANES) + lanes
        if self.layout.threefry:
            x, y = self.threefry(*_halves(low))
            return [_joined(x, y)] if self.layout.bits == 64 else [x, y][: self.layout.words]
        carry = low.compare("ult", self.low.splat(LANES)).cast("zext", I64)
        high = self.high.splat(LANES) + carry
        w = self.philox([*_halves(low), *_halves(high)])
        return [_joined(w[0], w[1]), _joined(w[2], w[3])] if self.layout.bits == 64 else w

    def threefry(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Emit the twenty rounds of Threefry-2x32; return the two vectors of random words.

        ``x`` and ``y`` are vectors with the two 32-bit words of each counter value.
        """
        low, high = _halves(self.key)
        schedule = [k.splat(LANES) for k in (low, high, low ^ high ^ _signed(_THREEFRY_PARITY))]
        x, y = x + schedule[0], y + schedule[1]
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x = x + y
                amount = self.f.constant(y.type, rotation)
                y = self.f.intrinsic("fshl", y, y, amount) ^ x
            x = x + schedule[(group + 1) % 3]
            y = y + schedule[(group + 2) % 3] + (group + 1)
        return x, y

    def philox(self, counter: list[Value]) -> list[Value]:
        """Emit the ten rounds of Philox-4x32; return the four vectors of random words.

        ``counter`` has four vectors with the 32-bit words of each counter value, the lowest first.
        """
        keys = list(_halves(self.key))
        for _ in range(10):
            low0, high0 = _halves(counter[0].cast("zext", I64) * _PHILOX_MULTIPLIERS[0])
            low1, high1 = _halves(counter[2].cast("zext", I64) * _PHILOX_MULTIPLIERS[1])
            wide = [k.splat(LANES) for k in keys]
            counter = [high1 ^ counter[1] ^ wide[0], low1, high0 ^ counter[3] ^ wide[1], low0]
            keys = [k + _signed(weyl) for k, weyl in zip(keys, _PHILOX_WEYL, strict=True)]
        return counter


def _halves(value: Value) -> tuple[Value, Value]:
    return value.cast("trunc", I32), value.logical_shift_right(32).cast("trunc", I32)


def _joined(low: Value, high: Value) -> Value:
    return low.cast("zext", I64) | (high.cast("zext", I64) << 32)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _interleaved(vectors: Sequence[Value]) -> Value:
    """Emit the interleaving of 2 or 4 vectors: lane 0 of each, then lane 1 of each, and so on."""
    if len(vectors) == 4:
        pairs = [_interleaved(vectors[0:2]), _interleaved(vectors[2:4])]
        lanes = vectors[0].type.lanes
        order = [
            part + 2 * n + 2 * lanes * pair for n in range(lanes) for pair in range(2) for part in range(2)
        ]
        return pairs[0].shuffle(order, pairs[1])
    return vectors[0].interleave(vectors[1])
