"""The builder of LLVM functions: valid code, right results, comparison by structure."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hloom.codegen.llvm import (
    ALWAYS_INLINE,
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    MOST_LANES,
    PTR,
    Attribute,
    ConstantValue,
    Function,
    Module,
    Structure,
    Type,
    Value,
    make_type,
)
from hloom.codegen.llvm.memory import copy_bytes, fill_bytes, gather, masked_load, scatter
from hloom.codegen.llvm.printer import print_function, print_module
from hloom.codegen.target import Target, host
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.jit.loader import LoadedObject
from hloom.errors import HloError

Body = Callable[[Function], Value | None]
TARGETS = {
    "v4": Target.named("x86_64-linux-gnu", "x86-64-v4"),
    "v1": Target.named("x86_64-linux-gnu"),
    "neon": Target.named("aarch64-linux-gnu"),
}


def built(
    body: Body, parameters: Sequence[Type] = (I64, I64), result: Type | None = I64, name: str = "f"
) -> Function:
    """Return a completed function in a separate module."""
    f = Module(host()).function(name, parameters, result, internal=False)
    f.finish(body(f))
    return f


def called(f: Function, *arguments: Any) -> int:
    """Return the result of a function of integers and pointers."""
    loaded = LoadedObject([generate_module(f.module)], {"memcpy": None, "memset": None}.get, f.module.data)
    kinds = [ctypes.c_int64] * len(arguments)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(loaded.symbols[f.name])(*arguments)


# -- types and constants


def test_types_are_interned() -> None:
    assert make_type("float", 4) is F32.vector(4) is F32.vector(8).vector(4)
    assert F32.vector(4).scalar is F32.vector(0) is F32
    assert (F32.vector(4).text, F32.vector(4).suffix, PTR.vector(2).suffix) == (
        "<4 x float>",
        "v4f32",
        "v2p0",
    )
    assert (I1.size, BF16.size, F64.size, make_type("i128").bits) == (1, 2, 8, 128)


def test_vectors_that_llvm_cannot_compile_are_refused() -> None:
    assert F32.vector(MOST_LANES).lanes == MOST_LANES
    with pytest.raises(HloError) as caught:
        F32.vector(MOST_LANES + 1)
    assert caught.value.rule == "codegen.vector-lanes"


def test_constants_can_be_read() -> None:
    f = built(lambda f: f.parameters[0])
    assert f.constant(I32, 5).value == 5
    assert f.constant(F32.vector(4), 2).value == 2.0 and isinstance(f.constant(F32, 2).value, float)
    assert f.constant(I32.vector(2), [1, 2]).value == (1, 2)
    splat = f.constant(I32, 7).splat(4)
    assert isinstance(splat, ConstantValue) and (splat.value, splat.type) == (7, I32.vector(4))


def test_equal_constants_are_one_object() -> None:
    f = built(lambda f: f.parameters[0])
    assert f.constant(I32, 5) is f.constant(I32, 5)
    assert f.constant(F32, float("nan")) is f.constant(F32, float("nan"))
    assert f.constant(F32, 0.0) is not f.constant(F32, -0.0)
    assert f.constant(F32.vector(2), [0.0, 1.0]) is not f.constant(F32.vector(2), [-0.0, 1.0])
    assert f.constant(I32, 1) is not f.constant(I64, 1)


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (I32, -3, "-3"),
        (I1, True, "1"),
        (F32, 0.1, "0x3FB99999A0000000"),
        (F64, 0.1, "0x3FB999999999999A"),
        (F64, -0.0, "0x8000000000000000"),
        (F32, math.inf, "0x7FF0000000000000"),
        (F64, -math.nan, "0xFFF8000000000000"),
        (F16, 1.5, "0xH3E00"),
        (BF16, 1.5, "0xR3FC0"),
        (PTR, 0, "null"),
        (PTR, 64, "inttoptr (i64 64 to ptr)"),
        (I8.vector(4), 1, "splat (i8 1)"),
        (F32.vector(2), [-0.0, 1], "<float 0x8000000000000000, float 0x3FF0000000000000>"),
    ],
)
def test_texts_of_constants_are_exact(type: Type, value: Any, text: str) -> None:
    assert built(lambda f: f.parameters[0]).constant(type, value).text() == text


# -- instructions


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (lambda a, b: a + b * 2 - 1, 40 + 14 - 1),
        (lambda a, b: 100 - a, 60),
        (lambda a, b: (a << 3) | (b & 1) ^ 1, 320),
        (lambda a, b: (-a >> 1).logical_shift_right(60), 15),
        (lambda a, b: (~a).signed_remainder(b), -41 % -7),
        (lambda a, b: a.unsigned_divide(b) * 100 + a.unsigned_remainder(b), 505),
        (lambda a, b: (a / b) * 10, 50),
        (lambda a, b: a.compare("sgt", b).select(a, 0), 40),
        (lambda a, b: a.compare("slt", 8).select(a, b), 7),
        (lambda a, b: a.cast("trunc", I8).cast("sext", I64).cast("sext", I64), 40),
        (lambda a, b: a.cast("sitofp", F64).bitcast(I64).bitcast(F64).cast("fptosi", I64), 40),
        (lambda a, b: (a.splat(4) + b.function.constant(I64.vector(4), [0, 1, 2, 3])).extract(3), 43),
        (lambda a, b: a.splat(2).insert(b, 1).shuffle([1, 3], b.splat(2).insert(a, 1)).extract(1), 40),
        (lambda a, b: a.splat(2).insert(b, 0).extract(a & 1), 7),
        (lambda a, b: a.function.fma(a.cast("sitofp", F64), 0.5, -1).cast("fptosi", I64), 19),
        (lambda a, b: a.function.intrinsic("smax", a, b), 40),
    ],
)
def test_values_have_operators(body: Callable[[Value, Value], Value], wanted: int) -> None:
    assert called(built(lambda f: body(*f.parameters)), 40, 7) == wanted


def test_select_needs_a_value() -> None:
    f = built(lambda f: f.parameters[0])
    with pytest.raises(TypeError):
        f.parameters[0].compare("eq", 0).select(1, 2)


def test_memory() -> None:
    def body(f: Function) -> Value:
        place = f.allocate(I64, 8)
        fill_bytes(place, f.constant(I8, 0), 64)
        f.store(f.parameters[0], f.offset(place, 1, I64))
        f.store(f.parameters[1].splat(2), f.offset(place, 2, I64))
        other = f.allocate(I64)
        copy_bytes(other, f.offset(place, 8), 8)
        lanes = f.constant(I64.vector(4), [3, 2, 1, 0])
        gathered = gather(I64.vector(4), f.offset(place, lanes, I64))
        scatter(gathered, f.offset(place, lanes, I64), f.constant(I1.vector(4), [1, 0, 0, 0]))
        inside = masked_load(
            I64.vector(2), place, f.constant(I1.vector(2), [1, 0]), f.constant(I64.vector(2), 1)
        )
        total = f.load(I64, f.offset(place, 3, I64)) + f.load(I64, other) + inside.extract(1)
        assert f.offset(place, 0) is place
        return total

    assert called(built(body), 40, 7) == 7 + 40 + 1


def test_addresses_become_integers_and_back() -> None:
    def body(f: Function) -> Value:
        place = f.allocate(I64)
        f.store(f.parameters[0], place)
        return f.load(I64, f.convert("inttoptr", f.convert("ptrtoint", place, I64), PTR))

    assert called(built(body), 3, 0) == 3


def test_stack_memory_and_constants_are_aligned_as_the_target_wants() -> None:
    f = built(lambda f: f.load(I64, f.allocate(I64)))
    f.module.constant_bytes("c", b"\0\x7f")
    assert "alloca i64, i64 1, align 64" in print_function(f)
    assert '@c = private unnamed_addr constant [2 x i8] c"\\00\\7f", align 64' in print_module(f.module)


def test_long_constants_stay_outside() -> None:
    f = built(lambda f: f.load(I64, f.address("long")))
    f.module.constant_bytes("long", (77).to_bytes(8192, "little"))
    assert "@long = external hidden constant [8192 x i8], align 64" in print_module(f.module)
    assert called(f) == 77


# -- control flow


def test_loops_carry_values() -> None:
    def body(f: Function) -> Value:
        low, high = f.parameters
        with f.loop(low, high, 2, [f.constant(I64, 100), f.constant(I64, 0)]) as loop:
            total, count = loop.values
            with f.loop(0, loop.index, 1, [total]) as inner:
                inner.next(inner.values[0] + 1)
            loop.next(inner.values[0], count + 1)
        return loop.values[0] * 10 + loop.values[1]

    assert called(built(body), 1, 6) == (100 + 1 + 3 + 5) * 10 + 3
    assert called(built(body), 6, 1) == 1000


def test_a_loop_that_raises_is_left_open() -> None:
    f = Module(host()).function("f", [])
    with pytest.raises(KeyError), f.loop(0, 4):
        raise KeyError


def test_branches_join_in_phi_nodes() -> None:
    def body(f: Function) -> Value:
        a, b = f.parameters
        yes, no, after = f.new_block(), f.new_block(), f.new_block()
        f.branch(a.compare("slt", b), yes, no)
        f.start(yes)
        doubled = a * 2
        f.jump(after)
        f.start(no)
        f.split_block()
        end = f.block
        f.jump(after)
        f.start(after)
        return f.phi(I64, [(doubled, yes), (b, end)])

    assert (called(built(body), 3, 4), called(built(body), 4, 3)) == (6, 3)


def test_switches() -> None:
    def body(f: Function) -> Value:
        chooser, given = f.parameters
        blocks, after = [f.new_block() for _ in range(3)], f.new_block()
        f.switch(chooser, [(0, blocks[0]), (5, blocks[1])], blocks[2])
        incoming: list[tuple[Value, Any]] = []
        for number, block in enumerate(blocks):
            f.start(block)
            incoming.append((given + number, block))
            f.jump(after)
        f.start(after)
        return f.phi(I64, incoming)

    assert [called(built(body), n, 10) for n in (0, 5, 9)] == [10, 11, 12]


def test_code_under_conditions() -> None:
    def body(f: Function) -> None:
        pointer, flag = f.parameters
        with f.when(flag.compare("eq", 1)):
            f.store(f.constant(I64, 1), pointer)
        f.return_if(flag.compare("eq", 2))
        f.store(f.load(I64, pointer) + 10, pointer)

    place = (ctypes.c_int64 * 1)()
    f = built(body, (PTR, I64), None)
    for flag, wanted in ((0, 10), (1, 11), (2, 0)):
        place[0] = 0
        called(f, ctypes.addressof(place), flag)
        assert place[0] == wanted


def test_calls_know_their_callees() -> None:
    module = Module(host())
    twice = module.function("twice", [I64], I64, attributes=[ALWAYS_INLINE])
    twice.finish(twice.parameters[0] * 2)
    f = module.function("f", [I64], I64, internal=False)
    once = f.call(I64, twice, f.parameters[0])
    f.finish(f.call(I64, "twice", once, attributes=(Attribute("nounwind"),)))
    assert called(f, 5) == 20
    assert list(f.symbols) == ["twice"] and not module.declarations
    assert "define internal i64 @twice(i64 %0) alwaysinline #0 {" in print_module(module)
    assert "call i64 @twice(i64 %1) nounwind" in print_module(module)


def test_functions_that_are_not_there_are_declared_once() -> None:
    f = built(lambda f: f.call(I64, "outside", *f.parameters) + f.call(I64, "outside", *f.parameters))
    assert print_module(f.module).count("declare i64 @outside(i64, i64)") == 1


def test_declarations_have_attributes() -> None:
    module = Module(host())
    attributes = [Attribute("cold"), Attribute("key", "value")]
    module.declare(
        "g", I32, [I64, PTR], attributes=attributes, parameter_attributes={1: (Attribute("noalias"),)}
    )
    assert 'declare i32 @g(i64, ptr noalias) cold "key"="value"' in print_module(module)


def test_stack_memory_has_values_at_the_beginning() -> None:
    def body(f: Function) -> Value:
        with f.loop(0, 3):
            place = f.allocate(I64)
            f.initialize(place, f.constant(I64, 5))
            f.store(f.load(I64, place) + 1, place)
        f.return_if(f.load(I64, place).compare("ne", 8), 1)
        return f.load(I64, place)

    assert called(built(body), 0, 0) == 8


def test_parameters_have_attributes() -> None:
    f = built(lambda f: None, [PTR], None)
    f.parameters[0].attributes = (Attribute("noalias"),)
    assert "define void @f(ptr noalias %0) #0 {" in print_function(f)


def _scaled_difference(f: Function) -> Value:
    first, second, factor = f.parameters
    return (f.load(I64, first) - f.load(I64, second)) * factor


def test_callers_may_pass_pointers_in_an_array() -> None:
    numbers = (ctypes.c_int64 * 2)(50, 8)
    places = [ctypes.addressof(numbers), ctypes.addressof(numbers) + 8]
    array = (ctypes.c_void_p * 2)(*places)
    direct = built(_scaled_difference, [PTR, PTR, I64])
    packed = built(_scaled_difference, [PTR, PTR, I64])
    packed.pack_parameters(2)
    assert [t.text for t in packed.parameter_types] == ["ptr", "i64"]
    assert packed.size == direct.size + 3, "two loads and one address"
    assert called(direct, *places, 3) == called(packed, ctypes.addressof(array), 3) == 126
    again, other = (built(_scaled_difference, [PTR, PTR, I64]) for _ in range(2))
    again.pack_parameters(2)
    other.pack_parameters(1)
    assert Structure(packed) == Structure(again)
    assert len({Structure(f) for f in (direct, packed, other)}) == 3


@pytest.mark.parametrize("target", TARGETS)
def test_scalar_code_compiles_for_every_target(target: str) -> None:
    module = Module(TARGETS[target])
    f = module.function("f", [F64, F64], F64, internal=False)
    f.finish(f.fma(f.parameters[0], f.parameters[1], 1.0))
    assert generate_module(module)
    assert f'"prefer-vector-width"="{8 * module.target.vector_bytes}"' in print_module(module)


# -- texts


def test_texts_are_the_same_every_time() -> None:
    f = built(lambda f: f.parameters[0] * f.load(I64, f.allocate(I64)))
    first = print_module(f.module)
    assert print_module(f.module) == first
    assert (
        print_function(f)
        == """define i64 @f(i64 %0, i64 %1) #0 {
entry:
  %2 = alloca i64, i64 1, align 64
  %3 = load i64, ptr %2, align 8
  %4 = mul i64 %0, %3
  ret i64 %4
}
"""
    )


# -- structure


def product(f: Function) -> Value:
    """Build a loop with a constant, a call, stack memory and a phi node."""
    place = f.allocate(I64)
    with f.loop(0, f.parameters[0], 1, [f.constant(I64, 1)]) as loop:
        loop.next(loop.values[0] * f.parameters[1] + f.constant(I64, 3))
    f.store(f.intrinsic("smax", loop.values[0], loop.index), place)
    return f.load(I64, place)


def test_functions_of_the_same_structure_are_equal() -> None:
    f, g = built(product), built(product, name="other")
    print_function(f)
    assert Structure(f) == Structure(g) and hash(Structure(f)) == hash(Structure(g))
    assert len({Structure(f): 1, Structure(g): 2}) == 1
    assert Structure(f) != "f"


def test_the_order_of_blocks_that_were_made_does_not_matter() -> None:
    def body(extra: bool) -> Body:
        def emit(f: Function) -> Value:
            if extra:
                f.new_block()
                f.constant(I64, 1)
            with f.when(f.parameters[0].compare("eq", 1)):
                f.store(f.parameters[0], f.allocate(I64))
            return f.parameters[1]

        return emit

    assert Structure(built(body(False))) == Structure(built(body(True)))


DIFFERENT: dict[str, tuple[Body, Body]] = {
    "operands": (lambda f: f.parameters[0] - f.parameters[1], lambda f: f.parameters[1] - f.parameters[0]),
    "opcodes": (lambda f: f.parameters[0] - f.parameters[1], lambda f: f.parameters[0] + f.parameters[1]),
    "numbers": (lambda f: f.parameters[0] - 1, lambda f: f.parameters[0] - 2),
    "zeros": (
        lambda f: f.constant(F64, 0.0).bitcast(I64),
        lambda f: f.constant(F64, -0.0).bitcast(I64),
    ),
    "types": (
        lambda f: f.parameters[0].cast("trunc", I8).cast("sext", I64),
        lambda f: f.parameters[0].cast("trunc", I32).cast("sext", I64),
    ),
    "flags": (
        lambda f: f.flagged_binary("add", ("nsw",), *f.parameters),
        lambda f: f.flagged_binary("add", ("nuw",), *f.parameters),
    ),
    "predicates": (
        lambda f: f.parameters[0].compare("slt", 1).cast("zext", I64),
        lambda f: f.parameters[0].compare("ult", 1).cast("zext", I64),
    ),
    "lanes": (
        lambda f: f.parameters[0].splat(4).shuffle([0, 1]).extract(0),
        lambda f: f.parameters[0].splat(4).shuffle([1, 0]).extract(0),
    ),
    "alignments": (
        lambda f: f.load(I64, f.allocate(I64), align=8),
        lambda f: f.load(I64, f.allocate(I64), align=4),
    ),
    "elements": (
        lambda f: f.load(I64, f.offset(f.allocate(I64, 9), 1, I64)),
        lambda f: f.load(I64, f.offset(f.allocate(I64, 9), 1, I32)),
    ),
    "stacks": (lambda f: f.load(I64, f.allocate(I64, 2)), lambda f: f.load(I64, f.allocate(I64, 3))),
    "callees": (lambda f: f.call(I64, "g"), lambda f: f.call(I64, "h")),
    "globals": (lambda f: f.load(I64, f.address("g")), lambda f: f.load(I64, f.address("h"))),
    "blocks": (
        lambda f: _branching(f, swapped=False),
        lambda f: _branching(f, swapped=True),
    ),
}


def _branching(f: Function, *, swapped: bool) -> Value:
    a, b = f.new_block(), f.new_block()
    f.branch(f.parameters[0].compare("eq", 0), *((b, a) if swapped else (a, b)))
    f.start(a)
    f.jump(b)
    f.start(b)
    return f.parameters[1]


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_of_different_structure_are_not_equal(name: str) -> None:
    one, other = (built(body) for body in DIFFERENT[name])
    assert Structure(one) == Structure(built(DIFFERENT[name][0]))
    assert Structure(one) != Structure(other)


def test_signatures_and_attributes_count() -> None:
    def body(f: Function) -> Value:
        return f.constant(I64, 1)

    plain = Structure(built(body))
    assert plain != Structure(built(body, [I64, I32]))
    inline = built(body)
    inline.attributes = (ALWAYS_INLINE,)
    assert plain != Structure(inline)
