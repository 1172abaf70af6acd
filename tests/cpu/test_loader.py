"""Object files in memory: references between objects, tables, jumps, and damaged files."""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Callable

import pytest

from hloom.codegen.target import Target, host
from hloom.cpu.jit.cache import Entry
from hloom.cpu.jit.llvm import generate
from hloom.cpu.jit.loader import Image, LoadedObject
from hloom.cpu.jit.relocation import LoadError
from hloom.cpu.loaded_program import LoadedProgram

AARCH64 = Target.named("aarch64-linux-gnu", "neoverse-v2")
X86_64 = Target.named("x86_64-linux-gnu", "x86-64-v3")
FOREIGN = X86_64 if host().architecture == AARCH64.architecture else AARCH64
"""A target that is not this machine's."""
PLUS_ONE = "define i64 @plus_one(i64 %x) {\n %y = add i64 %x, 1\n ret i64 %y\n}\n"
PLUS_TWO = """
declare i64 @plus_one(i64)
define i64 @plus_two(i64 %x) {
  %y = call i64 @plus_one(i64 %x)
  %z = call i64 @plus_one(i64 %y)
  ret i64 %z
}
"""


def nothing(name: str) -> int | None:
    return None


def function(loaded: LoadedObject, name: str) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.symbols[name])


def test_code_runs() -> None:
    loaded = LoadedObject([generate(PLUS_ONE, host())], nothing)
    assert function(loaded, "plus_one")(41) == 42


def test_objects_call_each_other() -> None:
    loaded = LoadedObject([generate(PLUS_TWO, host()), generate(PLUS_ONE, host())], nothing)
    assert function(loaded, "plus_two")(40) == 42


def test_code_calls_functions_from_outside() -> None:
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 10 * x)
    address = ctypes.cast(outside, ctypes.c_void_p).value
    loaded = LoadedObject([generate(PLUS_TWO, host())], {"plus_one": address}.get)
    assert function(loaded, "plus_two")(3) == 300


def test_data_stands_for_symbols() -> None:
    text = """
@numbers = external hidden constant [2 x i64], align 64
define i64 @second(i64 %x) {
  %p = getelementptr i64, ptr @numbers, i64 1
  %y = load i64, ptr %p
  ret i64 %y
}
"""
    loaded = LoadedObject([generate(text, host())], nothing, {"numbers": struct.pack("<qq", 5, 7)})
    assert function(loaded, "second")(0) == 7
    assert loaded.symbols["numbers"] % 64 == 0


def test_data_that_code_writes() -> None:
    text = """
@count = internal global i64 5
@zeros = internal global [9000 x i8] zeroinitializer
define i64 @next(i64 %x) {
  %old = load i64, ptr @count
  %new = add i64 %old, %x
  store i64 %new, ptr @count
  %last = getelementptr i8, ptr @zeros, i64 8992
  store i64 %new, ptr %last
  ret i64 %new
}
"""
    next_number = function(loaded := LoadedObject([generate(text, host())], nothing), "next")
    assert [next_number(1), next_number(10)] == [6, 16]
    assert loaded.size > 9000


def test_addresses_of_functions_come_from_a_table() -> None:
    text = PLUS_ONE + "declare void @outside()\ndefine ptr @where() {\n ret ptr @outside\n}\n"
    text += "define ptr @here() {\n ret ptr @plus_one\n}\n"
    loaded = LoadedObject([generate(text, host())], lambda name: 1 << 45 if name == "outside" else None)
    where, here = (ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.symbols[n])() for n in ("where", "here"))
    assert (where, here) == (1 << 45, loaded.symbols["plus_one"])


def mapped(address: int) -> bool:
    """Return whether an address is one of code; data may have taken the place of code that is gone."""
    with open("/proc/self/maps") as lines:
        code = (line.split()[0].split("-") for line in lines if "x" in line.split()[1])
        return any(int(low, 16) <= address < int(high, 16) for low, high in code)


def test_memory_goes_with_the_object() -> None:
    loaded = LoadedObject([generate(PLUS_ONE, host())], nothing)
    address = loaded.symbols["plus_one"]
    assert mapped(address)
    del loaded
    gc.collect()
    assert not mapped(address)


# -- objects that cannot be loaded


def refusal(objects: list[bytes]) -> str:
    with pytest.raises(LoadError) as caught:
        LoadedObject(objects, nothing)
    return caught.value.rule


def test_a_symbol_that_nobody_defines() -> None:
    assert refusal([generate(PLUS_TWO, host())]) == "cpu.object-symbol"


def test_an_entry_of_the_cache_without_facts() -> None:
    with pytest.raises(LoadError) as caught:
        LoadedProgram(Entry({}, [generate(PLUS_ONE, host())]))
    assert caught.value.rule == "cpu.object-facts"


def test_a_symbol_defined_twice() -> None:
    code = generate(PLUS_ONE, host())
    assert refusal([code, code]) == "cpu.object-duplicate"


@pytest.mark.parametrize(
    ("objects", "rule"),
    [
        ([], "cpu.object-machine"),
        ([b""], "cpu.object-format"),
        ([b"\x7fELF" + bytes(100)], "cpu.object-format"),
        ([generate(PLUS_ONE, FOREIGN)], "cpu.object-machine"),
        ([generate(PLUS_ONE, FOREIGN), generate(PLUS_TWO, host())], "cpu.object-machine"),
    ],
)
def test_what_is_no_object_for_this_machine(objects: list[bytes], rule: str) -> None:
    assert refusal(objects) == rule


def test_cut_off_files_are_errors() -> None:
    code = generate(PLUS_TWO + PLUS_ONE.replace("plus_one", "own"), host())
    for length in range(20, len(code), 7):
        with pytest.raises(LoadError):
            LoadedObject([code[:length]], nothing)


# -- other machines


def instructions(memory: bytearray, start: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}I", memory, start))


def branch_target(address: int, word: int) -> int:
    """Return the target of BL or B."""
    distance = word & 0x03FFFFFF
    return address + 4 * (distance - (1 << 26) if distance >> 25 else distance)


def page_address(address: int, page: int, low: int) -> int:
    """Return the address that ADRP, then ADD or LDR with eight-byte elements, compute."""
    pages = (page >> 5 & 0x7FFFF) << 2 | page >> 29 & 3
    pages = pages - (1 << 21) if pages >> 20 else pages
    scale = 3 if low >> 24 == 0xF9 else 0
    return (address & ~4095) + 4096 * pages + ((low >> 10 & 0xFFF) << scale)


@pytest.mark.parametrize("outside", [0x7000_0000, 1 << 45])
def test_aarch64_calls_reach_near_and_far(outside: int) -> None:
    image = Image([generate(PLUS_TWO, AARCH64)], {})
    memory, base = bytearray(image.size), 0x7100_0000
    symbols = image.write(memory, base, {"plus_one": outside}.get)
    start = symbols["plus_two"]
    words = instructions(memory, start - base, 8)
    calls = [(start + 4 * n, word) for n, word in enumerate(words) if word >> 26 == 0b100101]
    (target, *_) = {branch_target(address, word) for address, word in calls}
    if outside < 1 << 40:
        assert target == outside
    else:
        load, jump, literal = struct.unpack_from("<IIQ", memory, target - base)
        assert (load, jump, literal) == (0x58000050, 0xD61F0200, outside)


def test_aarch64_addresses() -> None:
    text = "@word = external hidden constant i64, align 8\ndeclare void @outside()\n"
    text += "define ptr @own() {\n ret ptr @word\n}\ndefine ptr @other() {\n ret ptr @outside\n}\n"
    image = Image([generate(text, AARCH64)], {"padding": bytes(5000), "word": bytes(8)})
    memory, base = bytearray(image.size), 0x7100_0000
    symbols = image.write(memory, base, {"outside": 1 << 45}.get)
    found: dict[str, int] = {}
    for name in ("own", "other"):
        page, low, _ = instructions(memory, symbols[name] - base, 3)
        found[name] = page_address(symbols[name], page, low)
    assert found["own"] == symbols["word"]
    assert struct.unpack_from("<Q", memory, found["other"] - base) == (1 << 45,)


def test_far_calls_of_this_machine_go_by_a_jump() -> None:
    image = Image([generate(PLUS_TWO, Target.named("x86_64-linux-gnu"))], {})
    memory, base = bytearray(image.size), 0x10_0000
    symbols = image.write(memory, base, {"plus_one": 1 << 45}.get)
    start = symbols["plus_two"] - base
    call = memory.index(b"\xe8", start)
    jump = call + 5 + struct.unpack_from("<i", memory, call + 1)[0]
    assert memory[jump : jump + 6] == b"\xff\x25\0\0\0\0"
    assert struct.unpack_from("<Q", memory, jump + 6) == (1 << 45,)
