"""Small lookup tables in vector registers, read by permutations in place of gathers.

Processors load the lanes of a gather one after the other. A table that fits in a few registers is loaded once
before a loop, and a permutation looks up a whole vector of indices: AVX2 permutes the words of one register,
AVX-512 those of two. Larger tables take several permutations, and high bits of the index select between their
results. Elements narrower than a word are shifted out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.llvm import I1, I32, I64, Function, Type, Value, make_type
from hloom.codegen.llvm.memory import masked_load
from hloom.codegen.target import Target, has_avx512
from hloom.codegen.vector_math.reals import in_registers
from hloom.records import dataclass

MOST_PERMUTATIONS: Final = 4
"""Maximum number of permutations of a lookup: tables of 128 words with AVX-512, and of 32 with AVX2.

A million f32 lookups on a Cascade Lake take 0.18 ms in a table of 64 elements, 0.21 ms in one of 128, and
0.33 ms with eight permutations; scalar loads take 0.50 ms. With AVX2 alone they take 0.20 ms in a table of 32
and 0.42 ms in one of 64; scalar loads take 0.38 ms.
"""


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """A table in registers.

    Attributes:
        stored: the type of an element in memory.
        words: the registers, in order.
    """

    stored: Type
    words: Sequence[Value]

    def look_up(self, index: Value) -> Value:
        """Return the elements at a vector of indices into the table."""
        stored, word = self.stored, self.words[0].type.scalar
        lanes = index.type.lanes
        if index.type.scalar is not word:
            index = index.cast("trunc", word)
        if stored.size == word.size:
            return self._permuted(index).bitcast(stored.vector(lanes))
        count = word.size // stored.size
        words = self._permuted(index.logical_shift_right(count.bit_length() - 1))
        shifted = words.logical_shift_right((index & (count - 1)) * stored.bits)
        return shifted.cast("trunc", make_type(f"i{stored.bits}")).bitcast(stored.vector(lanes))

    def _permuted(self, index: Value) -> Value:
        """Return the words at a vector of indices of any length."""
        lanes, most = index.type.lanes, self.words[0].type.lanes
        if lanes < most:
            padded = index.shuffle([*range(lanes), *[-1] * (most - lanes)])
            return self._in_register(padded).shuffle(range(lanes))
        return in_registers(self._in_register, index)

    def _in_register(self, index: Value) -> Value:
        """Return the words at a vector of indices that fills a register."""
        reads = _registers_read(index.function.target)
        parts = [_permute(self.words[n : n + reads], index) for n in range(0, len(self.words), reads)]
        bit = reads * index.type.lanes
        while len(parts) > 1:
            is_odd = _has_bit(index, bit)
            parts = [
                is_odd.select(parts[n + 1], parts[n]) if n + 1 < len(parts) else parts[n]
                for n in range(0, len(parts), 2)
            ]
            bit *= 2
        return parts[0]


def fits_in_registers(target: Target, count: int, stored: Type) -> bool:
    """Return whether permutations are faster than loads for a table of ``count`` elements."""
    if not (has_avx512(target) or (target.has("avx2") and stored.size <= I32.size)):
        return False
    return count * stored.size <= MOST_PERMUTATIONS * _registers_read(target) * target.vector_bytes


def load_table(pointer: Value, count: int, stored: Type) -> RegisterTable:
    """Load a table that fits in registers, without reading memory past its end."""
    f = Function.of(pointer)
    size = f.target.vector_bytes
    word = I64 if stored.size == I64.size else I32
    element = make_type(f"i{stored.bits}")
    lanes = size // stored.size
    words: list[Value] = []
    for first in range(0, count, lanes):
        address, rest = f.offset(pointer, first, element), count - first
        wide = element.vector(lanes)
        if rest >= lanes:
            loaded = f.load(wide, address)
        else:
            mask = f.constant(I1.vector(lanes), [lane < rest for lane in range(lanes)])
            loaded = masked_load(wide, address, mask)
        words.append(loaded.bitcast(word.vector(size // word.size)))
    return RegisterTable(stored, words)


def _registers_read(target: Target) -> int:
    """Return the number of table registers that one permutation instruction reads."""
    return 2 if has_avx512(target) else 1


def _permute(words: Sequence[Value], index: Value) -> Value:
    """Permute the words of one register, or of two with AVX-512, by the low bits of a vector of indices."""
    f, type = index.function, index.type
    if not has_avx512(f.target):
        return f.call(type, "llvm.x86.avx2.permd", *words, index)
    if len(words) == 1:
        suffix = "si" if type.scalar is I32 else "di"
        return f.call(type, f"llvm.x86.avx512.permvar.{suffix}.512", *words, index)
    name = f"llvm.x86.avx512.vpermi2var.{'d' if type.scalar is I32 else 'q'}.512"
    return f.call(type, name, words[0], index, words[1])


def _has_bit(index: Value, bit: int) -> Value:
    """Return whether a bit of an index is set, as the sign of a lane with AVX2, whose blends test signs."""
    if has_avx512(index.function.target):
        return (index & bit).compare("ne", 0)
    return (index << (index.type.bits - bit.bit_length())).compare("slt", 0)
