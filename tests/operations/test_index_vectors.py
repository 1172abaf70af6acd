"""Components of index vectors that count along a dimension."""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from hloom.operations.index_vectors import iota_dimension


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("ROOT i = s32[3,2,1] iota(), iota_dimension=1", [1]),
        ("ROOT i = s32[3,2,1] iota(), iota_dimension=2", [None]),
        ("ROOT i = s32[3,2] constant({{0,5},{1,5},{2,5}})", [0, None]),
        ("ROOT i = s32[3,2] constant({{0,1},{0,1},{0,1}})", [None, None]),
        ("a = s32[3] iota(), iota_dimension=0\n ROOT i = s32[2,3,1] broadcast(a), dimensions={1}", [1]),
        ("a = s32[3,1] iota(), iota_dimension=0\n ROOT i = s32[1,3,1] reshape(a)", [1]),
        ("a = s32[6] iota(), iota_dimension=0\n ROOT i = s32[3,2] reshape(a)", [None, None]),
        (
            """a = s32[3,1] parameter(0)
            b = s32[3] iota(), iota_dimension=0
            c = s32[3,1] reshape(b)
            d = s32[3,1] copy(c)
            ROOT i = s32[3,2] concatenate(a, d), dimensions={1}""",
            [None, 0],
        ),
    ],
)
def test_counting_components(body: str, wanted: list[int | None]) -> None:
    root = HloModule.from_text(f"HloModule m\nENTRY e {{ {body} }}").entry.root
    axis = root.shape.rank - 1
    assert [iota_dimension(root, axis, n) for n in range(root.shape.dimensions[axis])] == wanted
