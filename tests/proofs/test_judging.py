"""The judge of proofs is as strict as the verdict, and no stricter."""

from __future__ import annotations

import pytest

from hloom import HloModule
from hloom.proofs import Relation
from tests.proofs.judging import is_told_apart

WITH_ZERO = "zs = f32[8] constant({0,0,0,0,0,0,0,0}) ROOT r = f32[8] add(x, zs)"
BY_BF16 = "n = bf16[8] convert(x) ROOT r = f32[8] convert(n)"
SUM = "s = f32[] reduce(x, z), dimensions={0}, to_apply=add ROOT r = f32[8] broadcast(s), dimensions={}"


def program(body: str) -> HloModule:
    return HloModule.from_text(
        "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
        f"ENTRY e {{ x = f32[8] parameter(0) z = f32[] constant(0)\n{body} }}"
    )


@pytest.mark.parametrize(
    ("body", "other", "relation", "differs"),
    [
        ("ROOT r = f32[8] copy(x)", WITH_ZERO, Relation.IDENTICAL, True),
        ("ROOT r = f32[8] copy(x)", WITH_ZERO, Relation.EQUAL_OVER_REALS, False),
        ("ROOT r = f32[8] copy(x)", BY_BF16, Relation.EQUAL_OVER_REALS, True),
        (
            SUM,
            SUM.replace("(x, z)", "(y, z)").replace("s =", "y = f32[8] reverse(x), dimensions={0} s ="),
            Relation.IDENTICAL,
            False,
        ),
    ],
    ids=["-0 has other bits", "-0 is a zero of the reals", "a detour by bf16", "a sum in another order"],
)
def test_what_tells_programs_apart(body: str, other: str, relation: Relation, differs: bool) -> None:
    assert is_told_apart(program(body), program(other), relation) is differs
