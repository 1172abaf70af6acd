"""Fingerprints differ for different programs, and only for these."""

from __future__ import annotations

import pytest

from hloom.text.fingerprint import fingerprint
from tests.devices import program
from tests.evaluation import parse

BASE = """
  p = f32[12] parameter(0)
  c = f32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})
  ROOT r = f32[12] add(p, c)"""


def of(body: str) -> str:
    return fingerprint(parse(program(body)))


def test_equal_programs() -> None:
    noted = BASE.replace("add(p, c)", 'add(p, c), metadata={op_name="addition"}')
    assert of(BASE) == of(BASE) == of(noted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("11,12", "11,13"),
        ("1,2,3", "-0,2,3"),
        ("f32[12]", "f64[12]"),
        ("add(p, c)", "subtract(p, c)"),
        ("add(p, c)", "add(c, p)"),
        ("add(p, c)", 'add(p, c), backend_config="other"'),
        ("add(p, c)", 'add(p, c), frontend_attributes={a="b"}'),
    ],
)
def test_different_programs(old: str, new: str) -> None:
    assert of(BASE) != of(BASE.replace(old, new))


def test_zeros_of_both_signs_differ() -> None:
    text = "ROOT c = f32[12] constant({0,0,0,0,0,0,0,0,0,0,0,0})"
    assert of(text) != of(text.replace("{0", "{-0"))
