"""Recycled memory: sizes of blocks, reuse, the limit, and numpy's four functions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hloom.codegen.structs import Record
from hloom.cpu.runtime.structs import BLOCK, RECYCLED
from hloom.cpu.runtime.support import support

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_uint64
_LIMIT: Final = 1 << 20
_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "hloom_take": (_POINTER, _POINTER, _SIZE),
    "hloom_give": (None, _POINTER, _POINTER),
    "hloom_memory_malloc": (_POINTER, _POINTER, _SIZE),
    "hloom_memory_calloc": (_POINTER, _POINTER, _SIZE, _SIZE),
    "hloom_memory_realloc": (_POINTER, _POINTER, _POINTER, _SIZE),
    "hloom_memory_free": (None, _POINTER, _POINTER, _SIZE),
}


class Memory:
    """Recycled memory for one test, and the blocks that the test has taken."""

    def __init__(self) -> None:
        self.record = RECYCLED.allocate(limit=_LIMIT)
        self.blocks: set[int] = set()

    def call(self, name: str, *arguments: int) -> int:
        function = ctypes.CFUNCTYPE(*_TYPES[name])(support().symbols[name])
        return function(self.record.address, *arguments) or 0

    def take(self, size: int) -> int:
        address = self.call("hloom_take", size)
        self.blocks.add(address)
        return address

    def give(self, address: int) -> None:
        self.blocks.discard(address)
        self.call("hloom_give", address)


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.record["limit"] = 0
    for address in list(memory.blocks):
        memory.give(address)


def header(address: int) -> Record:
    return BLOCK.record(address - BLOCK.size)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 4096, 100_000, (1 << 20) + 1, 5 << 20])
def test_a_block_has_room_and_wastes_at_most_a_fourth(memory: Memory, size: int) -> None:
    address = memory.take(size)
    assert address % 64 == 0
    assert size + BLOCK.size <= header(address)["bytes"] <= (size + BLOCK.size + BLOCK.alignment) * 5 / 4
    ctypes.memset(address, 0xFF, size)


def test_huge_blocks_begin_at_a_huge_page_and_their_data_at_a_page(memory: Memory) -> None:
    address = memory.take(4 << 20)
    assert header(address)["start"] % (2 << 20) == 0
    assert address % 4096 == 0


def test_classes_are_distinct_sizes(memory: Memory) -> None:
    sizes_of_class: dict[int, set[int]] = {}
    for size in range(0, 20_000, 61):
        block = header(memory.take(size))
        sizes_of_class.setdefault(block["size_class"], set()).add(block["bytes"])
    assert all(len(sizes) == 1 for sizes in sizes_of_class.values())
    sizes = [next(iter(sizes_of_class[number])) for number in sorted(sizes_of_class)]
    assert sizes == sorted(set(sizes))


def test_the_last_block_given_is_the_first_taken_again(memory: Memory) -> None:
    first, second, third = (memory.take(1000) for _ in range(3))
    for address in (first, second):
        memory.give(address)
    assert memory.record["free_bytes"] == 2 * header(third)["bytes"]
    assert [memory.take(1000), memory.take(1000)] == [second, first]
    assert memory.record["free_bytes"] == 0


def test_blocks_beyond_the_limit_are_freed(memory: Memory) -> None:
    block, other = memory.take(_LIMIT // 2), memory.take(_LIMIT // 2)
    memory.give(block)
    free_bytes = memory.record["free_bytes"]
    memory.give(other)
    assert 0 < memory.record["free_bytes"] == free_bytes <= _LIMIT


@pytest.mark.parametrize("size", [(1 << 47) + 1, 1 << 63, (1 << 64) - 1])
def test_no_memory_is_larger_than_the_address_space(memory: Memory, size: int) -> None:
    assert memory.call("hloom_take", size) == 0
    assert memory.call("hloom_memory_malloc", size) == 0


def test_calloc_clears_blocks_that_are_used_again(memory: Memory) -> None:
    address = memory.take(800)
    ctypes.memset(address, 0xFF, 800)
    memory.give(address)
    assert memory.call("hloom_memory_calloc", 100, 8) == address
    assert ctypes.string_at(address, 800) == bytes(800)
    memory.blocks.add(address)


@pytest.mark.parametrize(("count", "size"), [(1 << 32, 1 << 32), (1 << 63, 2), ((1 << 64) - 1, 3)])
def test_calloc_refuses_products_that_overflow(memory: Memory, count: int, size: int) -> None:
    assert memory.call("hloom_memory_calloc", count, size) == 0


@pytest.mark.parametrize(("before", "size"), [(200, 10), (200, 5000), (200, 5 << 20), (5 << 20, 6 << 20)])
def test_realloc_moves_the_content(memory: Memory, before: int, size: int) -> None:
    content = (bytes(range(200)) * before)[:before]
    address = memory.call("hloom_memory_malloc", len(content))
    ctypes.memmove(address, content, len(content))
    moved = memory.call("hloom_memory_realloc", address, size)
    memory.blocks.add(moved)
    common = min(size, len(content))
    assert ctypes.string_at(moved, common) == content[:common]
    assert (memory.record["free_bytes"] > 0) == (before < _LIMIT)


def test_null_is_no_block(memory: Memory) -> None:
    memory.give(0)
    memory.call("hloom_memory_free", 0, 10)
    assert memory.record["free_bytes"] == 0
    memory.blocks.add(memory.call("hloom_memory_realloc", 0, 100))


def test_realloc_without_memory_keeps_the_old_block(memory: Memory) -> None:
    address = memory.take(100)
    ctypes.memset(address, 7, 100)
    assert memory.call("hloom_memory_realloc", address, 1 << 63) == 0
    assert ctypes.string_at(address, 100) == bytes([7]) * 100
