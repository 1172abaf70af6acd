"""bitcast-expander: a bitcast becomes the pads, reshapes and transposes that its layouts stand for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hloom import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.expand.bitcast_expander import BitcastExpander
from hloom.shape.index import physical_byte_size
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, draw

TYPES = [
    "pred",
    "u1",
    "s2",
    "u4",
    "f4e2m1fn",
    "s8",
    "f8e5m2",
    "bf16",
    "f16",
    "s16",
    "f32",
    "s32",
    "f64",
    "c64",
    "c128",
]


def expanded(text: str) -> HloModule:
    """Return a program without bitcasts, whose results are those of the program, bit by bit."""
    before = parse(text)
    before.verify()
    after = clone_module(before)
    assert BitcastExpander().run(after)
    after.verify()
    assert "bitcast" not in {i.opcode for i in after.instructions()}
    values = [draw(np.random.default_rng(1), p.shape) for p in before.entry.parameters]
    agreement.same(Evaluator().run(after.entry, values), Evaluator().run(before.entry, values))
    return after


def drawn_layouts(random: np.random.Generator) -> tuple[str, str]:
    """Return two shapes of as many bytes, with drawn tiles, orders, paddings and element sizes."""
    while True:
        before = drawn_layout(random)
        size = physical_byte_size(before)
        candidates = (drawn_layout(random) for _ in range(100))
        fitting = (shape for shape in candidates if physical_byte_size(shape) == size)
        for after in itertools.islice(fitting, 1):
            return str(before), str(after)


def drawn_layout(random: np.random.Generator) -> Shape:
    kind = str(random.choice(TYPES))
    rank = int(random.integers(1, 5))
    sizes = random.choice([1, 2, 3, 4, 5, 8], rank).tolist()
    parts = ""
    if random.random() < 0.6:
        tiles = (random.choice([1, 2, 2, 3, 4], random.integers(1, rank + 2)).tolist() for _ in range(2))
        kept = itertools.islice(tiles, int(random.integers(1, 3)))
        parts += "T" + "".join(f"({','.join(map(str, tile))})" for tile in kept)
        parts = parts.replace("(3,", "(*,")
    if random.random() < 0.25:
        parts += f"L({random.choice([2, 4, 16])})"
    if random.random() < 0.4:
        least = 1 if kind == "pred" else Shape.parse(f"{kind}[]").element_type.bits
        parts += f"E({random.choice([n for n in (1, 2, 3, 4, 6, 8, 16, 24, 32, 64, 128) if n >= least])})"
    if random.random() < 0.15:
        padded = ",".join(str(size + random.choice([0, 1])) for size in sizes)
        parts += f"PD({padded}{random.choice(['', ':one', ':lowest'])})"
    order = ",".join(map(str, random.permutation(rank)))
    return Shape.parse(f"{kind}[{','.join(map(str, sizes))}]{{{order}{parts and ':'}{parts}}}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f32[4,6]{0,1}", "f32[3,8]{1,0}"),
        ("f32[4,6]{1,0}", "s32[6,4]{0,1}"),
        ("f32[4,6]{0,1}", "u16[3,16]{0,1}"),
        ("u8[2,8]{1,0}", "f64[2,1]{1,0}"),
        ("s4[4,6]{0,1}", "s4[24]{0}"),
        ("c64[2,3]{0,1}", "c64[6]{0}"),
        ("f32[0,3]{1,0}", "f32[3,0]{1,0}"),
        ("f32[]", "f32[1,1]{1,0}"),
    ],
)
def test_bitcast(before: str, after: str) -> None:
    expanded(f"x = {before} parameter(0)\nROOT r = {after} bitcast(x)")


@pytest.mark.parametrize("layouts", [("T(8)S(1)", "T(8)"), ("T(8)", "T(8)S(1)SC(0:3)"), ("S(1)", "")])
def test_bitcast_to_another_memory_space_is_the_operand(layouts: tuple[str, str]) -> None:
    before, after = (f"s32[6]{{0:{layout}}}" if layout else "s32[6]{0}" for layout in layouts)
    text = f"x = {before} parameter(0)\ny = {before} negate(x)\nROOT r = {after} bitcast(y)"
    expanded(text)
    agree(text, np.arange(6, dtype=np.int32))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f32[4,4]{1,0:T(2,2)}", "f32[16]{0}"),
        ("f32[3,5]{1,0:T(2,2)}", "f32[24]{0}"),
        ("f32[24]{0}", "f32[3,5]{0,1:T(2,2)(2,1)}"),
        ("f32[2,7,8]{2,1,0:T(*,3,2)}", "s32[2,5,3,4]{3,2,1,0}"),
        ("f32[3]{0:L(4)}", "f32[2,2]{0,1}"),
        ("f32[2,3]{1,0:PD(3,5:one)}", "f32[15]{0}"),
        ("f32[5]{0:T(2,4)}", "u8[16,4]{1,0}"),
        ("s4[4]{0:E(4)}", "s8[2]{0}"),
        ("s4[3]{0:E(4)}", "u4[4]{0:E(4)}"),
        ("u2[5]{0:E(4)}", "s4[6]{0:E(4)}"),
        ("pred[11]{0:E(1)}", "u8[2]{0}"),
        ("u16[2]{0}", "pred[32]{0:E(1)}"),
        ("s16[2]{0}", "pred[4]{0}"),
        ("f32[3]{0:E(64)}", "s32[6]{0}"),
        ("c64[2,3]{0,1:T(2)}", "f32[12]{0}"),
        ("f32[4,2]{0,1}", "c64[4]{0:E(64)}"),
        ("c128[2]{0:E(192)}", "c64[6]{0}"),
        ("f16[6]{0:T(4)}", "u32[4]{0}"),
        ("bf16[1,8,16]{2,1,0:T(8,16)(2,1)}", "bf16[8,16]{1,0:T(8,16)(2,1)}"),
        ("bf16[8,1,4]{2,1,0:T(2,4)}", "bf16[64]{0}"),
        ("f32[0,3]{1,0:T(2,2)}", "s16[0]{0}"),
    ],
)  # fmt: skip
def test_bitcast_of_tiles_padding_and_packed_elements(before: str, after: str) -> None:
    text = f"x = {before} parameter(0)\nROOT r = {after} bitcast(x)"
    expanded(text)


def test_bitcast_between_drawn_layouts() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        before, after = drawn_layouts(random)
        text = f"x = {before} parameter(0)\ny = {after} bitcast(x)\nROOT r = {before} bitcast(y)"
        expanded(text)


def test_bitcast_of_dense_arrays_is_a_reshape() -> None:
    text = (
        "x = bf16[1,8,16]{2,1,0:T(8,16)(2,1)} parameter(0)\nROOT r = bf16[8,16]{1,0:T(8,16)(2,1)} bitcast(x)"
    )
    after = expanded(text)
    assert [i.opcode for i in after.entry.instructions] == ["parameter", "reshape"]


def test_bitcast_in_a_callee_reads_the_layout_of_its_parameter() -> None:
    agree(
        """HloModule m
        f { p = s32[2,3]{0,1} parameter(0)
          ROOT r = s32[6]{0} bitcast(p) }
        ENTRY e { x = s32[2,3]{1,0} parameter(0)
          ROOT r = s32[6]{0} call(x), to_apply=f }""",
        np.arange(6, dtype=np.int32).reshape(2, 3),
    )


def test_bitcast_of_elements_of_six_bits() -> None:
    text = "x = f6e3m2fn[4]{0} parameter(0)\nROOT r = u8[4]{0} bitcast(x)"
    with pytest.raises(HloError, match="6 bits") as error:
        BitcastExpander().run(parse(text))
    assert error.value.rule == "bitcast-expander.element-bits"
