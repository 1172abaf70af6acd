"""Integer division by factors and shifts: exact in the whole range for which a factor is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.passes.simplify.integer_division import reciprocal
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, agree
from tests.processors import PROCESSORS, runs_here


@pytest.mark.parametrize("divisor", [3, 5, 7, 10, 60, 641, 1000, 4095, 65537])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_factor_is_exact_in_its_range(divisor: int, bits: int) -> None:
    """Excess grows with the number, and is most harmful just below multiples of the divisor."""
    chosen = 0
    for most in (divisor - 1, divisor, 1000, 4095, 4096, 46340, 46341, (1 << 31) - 1, 1 << 40):
        factor = reciprocal(divisor, most, bits)
        if factor is None:
            continue
        chosen += 1
        multiples = [k * divisor for k in {0, 1, most // divisor // 2, most // divisor}]
        for x in (most, *range(min(most, 5000) + 1), *(m + d for m in multiples for d in (-1, 0, 1))):
            if 0 <= x <= most:
                product = x * factor[0]
                assert product < 1 << bits and product >> factor[1] == x // divisor
    assert chosen or bits == 16


def test_no_factor_if_products_are_too_large() -> None:
    assert reciprocal(7, (1 << 31) - 1, 32) is None
    assert reciprocal(7, (1 << 31) - 1, 64) is not None


DIVISORS = (1, 2, 3, 7, 8, 10, 100, 127)


@pytest.mark.parametrize("kind", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
def test_python_quotients_and_remainders(kind: str) -> None:
    """``x // c``, ``x % c`` and, of the remainder, ``// 3`` and ``% 4``, as JAX writes them."""
    limits = np.iinfo(kind.replace("s", "int").replace("u", "u" + "int"))
    edges = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    x = np.array([*edges, *range(max(limits.min, -64), 64)], limits.dtype)
    lines = [f"x = {kind}[{x.size}] parameter(0)", f"o = {kind}[] constant(0)"]
    lines.append(f"zeros = {kind}[{x.size}] broadcast(o), dimensions={{}}")
    results: list[str] = []
    for divisor in DIVISORS:
        quotient, remainder = _rounded_down(lines, kind, x.size, "x", divisor)
        results += [quotient, remainder, *_rounded_down(lines, kind, x.size, remainder, 3)]
        results += _rounded_down(lines, kind, x.size, remainder, 4)
    types = ", ".join([f"{kind}[{x.size}]"] * len(results))
    lines.append(f"ROOT t = ({types}) tuple({', '.join(results)})")
    got = agree("HloModule m\nENTRY main {\n" + "\n".join(lines) + "\n}", x)
    for number, divisor in enumerate(DIVISORS):
        quotient, remainder = got[6 * number : 6 * number + 2]
        assert np.array_equal(quotient, x // x.dtype.type(divisor))
        assert np.array_equal(remainder, x % x.dtype.type(divisor))


def _rounded_down(lines: list[str], kind: str, size: int, x: str, divisor: int) -> tuple[str, str]:
    """Append the instructions of a quotient and a remainder; return their names."""
    n, shape = f"{x}_{divisor}", f"{kind}[{size}]"
    lines += [
        f"c{n} = {kind}[] constant({divisor})",
        f"cs{n} = {shape} broadcast(c{n}), dimensions={{}}",
        f"q{n} = {shape} divide({x}, cs{n})",
        f"m{n} = {shape} remainder({x}, cs{n})",
    ]
    if kind.startswith("u"):
        return f"q{n}", f"m{n}"
    lines += [
        f"u{n} = {kind}[] constant(1)",
        f"us{n} = {shape} broadcast(u{n}), dimensions={{}}",
        f"s{n} = {shape} sign({x})",
        f"d{n} = pred[{size}] compare(s{n}, us{n}), direction=NE",
        f"b{n} = pred[{size}] compare(m{n}, zeros), direction=NE",
        f"p{n} = pred[{size}] and(d{n}, b{n})",
        f"l{n} = {shape} subtract(q{n}, us{n})",
        f"f{n} = {shape} select(p{n}, l{n}, q{n})",
        f"g{n} = pred[{size}] compare(m{n}, zeros), direction=LT",
        f"h{n} = pred[{size}] and(g{n}, b{n})",
        f"a{n} = {shape} add(m{n}, cs{n})",
        f"r{n} = {shape} select(h{n}, a{n}, m{n})",
    ]
    return f"f{n}", f"r{n}"


WIDE = (3, -3, 7, 10, 641, -1000, 10**9 + 7, 2**32 - 1, 2**32 + 1, 2**62 - 1, 2**62 + 1, 2**63 - 1, 1 - 2**63)


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_vectors_of_64_bits_are_divided_by_products_of_32(processor: str) -> None:
    """Numbers around multiples of the divisors, where a wrong factor shows first, and the limits."""
    if not runs_here(processor):
        pytest.skip("this machine has no such instructions")
    most = 2**63 - 1
    multiples = [k * d for d in WIDE for k in (1, 2, most // abs(d) // 2, most // abs(d))]
    near = [m + e for m in multiples for e in (-1, 0, 1) if abs(m + e) <= most]
    x = np.array([*near, *range(-20, 20), most, -most, -most - 1], np.int64)
    lines = [f"x = s64[{x.size}] parameter(0)"]
    for n, divisor in enumerate(WIDE):
        lines += [
            f"c{n} = s64[] constant({divisor})",
            f"d{n} = s64[{x.size}] broadcast(c{n}), dimensions={{}}",
            f"q{n} = s64[{x.size}] divide(x, d{n})",
            f"r{n} = s64[{x.size}] remainder(x, d{n})",
        ]
    names = [f"{letter}{n}" for n in range(len(WIDE)) for letter in "qr"]
    types = ", ".join([f"s64[{x.size}]"] * len(names))
    lines.append(f"ROOT t = ({types}) tuple({', '.join(names)})")
    module = parse("HloModule m\nENTRY main {\n" + "\n".join(lines) + "\n}")
    agreement.same(Native(module, PROCESSORS[processor])(x), Evaluator().run(module.entry, [x]))
