"""The allocator of results and arenas, which reuses freed blocks.

Fresh memory costs a page fault per page, often more time than the computation that fills it. There are four
block sizes per power of two. Callers hold the GIL or another lock.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes, fill_bytes
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import is_null
from hloom.cpu.runtime.structs import BLOCK, RECYCLED

_MOST_BYTES: Final = 1 << 47
"""Size of the address space, which bounds allocations."""
_HUGE_BYTES, _HUGE_PAGE, _PAGE = 1 << 22, 1 << 21, 1 << 12
"""Size from which blocks are aligned to huge pages, and their data to pages, so that loops over them
may store past the caches; the sizes of pages."""
_ADVISE_HUGE_PAGES: Final = 14
posix_memalign: Final = External("posix_memalign", I32, PTR, I64, I64)
madvise: Final = External("madvise", I32, PTR, I64, I32)
free: Final = External("free", VOID, PTR)


def _size_of(f: Function, bytes: Value) -> tuple[Value, Value]:
    """Emit the computation of (size, index of the size class) of the smallest block that holds ``bytes``.

    Blocks have four sizes per power of two, the size classes. ``bytes`` include the block's header.
    """
    below = bytes + (BLOCK.alignment - 1)
    leading = f.call(I64, "llvm.ctlz.i64", below, f.constant(I1, 0))
    exponent = f.constant(I64, 64) - leading  # 2^exponent is the least power of two that holds the block
    step_exponent = exponent - 3
    step = f.constant(I64, 1) << step_exponent
    steps = (below + step).logical_shift_right(step_exponent)  # 5 to 8
    return steps << step_exponent, (exponent << 2) + (steps - 5)


def _block_of(f: Function, data: Value) -> Fields:
    return Fields(BLOCK, f.offset(data, -BLOCK.size))


def _data_of(f: Function, block: Fields) -> Value:
    return f.offset(block.pointer, BLOCK.size)


@routine(PTR, exported=True, memory=RECYCLED, bytes=I64)
def hloom_take(f: Function, memory: Fields, bytes: Value) -> Value:
    """Emit a routine that allocates memory, aligned to 64 bytes; it returns null if memory is short."""
    f.return_if(bytes.compare("ugt", _MOST_BYTES), 0)
    is_huge = bytes.compare("uge", _HUGE_BYTES)
    before = is_huge.select(f.constant(I64, _PAGE), BLOCK.size)
    size, size_class = _size_of(f, bytes + before)
    reused = Fields(BLOCK, memory.load("free", size_class))
    with f.when(~is_null(reused.pointer)):
        memory.store("free", size_class, reused["next"])
        memory["free_bytes"] = memory["free_bytes"] - size
        f.return_value(_data_of(f, reused))
    address = f.allocate(PTR)
    alignment = is_huge.select(f.constant(I64, _HUGE_PAGE), BLOCK.alignment)
    f.return_if(posix_memalign(f, address, alignment, size).compare("ne", 0), 0)
    start = f.load(PTR, address)
    with f.when(is_huge):
        madvise(f, start, size, _ADVISE_HUGE_PAGES)
    block = _block_of(f, f.offset(start, before))
    block["start"] = start
    block["bytes"], block["size_class"] = size, size_class
    return _data_of(f, block)


@routine(exported=True, memory=RECYCLED, data=PTR)
def hloom_give(f: Function, memory: Fields, data: Value) -> None:
    """Emit a routine that takes back memory of `hloom_take`; it ignores null.

    It keeps the memory for reuse, or frees it if too much is kept already.
    """
    f.return_if(is_null(data))
    block = _block_of(f, data)
    free_bytes = memory["free_bytes"] + block["bytes"]
    with f.when(free_bytes.compare("ugt", memory["limit"])):
        free(f, block["start"])
        f.return_value()
    memory["free_bytes"] = free_bytes
    size_class = block["size_class"]
    block["next"] = memory.load("free", size_class)
    memory.store("free", size_class, block)


# -- numpy's memory handler (PyDataMemAllocator, NEP 49)


@routine(PTR, exported=True, memory=RECYCLED, bytes=I64)
def hloom_memory_malloc(f: Function, memory: Fields, bytes: Value) -> Value:
    """Emit the ``malloc`` of NumPy's memory handler; it returns null if memory is short."""
    return hloom_take(f, memory, bytes)


@routine(PTR, exported=True, memory=RECYCLED, count=I64, each=I64)
def hloom_memory_calloc(f: Function, memory: Fields, count: Value, each: Value) -> Value:
    """Emit the ``calloc`` of NumPy's memory handler, for ``count`` elements of ``each`` bytes.

    It returns null if memory is short or the size overflows.
    """
    most = f.constant(I64, _MOST_BYTES).unsigned_divide(f.intrinsic("umax", each, f.constant(I64, 1)))
    f.return_if(count.compare("ugt", most), 0)
    bytes = count * each
    data = hloom_take(f, memory, bytes)
    with f.when(~is_null(data)):
        fill_bytes(data, f.constant(I8, 0), bytes)
    return data


@routine(PTR, exported=True, memory=RECYCLED, old=PTR, bytes=I64)
def hloom_memory_realloc(f: Function, memory: Fields, old: Value, bytes: Value) -> Value:
    """Emit the ``realloc`` of NumPy's memory handler, which copies a block to a new one of ``bytes`` bytes.

    If memory is short, it returns null and keeps the old block.
    """
    data = hloom_take(f, memory, bytes)
    with f.when(~(is_null(data) | is_null(old))):
        block = _block_of(f, old)
        before = old.cast("ptrtoint", I64) - block["start"].cast("ptrtoint", I64)
        copy_bytes(data, old, f.intrinsic("umin", block["bytes"] - before, bytes))
        hloom_give(f, memory, old)
    return data


@routine(exported=True, memory=RECYCLED, data=PTR, bytes=I64)
def hloom_memory_free(f: Function, memory: Fields, data: Value, bytes: Value) -> None:
    """Emit the ``free`` of NumPy's memory handler; it takes the block's size from a header, not ``bytes``."""
    hloom_give(f, memory, data)
