"""Op pages: every operation has one, its example runs, its rules are those of the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hloom
from hloom.errors import HloError
from hloom.ir.codec import REQUIRED
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.op_example import evaluated, example_of
from hloom.tools.pages.op_page import op_list, op_markdown, op_page
from hloom.tools.pages.rules import rules_of


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_page(opcode: str) -> None:
    page = op_page(opcode)
    assert page.startswith(opcode + "(")
    assert "\nExample\n" in page
    assert "=> " in page
    for rule in rules_of(opcode):
        assert rule.name in page
    for attribute in REGISTRY[opcode].attributes:
        if attribute.proto or attribute.default is REQUIRED:
            assert re.search(rf"^  {attribute.name} +(required|default .+)$", page, re.MULTILINE)


@pytest.mark.parametrize("opcode", ["convolution", "custom-call", "while"])
def test_pages_as_they_are_printed(opcode: str, pytestconfig: pytest.Config) -> None:
    """``--bless`` writes them."""
    file = Path(__file__).parent / "op_pages" / f"{opcode}.txt"
    if pytestconfig.getoption("--bless"):
        file.write_text(op_page(opcode))
    assert op_page(opcode) == file.read_text()


def test_the_list_is_complete() -> None:
    words = op_list().split()
    assert all(opcode in words for opcode in REGISTRY)


@pytest.mark.parametrize(
    ("opcode", "result"),
    [
        ("add", ["f32[3] {9, -5, 2.5}"]),
        ("while", ["s32[] 128"]),
        ("scatter", ["s32[4] {20, 0, 40, 0}"]),
        ("all-reduce", ["replica 0: u32[] 3", "replica 1: u32[] 3"]),
        ("outfeed", ["token[]", "the host gets f32[2] {1, 2}"]),
        ("recv-done", ["(f32[2] {1, 2}, token[])"]),
        ("custom-call", ["f32[3] {3, 2, 1}"]),
    ],
)
def test_examples_are_evaluated(opcode: str, result: list[str]) -> None:
    example = example_of(opcode)
    assert example is not None
    assert evaluated(example) == result


def test_an_example_leaves_no_custom_call_registered() -> None:
    example = example_of("custom-call")
    assert example is not None
    evaluated(example)
    with pytest.raises(HloError) as caught:
        hloom.compile(example.module(), backend="evaluator")()
    assert caught.value.rule == "custom-call.target-registered"


def test_rules_carry_constants_along_calls() -> None:
    names = [rule.name for rule in rules_of("gather")]
    assert {"gather.offset_dims-sorted", "gather.collapsed_slice_dims-sorted"} <= set(names)
    assert all(name.split(".")[0] in ("gather", "instruction") for name in names)


def test_rules_are_those_of_the_operation_that_asks() -> None:
    assert "add.same-dimensions" in [rule.name for rule in rules_of("add")]
    assert not any(".same-" in rule.name for rule in rules_of("negate"))


def test_messages_show_what_varies_in_braces() -> None:
    messages = {rule.name: rule.message for rule in rules_of("transpose")}
    assert any("{" in message for message in messages.values())


@pytest.mark.parametrize("opcode", ["gather", "rng", "send", "dynamic-slice"])
def test_markdown(opcode: str) -> None:
    text = op_markdown(opcode)
    assert text.startswith(f"# {opcode}\n")
    assert "## Example" in text
    assert op_markdown(opcode) == text
