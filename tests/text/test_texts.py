"""Every program of `texts` is read and printed as XLA does it."""

from __future__ import annotations

from typing import Any

import pytest

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.text.parser import parse_module
from tests import oracle
from tests.text.texts import TEXTS

PRESETS = ("short_parsable", "canonical", "fingerprint")
SWITCHES = (
    "print_metadata",
    "print_backend_config",
    "print_operand_names",
    "include_layout_in_shapes",
    "print_result_shape",
    "print_percent",
    "print_program_shape",
    "print_control_dependencies",
    "print_extra_attributes",
    "print_ids",
)
EXTRAS = (
    "print_large_constants",
    "print_operand_shape",
    "compact_operands",
    "canonicalize_computations",
    "canonicalize_instruction_names",
    "is_in_nested_computation",
)


def both_options(preset: str, **changes: Any) -> tuple[PrintOptions, Any]:
    """The same print options for hloom and for jaxlib."""
    theirs_class = pytest.importorskip("jaxlib._hlo").HloPrintOptions
    ours = getattr(PrintOptions, preset)() if preset else PrintOptions()
    theirs = getattr(theirs_class, preset)() if preset else theirs_class()
    for name, value in changes.items():
        setattr(theirs, name, value)
    return ours.replace(**changes), theirs


def assert_prints_as_xla(text: str, preset: str = "", **changes: Any) -> None:
    ours, theirs = both_options(preset, **changes)
    _hlo = pytest.importorskip("jaxlib._hlo")

    assert oracle.as_read_by_xla(HloModule.from_text(text), ours) == _hlo.hlo_module_from_text(
        text
    ).to_string(theirs)


@pytest.mark.parametrize("name", TEXTS)
def test_prints_what_xla_prints(name: str) -> None:
    assert_prints_as_xla(TEXTS[name])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TEXTS)
def test_presets(name: str, preset: str) -> None:
    assert_prints_as_xla(TEXTS[name], preset)


@pytest.mark.parametrize("option", [*SWITCHES, *EXTRAS])
def test_single_options(option: str) -> None:
    changes: Any = {option: option not in SWITCHES}
    for text in TEXTS.values():
        assert_prints_as_xla(text, **changes)


@pytest.mark.parametrize("preset", ["", "canonical"])
def test_indentation(preset: str) -> None:
    assert_prints_as_xla(TEXTS["loop"], preset, indent_amount=2)


# XLA's walk over computations may show a callee behind its caller, which nobody can read back.
READABLE = [name for name in TEXTS if name != "computation order"]


@pytest.mark.parametrize("name", READABLE)
def test_what_is_printed_reads_back_to_itself(name: str) -> None:
    printed = HloModule.from_text(TEXTS[name]).to_text()
    assert HloModule.from_text(printed).to_text() == printed


@pytest.mark.parametrize("name", READABLE)
def test_the_quick_reader_reads_the_same(name: str) -> None:
    for text in (TEXTS[name], HloModule.from_text(TEXTS[name]).to_text()):
        assert parse_module(text, quick=True).to_text() == parse_module(text, quick=False).to_text()


@pytest.mark.parametrize("wrong", [b"HloModule m", None, 3])
def test_text_is_a_string(wrong: object) -> None:
    with pytest.raises(HloError) as caught:
        HloModule.from_text(wrong)  # type: ignore[arg-type]
    assert caught.value.rule == "text.string"
