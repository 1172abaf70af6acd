"""Arguments made of bytes: bits that are no part of an element do not count."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from tests import agreement

TYPES = {
    "u4": ml_dtypes.uint4, "s4": ml_dtypes.int4, "u2": ml_dtypes.uint2, "s2": ml_dtypes.int2,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("form", ["array", "reversed", "literal", "tuple"])
def test_bits_beyond_an_element_are_ignored(backend: str, name: str, form: str) -> None:
    octets = np.arange(256, dtype=np.uint8)
    bits = 2 if name.endswith("2") else 4
    given = octets.view(TYPES[name])
    clean = (octets & ((1 << bits) - 1)).view(TYPES[name]).astype(np.float32)
    kind, operand = f"{name}[256]", "x"
    argument: Any = given
    if form == "reversed":
        argument, clean = given[::-1], clean[::-1]
    elif form == "literal":
        argument = hloom.Literal(given, kind)
    elif form == "tuple":
        kind, operand, argument = f"({kind})", "y", (given,)
    text = f"""HloModule m
ENTRY e {{
  x = {kind} parameter(0)
  {f"y = {name}[256] get-tuple-element(x), index=0" if form == "tuple" else ""}
  ROOT r = f32[256] convert({operand})
}}"""
    run = hloom.compile(hloom.HloModule.from_text(text), backend=backend)
    for _ in range(2):
        agreement.equal(run(argument), clean)
    assert octets.tolist() == list(range(256))
