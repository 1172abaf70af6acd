"""Random numbers: rng, rng-bit-generator, rng-get-and-update-state.

The generators are those of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(2011): Threefry-2x32 of 20 rounds and Philox-4x32 of 10 rounds. Counters are laid out as XLA lays them
out, so that the bits are the same.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from hloom.error_bounds.bounded import finite, is_inexact_type
from hloom.error_bounds.floating import ulp
from hloom.error_bounds.rules import ULPS, no_bound
from hloom.errors import ShapeError
from hloom.ir.codec import enum, integer
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.operations.rounding import convert
from hloom.shape.element_type import U64, ElementType
from hloom.shape.shape import Shape

Words: TypeAlias = npt.NDArray[np.uint32]

DISTRIBUTIONS: Final = ("rng_invalid", "rng_uniform", "rng_normal")
ALGORITHMS: Final = {"rng_default": 0, "rng_three_fry": 1, "rng_philox": 2}

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_THREEFRY_PARITY: Final = np.uint32(0x1BD11BDA)
_PHILOX_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


# -- the generators


def _split(words: object) -> tuple[Words, Words]:
    """Return the lower and upper halves of 64-bit words."""
    wide = np.asarray(words, np.uint64)
    return wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)


def _join(low: Words, high: Words) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def threefry_2x32(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """Return two random words per counter of two words, by Threefry-2x32 with 20 rounds."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _THREEFRY_PARITY)
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = x ^ y
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox_4x32(key: tuple[int, int], counter: tuple[Words, ...]) -> tuple[Words, ...]:
    """Return four random words per counter of four words, by Philox-4x32 with 10 rounds."""
    for number in range(10):
        keys = [np.uint32((k + number * weyl) % 2**32) for k, weyl in zip(key, _PHILOX_WEYL)]
        low0, high0 = _split(counter[0].astype(np.uint64) * _PHILOX_MULTIPLIERS[0])
        low1, high1 = _split(counter[2].astype(np.uint64) * _PHILOX_MULTIPLIERS[1])
        counter = (high1 ^ counter[1] ^ keys[0], low1, high0 ^ counter[3] ^ keys[1], low0)
    return counter


def threefry_bits(key: int, counter: int, shape: tuple[int, ...], bits: int) -> tuple[Array, int]:
    """Return random words of 32 or 64 bits and the next counter.

    A 64-bit word comes from one counter. For 32-bit words one dimension (the first even one, else the
    first of the largest) is halved, rounding up, and every counter gives two neighbours along it.
    """
    key_words = _split(np.uint64(key))
    if bits == 64:
        return _join(*threefry_2x32(key_words, _split(_counters(counter, shape)))), counter + math.prod(shape)
    if not shape:
        return threefry_2x32(key_words, _split(_counters(counter, (1,))))[0].reshape(()), counter + 1
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    axis = even[0] if even else shape.index(max(shape))
    half = (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])
    pair = threefry_2x32(key_words, _split(_counters(counter, half)))
    words = np.stack(pair, axis=axis + 1).reshape(*shape[:axis], 2 * half[axis], *shape[axis + 1 :])
    return words[(slice(None),) * axis + (slice(0, shape[axis]),)], counter + math.prod(half)


def _counters(start: int, shape: tuple[int, ...]) -> Array:
    """Return 64-bit counters from ``start`` on, in row-major order."""
    return (np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(start)).reshape(shape)


def philox_bits(key: int, counter: int, shape: tuple[int, ...], bits: int) -> tuple[Array, int]:
    """Return random words of 32 or 64 bits and the next 128-bit counter; each counter gives 128 bits."""
    count = math.prod(shape)
    blocks = -(-count * bits // 128)
    low = _counters(counter % 2**64, (blocks,))
    carry = low < np.uint64(counter % 2**64)
    high = np.uint64(counter >> 64) + carry.astype(np.uint64)
    words = philox_4x32((key % 2**32, key >> 32), (*_split(low), *_split(high)))
    if bits == 64:
        columns: tuple[Array, ...] = (_join(words[0], words[1]), _join(words[2], words[3]))
    else:
        columns = words
    return np.stack(columns, axis=-1).reshape(-1)[:count].reshape(shape), (counter + blocks) % 2**128


class RandomState:
    """The 128-bit counter of the stateful operations of one evaluation.

    It starts at the same value in every evaluation, so that results are reproducible.
    """

    __slots__ = ("counter",)
    INITIAL: ClassVar[int] = 0x7012395

    def __init__(self) -> None:
        self.counter = self.INITIAL

    def advance(self, steps: int) -> int:
        """Advance the counter; return its previous value."""
        before = self.counter
        self.counter = (before + steps) % 2**128
        return before


# -- the operations


@operation("rng", "a b *obsolete")
class Rng(Operation):
    """Random numbers of a distribution from an unspecified generator; each evaluation gives new ones.

    Arguments:
        a, b: scalars of the result's type: the interval [a, b) of rng_uniform, mean and standard deviation of
            rng_normal.
        obsolete: in old texts, the dimensions of the result; such a program can be read but not run.
        distribution: rng_uniform or rng_normal.
    """

    family: ClassVar[Family] = Family.RANDOM
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    distinct: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    side_effect: ClassVar[bool] = True
    distribution: str = enum(DISTRIBUTIONS)

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for two scalars of the result's type."""
        if len(operands) > 2:
            raise ShapeError(f"rng takes two parameters, got {len(operands)}", rule="rng.parameters")
        for operand in operands:
            if not (operand.is_array and operand.is_scalar and operand.element_type is shape.element_type):
                message = f"the parameters must be scalars of the type of {shape}, got {operand}"
                raise ShapeError(message, rule="rng.parameters")
        kind = shape.element_type
        if self.distribution == "rng_invalid":
            raise ShapeError("the distribution must be rng_uniform or rng_normal", rule="rng.distribution")
        is_uniform_integer = (kind.is_integer or kind.is_predicate) and self.distribution == "rng_uniform"
        if not (kind.is_floating or is_uniform_integer):
            message = f"{self.distribution} numbers cannot be of type {kind.name}"
            raise ShapeError(message, rule="rng.element-type")

    def roundoff_of(self, instruction: HloInstruction) -> Roundoff:
        """Return that normal numbers come from functions; uniform ones are exact."""
        return Roundoff.FUNCTION if self.distribution == "rng_normal" else Roundoff.NONE

    def errors(self, run: ErrorRun) -> Array:
        """Bound the functions and the addition of the mean, or of the end of the interval."""
        if not is_inexact_type(run.value):
            raise no_bound(run)
        return ULPS * ulp(2 * finite(run.operands[0].value) + finite(run.value), run.value.dtype)

    def evaluate(self, run: Run, a: Array, b: Array) -> Array:
        """Draw Philox bits; scale mantissas or take remainders for uniform, Box-Muller for normal numbers."""
        shape = run.shape.dimensions
        count = math.prod(shape)
        if self.distribution == "rng_normal":
            one, other = (_unit_interval(run, count) for _ in range(2))
            radius = np.sqrt(-2.0 * np.log(1.0 - one))
            standard = (radius * np.cos(2.0 * math.pi * other)).reshape(shape)
            return convert(a.astype(np.float64) + b.astype(np.float64) * standard, run.dtype)
        if run.shape.element_type.is_floating:
            low, high = a.astype(np.float64), b.astype(np.float64)
            values = convert(low + (high - low) * _unit_interval(run, count).reshape(shape), run.dtype)
            # Rounding may reach the excluded end of the interval.
            return np.where((values >= b) & (a < b), a, values).astype(run.dtype)
        words, _ = philox_bits(0, run.random_state.advance(count), (count,), 64)
        low, high = int(a), int(b)
        offsets = words % np.uint64(max(1, high - low))
        return convert((np.uint64(low % 2**64) + offsets).reshape(shape), run.dtype)


def _unit_interval(run: Run, count: int) -> npt.NDArray[np.float64]:
    """Return uniform numbers in [0, 1) of 53 random bits."""
    words, _ = philox_bits(0, run.random_state.advance(count), (count,), 64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@operation("rng-bit-generator", "initial_state")
class RngBitGenerator(Operation):
    """Uniformly distributed bits as a pure function of a state: (next state, bits).

    The first word of the state is the key, the rest the counter, which advances by the number of blocks used.

    Arguments:
        initial_state: u64[2] for rng_three_fry, u64[2] or u64[3] for rng_philox and rng_default.
        algorithm: rng_three_fry, rng_philox, or rng_default, which here is rng_philox.
    """

    family: ClassVar[Family] = Family.RANDOM
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    infers: ClassVar[bool] = False
    algorithm: str = enum(ALGORITHMS, proto="rng_algorithm")

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for a state of the algorithm's size, and a pair of it and an array of bits."""
        (state,) = operands
        sizes = (2,) if self.algorithm == "rng_three_fry" else (2, 3)
        if (
            not state.is_array
            or state.element_type is not U64
            or state.rank != 1
            or state.dimensions[0] not in sizes
        ):
            state_shapes = " or ".join(f"u64[{size}]" for size in sizes)
            raise ShapeError(
                f"the state of {self.algorithm} is {state_shapes}, got {state}",
                rule="rng-bit-generator.state",
            )
        leaves = shape.tuple_shapes
        if len(leaves) != 2 or not leaves[0].compatible(state):
            message = f"the result must be a pair of {state} and bits, got {shape}"
            raise ShapeError(message, rule="rng-bit-generator.result")
        bits = leaves[1].element_type
        if not (bits.is_integer or bits.is_floating):
            message = f"bits must be of an integer or floating type, got {leaves[1]}"
            raise ShapeError(message, rule="rng-bit-generator.element-type")

    def evaluate(self, run: Run, initial_state: Array) -> Value:
        """Draw 64-bit words for 64-bit types, else 32-bit words, whose low bits are kept."""
        output = run.shape.tuple_shapes[1]
        bits = 64 if output.element_type.bits == 64 else 32
        state = [int(word) for word in initial_state]
        key = state[0]
        if self.algorithm == "rng_three_fry":
            words, counter = threefry_bits(key, state[1], output.dimensions, bits)
            after = [key, counter % 2**64]
        else:
            # A state of two words is a counter whose upper half is the key.
            high = state[2] if len(state) == 3 else key
            words, counter = philox_bits(key, state[1] + (high << 64), output.dimensions, bits)
            after = [key, counter % 2**64, counter >> 64][: len(state)]
        return np.array(after, np.uint64), _reinterpret(words, output.element_type)


def _reinterpret(words: Array, element_type: ElementType) -> Array:
    """Return the low bits of words as values of a type."""
    if element_type.bits < 8:
        low_bits = (words & np.uint32(2**element_type.bits - 1)).astype(np.uint8)
        if element_type.is_signed:
            sign = np.uint8(2 ** (element_type.bits - 1))
            return ((low_bits ^ sign).view(np.int8) - sign.view(np.int8)).astype(element_type.numpy_dtype)
        if element_type.is_floating:
            return low_bits.view(element_type.numpy_dtype)
        return low_bits.astype(element_type.numpy_dtype)
    unsigned: object = np.dtype(f"u{element_type.bytes}")
    return np.ascontiguousarray(words.astype(unsigned)).view(element_type.numpy_dtype).reshape(words.shape)


@operation("rng-get-and-update-state")
class RngGetAndUpdateState(Operation):
    """The state of the device's generator, which then advances by ``delta``.

    The state has 128 bits and is returned as u64[2] with the lower word first.

    Arguments:
        delta: added to the state.
    """

    family: ClassVar[Family] = Family.RANDOM
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    distinct: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    side_effect: ClassVar[bool] = True
    delta: int = integer()

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for u64[2]."""
        if not shape.is_array or shape.element_type is not U64 or shape.dimensions != (2,):
            message = f"the state is u64[2], got {shape}"
            raise ShapeError(message, rule="rng-get-and-update-state.shape")

    def evaluate(self, run: Run) -> Array:
        """Return the state before the update."""
        state = run.random_state.advance(self.delta)
        return np.array([state % 2**64, state >> 64], np.uint64)
