"""Constants where only essential ones are printed."""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions

ESSENTIAL = [
    ("f32[]", "0", "0"),
    ("f32[2]", "{0, 0}", "0"),
    ("bf16[2]", "{1, 1}", "1"),
    ("f32[]", "-0.0", "{...}"),
    ("f8e3m4[2]", "{0, -0.0}", "{...}"),
    ("c64[]", "(0, -0.0)", "{...}"),
    ("f32[2]", "{0, 1}", "{...}"),
    ("s32[2]", "{0, 1}", "{0, 1}"),
    ("s32[2]", "{0, 0}", "0"),
    ("pred[2]", "{1, 1}", "1"),
    ("f32[0]", "{}", "0"),
]


def test_constants_without_elements_are_elided() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT c = f32[20] constant({...})\n}"
    assert "constant({...})" in HloModule.from_text(text).to_text(PrintOptions.fingerprint())


@pytest.mark.parametrize(("shape", "value", "printed"), ESSENTIAL)
def test_essential_constants(shape: str, value: str, printed: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  ROOT c = {shape} constant({value})\n}}"
    ours = HloModule.from_text(text).to_text(PrintOptions.fingerprint())
    assert f"constant({printed})" in ours
    hlo = pytest.importorskip("jaxlib._hlo")
    theirs = hlo.hlo_module_from_text(text).to_string(hlo.HloPrintOptions.fingerprint())
    assert ours.strip() == theirs.strip()
