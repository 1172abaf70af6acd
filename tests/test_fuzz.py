"""A small seeded run of `fuzz.py`: any text or bytes give at most an HloError, quickly."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from hloom import HloError, HloModule
from tests.fuzz import fuzz

HERE = Path(__file__).parent
FILES = [*(HERE / "hlo").rglob("*.hlo"), *(HERE.parent / "examples" / "workloads").glob("*.hlo")]
LARGEST = 8_000


@cache
def texts() -> list[str]:
    parts = (part for file in sorted(FILES) for part in re.split(r"(?m)^// -----.*$", file.read_text()))
    return [part for part in parts if part.strip() and len(part) < LARGEST]


@cache
def protos() -> list[bytes]:
    found: list[bytes] = []
    for text in texts():
        try:
            found.append(HloModule.from_text(text).to_proto())
        except HloError:  # a program that must be refused
            continue
    return found


@pytest.mark.parametrize("seed", range(4))
def test_mutated_programs_end_in_a_module_or_an_error(seed: int) -> None:
    assert len(texts()) > 100
    assert fuzz(texts(), protos(), 1_000, seed) == []
