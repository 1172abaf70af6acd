"""Random choices: element types, sizes, layouts and the values of arrays.

The key of a case determines its choices, so that a case can be drawn again alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from hloom.shape.element_type import ElementType

Array = np.ndarray[Any, Any]
T = TypeVar("T")

SIGNED = ("s2", "s4", "s8", "s16", "s32", "s64")
UNSIGNED = ("u2", "u4", "u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
WIDE_FLOATS = ("bf16", "f16", "f32", "f64")
NARROW_FLOATS = (
    "f4e2m1fn", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4",
    "f8e8m0fnu",
)  # fmt: skip
FLOATS = WIDE_FLOATS + NARROW_FLOATS
COMPLEX = ("c64", "c128")
EVERY = ("pred", *INTEGERS, *FLOATS, *COMPLEX)
"""Element types of arrays. s1 and u1 are missing: XLA:CPU treats them as pred."""
INDEX_TYPES = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")


class Draw:
    """The random choices of one case.

    Args:
        key: the objects that determine the choices: seed, family, number.
        restricted: whether programs on which XLA is known to fail are avoided.
        types: the element types to which operands are limited, where a generator can have them; empty for
            all.
    """

    def __init__(self, *key: object, restricted: bool = True, types: Sequence[str] = ()) -> None:
        self.restricted = restricted
        self.types = types
        self._choose = random.Random(":".join(map(str, key)))
        self.numbers = np.random.default_rng(self._choose.getrandbits(64))

    def one(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return self._choose.choice(options)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._choose.random() < probability

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, inclusive."""
        return self._choose.randint(low, high)

    def subset(self, options: Sequence[T], size: int | None = None) -> list[T]:
        """Return `size` of the options, by default a random number of them, in random order."""
        count = self.integer(0, len(options)) if size is None else size
        return self._choose.sample(list(options), count)

    def permutation(self, size: int) -> list[int]:
        """Return a random permutation of the numbers below `size`."""
        return self.subset(range(size), size)

    # -- shapes

    def element_type(self, options: Sequence[str]) -> str:
        """Return one of the options, among those to which the draw is limited if it can have any of them."""
        return self.one([t for t in options if t in self.types] or options)

    def size(self, largest: int) -> int:
        """Return the size of a dimension, at most `largest`: sometimes 0, often 1."""
        if self.chance(0.03):
            return 0
        return 1 if self.chance(0.15) else self.integer(1, largest)

    def sizes(self, low: int = 0, high: int = 4, largest: int = 6, most: int = 300) -> tuple[int, ...]:
        """Return dimensions, of a rank from `low` to `high`, of an array of at most `most` elements."""
        while True:
            dimensions = tuple(self.size(largest) for _ in range(self.integer(low, high)))
            if math.prod(dimensions) <= most:
                return dimensions

    def shape(self, element_type: str, sizes: Sequence[int]) -> str:
        """Return the text of an array shape; one in three has a random layout."""
        text = f"{element_type}[{','.join(map(str, sizes))}]"
        if len(sizes) > 1 and self.chance(0.3):
            text += "{" + ",".join(map(str, self.permutation(len(sizes)))) + "}"
        return text

    # -- values

    def any_values(self, element_type: str, sizes: Sequence[int]) -> Array:
        """Return values of all kinds: special values, extremes, random bit patterns, ordinary numbers."""
        kind = ElementType.parse(element_type)
        if kind.is_complex:
            part = kind.component.name
            return compose(self.any_values(part, sizes), self.any_values(part, sizes))
        if kind.is_predicate:
            return np.asarray(self.numbers.integers(0, 2, sizes)).astype(np.bool_)
        sources = [
            self.small_values(element_type, sizes),
            self._patterns(kind, sizes),
            self._specials(kind, sizes),
        ]
        if kind.is_floating:
            sources.append(self.ordinary_values(element_type, sizes))
        mixed = np.choose(self.numbers.integers(0, len(sources), sizes), sources)
        return np.asarray(mixed).astype(kind.numpy_dtype)

    def small_values(self, element_type: str, sizes: Sequence[int], largest: int = 4) -> Array:
        """Return whole numbers of magnitude up to `largest`, whose sums and products are exact."""
        kind = ElementType.parse(element_type)
        if kind.is_complex:
            part = kind.component.name
            return compose(self.small_values(part, sizes, largest), self.small_values(part, sizes, largest))
        if kind.is_predicate:
            return np.asarray(self.numbers.integers(0, 2, sizes)).astype(np.bool_)
        low, high = (-largest, largest) if not kind.is_unsigned else (0, largest)
        if kind.is_integer:
            low, high = max(low, int(kind.limits[0])), min(high, int(kind.limits[1]))
        if element_type == "f8e8m0fnu":
            return np.asarray(np.exp2(self.numbers.integers(-2, 3, sizes))).astype(kind.numpy_dtype)
        return np.asarray(self.numbers.integers(low, high + 1, sizes)).astype(kind.numpy_dtype)

    def ordinary_values(self, element_type: str, sizes: Sequence[int], largest: float = 4.0) -> Array:
        """Return numbers of magnitude up to `largest`; for integer types, whole numbers."""
        kind = ElementType.parse(element_type)
        if kind.is_complex:
            part = kind.component.name
            return compose(self.ordinary_values(part, sizes), self.ordinary_values(part, sizes))
        if not kind.is_floating:
            return self.small_values(element_type, sizes)
        return np.asarray(self.numbers.uniform(-largest, largest, sizes)).astype(kind.numpy_dtype)

    def values(self, element_type: str, sizes: Sequence[int]) -> Array:
        """Return values for operations that only move elements: any, ordinary or small ones."""
        return self.one([self.any_values, self.small_values, self.ordinary_values])(element_type, sizes)

    def _patterns(self, kind: ElementType, sizes: Sequence[int]) -> Array:
        count = math.prod(sizes)
        octets = self.numbers.integers(0, 256, count * kind.bytes, dtype=np.uint8)
        if kind.bits >= 8:
            return octets.view(kind.numpy_dtype).reshape(sizes)
        if kind.is_floating:
            return (octets & np.uint8((1 << kind.bits) - 1)).view(kind.numpy_dtype).reshape(sizes)
        return (
            (octets.astype(np.int64) % (1 << kind.bits) + int(kind.limits[0]))
            .astype(kind.numpy_dtype)
            .reshape(sizes)
        )

    def _specials(self, kind: ElementType, sizes: Sequence[int]) -> Array:
        return self.numbers.choice(special_values(kind), tuple(sizes))


def special_values(kind: ElementType) -> Array:
    """Return values on which operations of a real number type are likely to be wrong."""
    if kind.is_integer:
        low, high = kind.limits
        bits = kind.bits
        numbers = [0, 1, 2, 3, low, low + 1, high, high - 1, high // 2, bits - 1, bits, bits + 1]
        numbers += [-1, -2, -bits] if kind.is_signed else []
        return np.array([n for n in numbers if low <= n <= high], object).astype(kind.numpy_dtype)
    with np.errstate(all="ignore"):
        largest = float(kind.limits[1])
        tiny = 2.0 ** -(2 ** (min(kind.bits, 11) // 2))
        some = [
            0.0,
            1.0,
            0.5,
            1.5,
            2.5,
            3.5,
            np.inf,
            np.nan,
            largest,
            largest / 2,
            2.0,
            tiny,
            math.pi,
            1e-3,
            10.0,
        ]
        some += [
            100.0,
            127.0,
            128.5,
            255.0,
            256.0,
            1e4,
            65504.0,
            2.0**31,
            2.0**32,
            2.0**53,
            2.0**63,
            2.0**64,
            1e-30,
        ]
        both = np.array([*some, *(-number for number in some)])
        edges = np.array([1, 2, 3], np.uint64) if kind.bits > 8 else np.array([1], np.uint64)
        near_zero = edges.astype(f"u{kind.bytes}").view(kind.numpy_dtype)
        return np.concatenate([both.astype(kind.numpy_dtype), near_zero])


def compose(real: Array, imag: Array) -> Array:
    """Return complex numbers from real and imaginary parts, bit for bit."""
    result = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    result.real, result.imag = real, imag
    return result
