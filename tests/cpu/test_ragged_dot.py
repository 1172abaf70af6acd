"""ragged-dot and bitcast-convert of the cpu backend: every kind, type and place of their dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.shape.element_type import ElementType
from tests.arrays import s32
from tests.native_runs import agree

ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
TERMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
ROWS_OF_BATCHES = (
    "lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={2}, rhs_contracting_dims={1}, "
    "lhs_ragged_dims={0}, rhs_group_dims={0}"
)
CASES = [
    ("[11,5]", "[3,5,7]", "[11,7]", ROWS, [4, 0, 5]),
    ("[11,5]", "[3,5,7]", "[11,7]", ROWS, [4, 1, 6]),
    ("[40,5]", "[2,5,33]", "[40,33]", ROWS, [17, 20]),
    ("[4,11]", "[11,6]", "[3,4,6]", TERMS, [4, 0, 5]),
    ("[4,40]", "[40,33]", "[2,4,33]", TERMS, [17, 23]),
    ("[4,11]", "[11,6]", "[1,4,6]", TERMS, [0]),
    # A dimension of the batch, for which a group takes some batches.
    ("[5,3,4]", "[5,4,6]", "[5,3,6]", f"{BATCHED}, lhs_ragged_dims={{0}}", [2, 2]),
    # Sizes that differ along the batch, and along a dimension before the ragged one.
    ("[6,2,5]", "[3,5,2,4]", "[2,6,4]", ROWS_OF_BATCHES, [[1, 2, 3], [4, 0, 1]]),
    ("[2,11,5]", "[3,5,7]", "[2,11,7]",
     "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={1}, rhs_group_dims={0}",
     [[4, 0, 5], [1, 9, 1]]),
    ("[4,3,5]", "[3,5,6]", "[2,4,6]",
     "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}, lhs_ragged_dims={2}", [[2, 3], [1, 0], [0, 5]]),
]  # fmt: skip


def numbers(kind: str, shape: str, seed: int) -> Any:
    """Return small integers in a type, whose products and sums are exact."""
    element_type = ElementType.parse(kind)
    values: Any = np.random.default_rng(seed).integers(-3, 4, eval(shape))
    return values.astype(element_type.numpy_dtype)


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize(("kind", "count"), [("f32", "s32"), ("bf16", "s64"), ("c64", "u8")])
def test_ragged_products(case: int, kind: str, count: str) -> None:
    lhs, rhs, result, attributes, sizes = CASES[case]
    array = np.array(sizes)
    groups = f"[{','.join(map(str, array.shape))}]"
    text = f"""HloModule m
ENTRY e {{
  x = {kind}{lhs} parameter(0)
  y = {kind}{rhs} parameter(1)
  s = {count}{groups} parameter(2)
  ROOT r = {kind}{result} ragged-dot(x, y, s), {attributes}
}}"""
    given = array.astype(ElementType.parse(count).numpy_dtype)
    agree(text, numbers(kind, lhs, 1), numbers(kind, rhs, 2), given, signs=False)


def test_what_is_outside_of_a_group_is_not_even_multiplied_by_zero() -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[2,4] parameter(0)
  y = f32[4,3] parameter(1)
  s = s32[1] parameter(2)
  ROOT r = f32[1,2,3] ragged-dot(x, y, s), {TERMS}
}}"""
    x, y = np.ones((2, 4), np.float32), np.full((4, 3), np.inf, np.float32)
    y[:2] = 1
    assert agree(text, x, y, s32([2])).tolist() == [[[2, 2, 2]] * 2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("u32[5,7]", "f32[5,7]"), ("f16[33]", "s16[33]"),
        # Narrower parts, the lowest bits first.
        ("u32[5,7]", "u8[5,7,4]"), ("f64[40]", "s32[40,2]"), ("s64[3,5]", "f16[3,5,4]"),
        ("u16[70]", "s4[70,4]"),
        ("u8[70]", "u4[70,2]"), ("u8[9]", "s2[9,4]"), ("f32[17]", "bf16[17,2]"), ("c128[9]", "c64[9,2]"),
        # Wider numbers.
        ("u8[5,7,4]", "u32[5,7]"), ("s32[40,2]", "f64[40]"), ("f16[3,5,4]", "s64[3,5]"),
        ("s4[70,4]", "u16[70]"),
        ("u4[70,2]", "s8[70]"), ("u2[9,4]", "u8[9]"), ("bf16[17,2]", "f32[17]"), ("c64[9,2]", "c128[9]"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["reverse", "transpose"])
def test_bits_of_another_type(before: str, after: str, end: str) -> None:
    """Alone, a conversion is the same memory; fused with another operation it moves bits."""
    kind, sizes = after.rstrip("]").split("[")
    rank = sizes.count(",") + 1
    turned = ",".join(sizes.split(",")[::-1])
    rest = {
        "reverse": f"b = {after} bitcast-convert(n)\n ROOT r = {after} reverse(b), dimensions={{{rank - 1}}}",
        "transpose": f"b = {after} bitcast-convert(n)\n ROOT r = {kind}[{turned}] transpose(b), "
        f"dimensions={{{','.join(map(str, range(rank)[::-1]))}}}",
    }[end]
    text = f"""HloModule m
ENTRY e {{
  x = {before} parameter(0)
  n = {before} copy(x)
  {rest}
}}"""
    source, shape = before.rstrip("]").split("[")
    bits = ElementType.parse(source).bits
    random = np.random.default_rng(0)
    dimensions = [int(n) for n in shape.split(",")]
    dtype = ElementType.parse(source).numpy_dtype
    if source.startswith(("f", "b", "c")):
        values: Any = random.normal(size=dimensions)
        agree(text, (values + 1j * values[::-1] if source[0] == "c" else values).astype(dtype))
    else:
        low = -(1 << bits - 1) if source[0] == "s" else 0
        whole = random.integers(0, 1 << min(bits, 63), dimensions, dtype=np.uint64)
        agree(text, (whole.astype(np.int64) + low).astype(dtype) if bits < 64 else whole.astype(dtype))
