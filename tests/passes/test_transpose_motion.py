"""transpose-motion: operations between transposes run on the arrays before them, where that moves less."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloom.passes.layout.transpose_motion import TransposeMotion
from tests.native_runs import agree, arguments
from tests.pass_checks import after, opcodes

SIZES = (18, 20, 17)
ORDERS = list(itertools.permutations(range(3)))[1:]


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def dims(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


class Program:
    """A program of arrays transposed in one order and operations on them, as a test draws them."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = order
        self.sizes = tuple(SIZES[d] for d in order)
        self.kind = f"f32[{dims(self.sizes)}]"
        self.lines = [
            f"x = f32[{dims(SIZES)}] parameter(0)",
            f"y = f32[{dims(SIZES)}] parameter(1)",
            "n = s32[] parameter(2)",
            "zero = s32[] constant(0)",
            "half = f32[] constant(0.5)",
            f"a0 = {self.kind} transpose(x), dimensions={{{dims(order)}}}",
            f"a1 = {self.kind} transpose(y), dimensions={{{dims(order)}}}",
        ]
        self.arrays = ["a0", "a1"]

    def add(self, text: str) -> None:
        name = f"a{len(self.arrays)}"
        self.lines.append(f"{name} = {self.kind} {text}")
        self.arrays.append(name)

    def part(self, source: str, dimension: int, start: int, size: int) -> str:
        """Add a slice along a dimension, of the same size in others; return its name."""
        ranges = [f"[0:{s}]" for s in self.sizes]
        ranges[dimension] = f"[{start}:{start + size}]"
        sizes = tuple(size if d == dimension else s for d, s in enumerate(self.sizes))
        name = f"part{len(self.lines)}"
        self.lines.append(f"{name} = f32[{dims(sizes)}] slice({source}), slice={{{', '.join(ranges)}}}")
        return name

    def step(self, kind: str, first: str, second: str, dimension: int) -> None:
        """Add an operation of a kind on two arrays along a dimension."""
        size = self.sizes[dimension]
        along = [0, 0, 0]
        match kind:
            case "add" | "multiply" | "maximum":
                self.add(f"{kind}({first}, {second})")
            case "scaled":
                name = f"factor{len(self.lines)}"
                self.lines.append(f"{name} = {self.kind} broadcast(half), dimensions={{}}")
                self.add(f"multiply({first}, {name})")
            case "rows":
                name = f"row{len(self.lines)}"
                self.lines.append(f"row_of_{name} = f32[{size}] iota(), iota_dimension=0")
                self.lines.append(
                    f"{name} = {self.kind} broadcast(row_of_{name}), dimensions={{{dimension}}}"
                )
                self.add(f"subtract({first}, {name})")
            case "count":
                name = f"numbers{len(self.lines)}"
                self.lines.append(f"{name} = {self.kind} iota(), iota_dimension={dimension}")
                self.add(f"add({first}, {name})")
            case "rotate":
                head, tail = self.part(first, dimension, 0, 3), self.part(first, dimension, 3, size - 3)
                self.add(f"concatenate({tail}, {head}), dimensions={{{dimension}}}")
            case "shift":
                inner = self.part(first, dimension, 1, size - 1)
                padding = ["0_0", "0_0", "0_0"]
                padding[dimension] = "0_1"
                self.add(f"pad({inner}, half), padding={'x'.join(padding)}")
            case "reverse":
                self.add(f"reverse({first}), dimensions={{{dimension}}}")
            case "update":
                along[dimension] = 1
                starts = ", ".join("n" if flag else "zero" for flag in along)
                inner = self.part(second, dimension, 2, 5)
                self.add(f"dynamic-update-slice({first}, {inner}, {starts})")
            case _:
                along[dimension] = 1
                starts = ", ".join("n" if flag else "zero" for flag in along)
                cut = tuple(7 if flag else s for flag, s in zip(along, self.sizes, strict=True))
                name = f"cut{len(self.lines)}"
                sizes = f"dynamic_slice_sizes={{{dims(cut)}}}"
                self.lines.append(f"{name} = f32[{dims(cut)}] dynamic-slice({first}, {starts}), {sizes}")
                self.add(f"dynamic-update-slice({second}, {name}, zero, zero, zero)")

    def text(self, back: str, also: str | None = None) -> str:
        """Return the program: ``back`` in the order before the transposes, and ``also`` as it is."""
        self.lines.append(
            f"back = f32[{dims(SIZES)}] transpose({back}), dimensions={{{dims(inverse(self.order))}}}"
        )
        result = "ROOT r = negate(back)"
        if also is not None:
            result = f"sine = {self.kind} sine({also})\n  ROOT r = tuple(back, sine)"
        body = "\n  ".join([*self.lines, result])
        return f"HloModule motion\n\nENTRY main {{\n  {body}\n}}\n"


KINDS = (
    "add",
    "multiply",
    "maximum",
    "scaled",
    "rows",
    "count",
    "rotate",
    "shift",
    "reverse",
    "update",
    "cut",
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", range(3))
def test_an_operation_between_transposes_needs_none(
    order: tuple[int, ...], kind: str, dimension: int
) -> None:
    program = Program(order)
    program.step(kind, "a0", "a1", dimension)
    module = after(program.text("a2"), TransposeMotion())
    assert "transpose" not in opcodes(module)


STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99), st.integers(0, 2))


@settings(max_examples=60)
@given(st.sampled_from(ORDERS), st.lists(STEP, min_size=1, max_size=8), st.booleans())
def test_values_stay_and_transposes_become_no_more(
    order: tuple[int, ...], steps: list[tuple[str, int, int, int]], twice: bool
) -> None:
    program = Program(order)
    for kind, first, second, dimension in steps:
        arrays = program.arrays
        program.step(kind, arrays[first % len(arrays)], arrays[second % len(arrays)], dimension)
    text = program.text(program.arrays[-1], program.arrays[len(program.arrays) // 2] if twice else None)
    module = after(text, TransposeMotion())
    assert opcodes(module)["transpose"] <= 3
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


STAYS = {
    "the product of a transposed and another array": "t = f32[20,18] transpose(x), dimensions={1,0}\n"
    "  p = f32[20,18] multiply(t, y)\n  ROOT r = f32[18,20] transpose(p), dimensions={1,0}",
    "a result that is used as it is": "t = f32[20,18] transpose(x), dimensions={1,0}\n"
    "  ROOT r = f32[20,18] negate(t)",
    "another order": "t = f32[20,18] transpose(x), dimensions={1,0}\n  n = f32[20,18] negate(t)\n"
    "  m = f32[2,10,18] reshape(n)\n  ROOT r = f32[18,10,2] transpose(m), dimensions={2,1,0}",
}  # fmt: skip


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_other_transposes_stay(body: str) -> None:
    text = f"x = f32[18,20] parameter(0)\n  y = f32[20,18] parameter(1)\n  {body}"
    before = opcodes(after(text))
    assert opcodes(after(text, TransposeMotion())) == before


def test_parts_of_narrow_arrays_stay_transposed() -> None:
    text = """x = f32[500,3] parameter(0)
  t = f32[3,500] transpose(x), dimensions={1,0}
  first = f32[1,500] slice(t), slice={[0:1], [0:500]}
  rest = f32[2,500] slice(t), slice={[1:3], [0:500]}
  c = f32[3,500] concatenate(rest, first), dimensions={0}
  ROOT r = f32[500,3] transpose(c), dimensions={1,0}"""
    assert opcodes(after(text, TransposeMotion()))["transpose"] == 2


def test_an_order_that_is_its_own_inverse_leads_in_and_out() -> None:
    text = """x = f32[18,20] parameter(0)
  a = f32[20,18] transpose(x), dimensions={1,0}
  b = f32[20,18] sine(a)
  c = f32[18,20] transpose(b), dimensions={1,0}
  d = f32[18,20] multiply(c, x)
  e = f32[20,18] transpose(d), dimensions={1,0}
  f = f32[20,18] cosine(e)
  ROOT r = f32[18,20] transpose(f), dimensions={1,0}"""
    assert "transpose" not in opcodes(after(text, TransposeMotion()))
