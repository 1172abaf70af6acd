"""Elementary functions of long kernels are calls of one copy, with the bits of their expansions."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom
from hloom.codegen.elementwise import LOWERINGS, outlining, transcendental
from tests.evaluation import parse

OPCODES = [op for op, rule in LOWERINGS.items() if rule.lower.__module__ == transcendental.__name__]
assert {"cbrt", "exponential", "tanh"} <= set(OPCODES)
OF_REALS_ONLY = ("cbrt", "erf", "erfc", "remainder", "atan2")
CASES = [
    (opcode, element_type)
    for opcode in (*OPCODES, "power", "remainder")
    for element_type in ("f32", "f64", "c64")
    if element_type[0] != "c" or opcode not in OF_REALS_ONLY
]
COUNT = outlining.MOST_EXPANSIONS + 3


def chain(opcode: str, element_type: str, size: int, count: int = COUNT) -> str:
    """Return a program that applies a function several times, to values that stay in the domain of most."""
    shape = f"{element_type}[{size}]"
    lines = [f"v0 = {shape} parameter(0)", f"y = {shape} parameter(1)"]
    for n in range(count):
        operands = f"v{n}, y" if opcode in ("power", "remainder", "atan2") else f"v{n}"
        lines.append(f"f{n} = {shape} {opcode}({operands})")
        lines.append(f"v{n + 1} = {shape} multiply(f{n}, y)")
    return "\n".join([*lines[:-1], lines[-1].replace("v", "ROOT v", 1)])


def arguments(element_type: str, size: int) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    dtype = hloom.Shape(f"{element_type}[]").element_type.dtype
    values = random.uniform(0.1, 1.5, (2, size)) * (np.exp(0.3j) if element_type[0] == "c" else 1)
    return list(values.astype(dtype))


@pytest.mark.parametrize(("opcode", "element_type"), CASES)
def test_calls_have_the_bits_of_expansions(
    opcode: str, element_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 37  # vectors, and a remainder of scalars or a masked vector
    module = parse(chain(opcode, element_type, size, 3))
    x, y = arguments(element_type, size)
    monkeypatch.setenv("HLOOM_CACHE", "0")
    monkeypatch.setattr(outlining, "MOST_EXPANSIONS", 1)
    called = hloom.compile(module)(x, y)
    monkeypatch.setattr(outlining, "MOST_EXPANSIONS", COUNT * 8)
    expanded = hloom.compile(module)(x, y)
    assert called.tobytes() == expanded.tobytes()


def test_a_long_kernel_calls_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", "0")
    text = hloom.compile(parse(chain("tanh", "f32", 64))).to_llvm()
    definitions = re.findall(r"define .*@(tanh\.\w+)\(", text)
    assert definitions
    for name in definitions:
        assert len(re.findall(rf"call .*@{re.escape(name)}\(", text)) == COUNT - outlining.MOST_EXPANSIONS
