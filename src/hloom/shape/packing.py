"""Elements as bytes: little endian, at the width that a layout's E() states.

A memory of `bits`-wide elements is one stream of bits, the lowest bit of the first byte first: two s4
elements share a byte, the first one in its low half.
"""

from __future__ import annotations

import numpy as np

from hloom.errors import ParseError, plural
from hloom.shape.element_type import ElementType

Array = np.ndarray


def bit_patterns(array: Array, element_type: ElementType) -> Array:
    """Return the bit patterns of a 1-D array as unsigned integers; c64 and c128 as pairs."""
    component = element_type.component
    unsigned = np.dtype(f"u{component.bytes}")
    patterns = np.ascontiguousarray(array).view(unsigned)
    if component.bits < 8:
        return patterns & np.uint8((1 << component.bits) - 1)
    return patterns


def pack_elements(array: Array, element_type: ElementType, bits: int) -> bytes:
    """Pack a 1-D array into bytes at `bits` per element; `bits` is at least the width of the type."""
    patterns = bit_patterns(array, element_type)
    container_bits = 8 * element_type.bytes
    if bits == container_bits:
        return patterns.astype(patterns.dtype.newbyteorder("<"), copy=False).tobytes()
    if bits in (1, 2, 4):
        return _pack_fractions(patterns, bits).tobytes()
    octets = patterns.astype(patterns.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    stream = np.unpackbits(octets.reshape(len(array), container_bits // 8), axis=1, bitorder="little")
    sized = np.zeros((len(array), bits), np.uint8)
    sized[:, : min(bits, container_bits)] = stream[:, :bits]
    return np.packbits(sized.reshape(-1), bitorder="little").tobytes()


def unpack_elements(data: bytes, element_type: ElementType, bits: int, count: int) -> Array:
    """Return the 1-D array of `count` elements that `pack_elements` wrote as `data`.

    Raises ParseError if `data` has another length.
    """
    expected = (count * bits + 7) // 8
    if len(data) != expected:
        raise ParseError(
            f"memory for {plural(count, 'element')} of {element_type}, {plural(bits, 'bit')} "
            f"each, has {plural(expected, 'byte')}, got {len(data)}",
            rule="literal.byte-size",
        )
    container_bits = 8 * element_type.bytes
    octets = np.frombuffer(data, np.uint8)
    if bits != container_bits:
        if bits in (1, 2, 4):
            octets = _unpack_fractions(octets, bits, count)
        else:
            stream = np.unpackbits(octets, count=count * bits, bitorder="little").reshape(count, bits)
            sized = np.zeros((count, container_bits), np.uint8)
            sized[:, : min(bits, container_bits)] = stream[:, :container_bits]
            octets = np.packbits(sized.reshape(-1), bitorder="little")
    return _elements_of(octets, element_type)


def _elements_of(octets: Array, element_type: ElementType) -> Array:
    """Return whole bytes read as elements; bits beyond the type's width are dropped."""
    dtype = element_type.numpy_dtype
    if element_type.is_predicate:
        return octets != 0
    if element_type.bits < 8:
        return (octets & np.uint8((1 << element_type.bits) - 1)).view(dtype)
    return octets.copy().view(dtype.newbyteorder("<")).astype(dtype, copy=False)


def _pack_fractions(patterns: Array, bits: int) -> Array:
    """Pack byte-wide patterns, 8 / `bits` to a byte, the first in the lowest bits."""
    each = 8 // bits
    padded = np.zeros(-(-len(patterns) // each) * each, np.uint8)
    padded[: len(patterns)] = patterns
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1)


def _unpack_fractions(octets: Array, bits: int, count: int) -> Array:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((octets[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]
