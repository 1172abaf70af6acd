"""Structs and routines: one declaration is the same memory for native code and for Python."""

from __future__ import annotations

import ctypes
import threading
from itertools import pairwise

import pytest

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.declarations import GlobalVariable
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element, store_element
from hloom.codegen.llvm.printer import print_module
from hloom.codegen.llvm.routines import External, Library, State, routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, repeat, section
from hloom.codegen.structs import Array, Contended, Struct
from hloom.codegen.target import host
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.jit.loader import LoadedObject

POINT = Struct("point", x="i32", y="i64")
SHAPE = Struct(
    "shape", tag="i8", count="i32", origin=POINT, lock=Contended("i32"), next="ptr", points=Array(POINT)
)
COUNTS = State("counts", calls=I64)
memset = External("memset", PTR, PTR, I32, I64)


@routine(I64, exported=True, shape=SHAPE)
def sum_of_points(f: Function, shape: Fields) -> Value:
    total = LocalVariable(f, I64, 0)
    with f.loop(0, shape["count"].cast("zext", I64)) as loop:
        point = shape.nested("points", loop.index)
        total.set(total.get() + point["x"].cast("sext", I64) * point["y"])
    return total.get()


@routine(I64, exported=True, shape=SHAPE)
def length(f: Function, shape: Fields) -> Value:
    """Follow a list to its end."""
    node, count = LocalVariable(f, PTR, shape.pointer), LocalVariable(f, I64, 0)
    with repeat(f) as loop:
        loop.leave_if(is_null(node.get()))
        count.set(count.get() + 1)
        node.set(Fields(SHAPE, node.get())["next"])
    return count.get()


@routine(inline=True)
def count_call(f: Function) -> None:
    COUNTS(f).atomic("calls").add(1, "monotonic")


@routine(I64, exported=True, n=I64)
def collatz(f: Function, n: Value) -> Value:
    """Count the steps to 1; -1 for what is not positive."""
    count_call(f)
    f.return_if(n.compare("slt", 1), -1)
    number, steps = LocalVariable(f, I64, n), LocalVariable(f, I64, 0)
    with repeat(f) as loop:
        loop.leave_if(number.get().compare("eq", 1))
        steps.set(steps.get() + 1)
        with choose(f, (number.get() & 1).compare("eq", 0)) as choice:
            number.set(number.get() >> 1)
            choice.otherwise()
            number.set(number.get() * 3 + 1)
    return steps.get()


@routine(I64, exported=True)
def calls(f: Function) -> Value:
    return COUNTS(f)["calls"]


@routine(I64, exported=True, n=I64, m=I64)
def sum_of_lengths(f: Function, n: Value, m: Value) -> Value:
    count_call(f)
    return collatz(f, n) + collatz(f, m)


@routine(exported=True, shape=SHAPE, times=I64)
def increment(f: Function, shape: Fields, times: Value) -> None:
    """Add to the count under the lock, a number of times."""
    with f.loop(0, times):
        with repeat(f) as loop:
            loop.leave_if(shape.atomic("lock").compare_exchange(0, 1, "acquire"))
        shape["count"] = shape["count"] + 1
        shape.atomic("lock").store(0, "release")


@routine(exported=True, shape=SHAPE)
def clear(f: Function, shape: Fields) -> None:
    memset(f, shape, 0, SHAPE.size)


@routine(I64, exported=True, points=PTR, count=I64, wanted=I64, sums=PTR)
def search(f: Function, points: Value, count: Value, wanted: Value, sums: Value) -> Value:
    """Write sums of points up to the first with a number, and return its index; -1 if there is none."""
    index, total = LocalVariable(f, I64, -1), f.allocate_bytes(count * I64.size, align=I64.size)
    with section(f) as unseen:
        with f.loop(0, count) as loop:
            point = Fields(POINT, points).at(loop.index)
            store_element(total, loop.index, point["x"].cast("sext", I64) + point["y"])
            store_element(sums, loop.index, load_element(I64, total, loop.index))
            with f.when(point["y"].compare("eq", wanted)):
                index.set(loop.index)
                unseen.leave()
        unseen.leave_if(is_null(sums))
        store_element(sums, 0, f.constant(I64, 0))
    return index.get()


@pytest.fixture(scope="module")
def code() -> LoadedObject:
    routines = [sum_of_points, length, collatz, calls, increment, clear, search]
    return LoadedObject([generate_module(Library(host()).add(routines))], address_of)


def call(code: LoadedObject, name: str, *arguments: int, result: type = ctypes.c_int64) -> int:
    types = [ctypes.c_int64] * len(arguments)
    return ctypes.CFUNCTYPE(result, *types)(code.symbols[name])(*arguments)


def test_fields_lie_where_c_puts_them() -> None:
    assert {name: field.offset for name, field in POINT.fields.items()} == {"x": 0, "y": 8}
    assert {name: field.offset for name, field in SHAPE.fields.items()} == {
        "tag": 0, "count": 4, "origin": 8, "lock": 128, "next": 256, "points": 264,
    }  # fmt: skip
    assert (POINT.size, SHAPE.size, SHAPE.alignment) == (16, 384, 128)


def test_ctypes_has_the_same_offsets() -> None:
    structure = POINT.ctypes_class
    assert (structure.x.offset, structure.y.offset, ctypes.sizeof(structure)) == (0, 8, 16)


def test_native_code_reads_what_python_wrote(code: LoadedObject) -> None:
    shape = SHAPE.allocate(3, count=3)
    for n, (x, y) in enumerate([(1, 10), (-2, 100), (3, 1 << 40)]):
        point = shape.nested("points", n)
        point["x"], point["y"] = x, y
    assert shape.address % 128 == 0
    assert call(code, "sum_of_points", shape.address) == 10 - 200 + (3 << 40)
    call(code, "clear", shape.address)
    assert shape["count"] == 0


def test_loops_end_at_null(code: LoadedObject) -> None:
    shapes = [SHAPE.allocate() for _ in range(5)]
    for one, following in pairwise(shapes):
        one["next"] = following.address
    assert call(code, "length", shapes[0].address) == 5
    assert call(code, "length", 0) == 0


def test_choices_and_early_returns(code: LoadedObject) -> None:
    before = call(code, "calls")
    assert [call(code, "collatz", n) for n in (-5, 0, 1, 6, 27)] == [-1, -1, 0, 8, 111]
    assert call(code, "calls") - before == 5


def test_sections_are_left_before_their_end(code: LoadedObject) -> None:
    points = POINT.table([{"x": n, "y": 10 * n} for n in range(1, 4)])
    sums = (ctypes.c_int64 * 3)()
    arguments = points[0].address, 3
    assert call(code, "search", *arguments, 20, ctypes.addressof(sums)) == 1
    assert list(sums) == [11, 22, 0]
    assert call(code, "search", *arguments, 5, ctypes.addressof(sums)) == -1
    assert list(sums) == [0, 22, 33]


def test_a_lock_excludes_other_threads(code: LoadedObject) -> None:
    shape = SHAPE.allocate()
    threads = [
        threading.Thread(target=call, args=(code, "increment", shape.address, 20_000)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shape["count"] == 80_000


def test_routines_of_another_module_are_declared() -> None:
    @routine(I64, exported=True)
    def twice(f: Function) -> Value:
        return collatz.external()(f, 3) * 2

    text = print_module(Library(host()).add([twice]))
    assert "declare i64 @collatz(i64)" in text
    assert "define i64 @collatz" not in text


def test_a_module_has_what_its_routines_call_and_nothing_else() -> None:
    library = Library(host()).add([collatz])
    assert set(library.functions) == {"collatz", "count_call"}
    assert "@counts = hidden global [8 x i8] zeroinitializer, align 8" in print_module(library)


def test_linked_modules_share_states_and_exported_routines() -> None:
    first = Library(host()).add([collatz])
    second = Library(host(), first).add([calls, collatz, sum_of_lengths])
    assert set(second.functions) == {"calls", "sum_of_lengths", "count_call"}
    loaded = LoadedObject([generate_module(first), generate_module(second)], address_of)
    assert call(loaded, "sum_of_lengths", 6, 7) == 8 + 16
    assert call(loaded, "calls") == 3


def test_variables_begin_with_bytes() -> None:
    @routine(I64, exported=True, index=I64)
    def element(f: Function, index: Value) -> Value:
        return load_element(I64, f.address("table"), index)

    library = Library(host())
    library.variables["table"] = GlobalVariable("table", 24, 8, (5).to_bytes(8, "little") + b"\1")
    loaded = LoadedObject([generate_module(library.add([element]))], address_of)
    assert [call(loaded, "element", n) for n in range(3)] == [5, 1, 0]


def test_fields_of_other_kinds_are_refused() -> None:
    with pytest.raises(AssertionError, match="origin is a struct"):
        SHAPE.scalar("origin")
    with pytest.raises(KeyError):
        SHAPE.allocate()["missing"]
