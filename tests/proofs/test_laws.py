"""The laws of elementwise operations, as equations: equal bit by bit, over the reals, or wrong.

Each side is an expression of x, y, z: f32, m, n, k: s32, u, v: u8, p, q, o: pred and h, g: f16, all of four
elements; ``f(2)``, ``i(2)``, ``b(2)``, ``t(True)`` and ``e(2)`` are constants of these types.
"""

from __future__ import annotations

import ast

import pytest

from hloom import HloModule
from hloom.proofs import Relation, prove
from tests.proofs.pairs import IDENTICAL, REALS, REFUTED

NAMES = {"xyz": "f32", "mnk": "s32", "uv": "u8", "poq": "pred", "hg": "f16"}
CONSTANTS = {"f": "f32", "i": "s32", "b": "u8", "t": "pred", "e": "f16"}


class Writer:
    """Writes an expression as instructions."""

    def __init__(self) -> None:
        parameters = [(name, kind) for names, kind in NAMES.items() for name in names]
        self.lines = [f"{name} = {kind}[4] parameter({n})" for n, (name, kind) in enumerate(parameters)]

    def line(self, text: str) -> str:
        """Add an instruction, and return its name."""
        self.lines.append(f"v{len(self.lines)} = {text}")
        return f"v{len(self.lines) - 1}"

    def value(self, node: ast.expr) -> str:
        """Return the name of the value of an expression."""
        if isinstance(node, ast.Name):
            return node.id
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        name = node.func.id
        if name in CONSTANTS:
            scalar = self.line(f"{CONSTANTS[name]}[] constant({ast.unparse(node.args[0]).lower()})")
            return self.line(f"{CONSTANTS[name]}[4] broadcast({scalar}), dimensions={{}}")
        operands = ", ".join(map(self.value, node.args))
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self.line(f"compare({operands}), direction={name.upper()}")
        if name in ("before", "after"):
            way = "LT" if name == "before" else "GT"
            return self.line(f"compare({operands}), direction={way}, type=TOTALORDER")
        if name.startswith(("as_", "bits_as_")):
            opcode = "bitcast-convert" if name.startswith("bits") else "convert"
            return self.line(f"{name.split('_')[-1]}[4] {opcode}({operands})")
        return self.line(f"{name.rstrip('_').replace('_', '-')}({operands})")


def module(expression: str) -> HloModule:
    """Return the program of an expression."""
    writer = Writer()
    root = writer.value(ast.parse(expression, mode="eval").body)
    if not root.startswith("v"):
        root = writer.line(f"copy({root})")
    body = "\n".join(("ROOT " if line.startswith(f"{root} =") else "") + line for line in writer.lines)
    return HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}")


BITS = """
add(x, x) = multiply(x, f(2))
divide(x, f(4)) = multiply(x, f(0.25))
maximum(x, maximum(y, z)) = maximum(maximum(z, x), y)
maximum(x, x) = x
clamp(x, y, z) = minimum(z, maximum(y, x))
or_(m, or_(n, k)) = or_(or_(k, m), n)
multiply(add(m, n), k) = add(multiply(k, n), multiply(m, k))
subtract(m, n) = negate(subtract(n, m))
subtract(m, m) = i(0)
shift_left(m, i(3)) = multiply(m, i(8))
shift_left(m, i(0)) = m
shift_right_logical(u, b(2)) = divide(u, b(4))
remainder(u, b(8)) = and_(u, b(7))
select(p, x, x) = x
select(t(True), x, y) = x
select(t(False), x, y) = y
select(not_(p), x, y) = select(p, y, x)
not_(not_(p)) = p
not_(and_(p, q)) = or_(not_(p), not_(q))
not_(or_(p, q)) = and_(not_(p), not_(q))
and_(p, p) = p
or_(p, p) = p
add(p, q) = or_(p, q)
multiply(p, q) = and_(p, q)
xor(p, q) = ne(p, q)
xor(p, t(True)) = not_(p)
xor(p, t(False)) = p
eq(p, q) = not_(xor(p, q))
eq(p, t(True)) = p
ne(p, t(False)) = p
eq(p, t(False)) = not_(p)
lt(t(False), p) = p
ge(t(False), p) = not_(p)
lt(p, q) = and_(not_(p), q)
gt(p, q) = and_(p, not_(q))
le(p, q) = or_(not_(p), q)
ge(p, q) = or_(p, not_(q))
lt(m, n) = gt(n, m)
le(m, n) = not_(lt(n, m))
ge(m, n) = not_(lt(m, n))
gt(m, n) = not_(le(m, n))
ne(m, n) = not_(eq(n, m))
eq(m, m) = t(True)
ne(x, y) = not_(eq(y, x))
lt(x, y) = gt(y, x)
le(x, y) = ge(y, x)
before(x, y) = after(y, x)
gt(maximum(x, y), y) = gt(x, y)
le(maximum(x, y), x) = le(y, x)
lt(minimum(x, y), y) = lt(x, y)
ge(minimum(x, y), x) = ge(y, x)
lt(y, maximum(y, x)) = lt(y, x)
gt(x, minimum(x, y)) = gt(x, y)
and_(ge(m, i(2)), lt(m, i(3))) = eq(m, i(2))
and_(lt(m, i(3)), ge(m, i(2))) = eq(m, i(2))
and_(gt(m, i(1)), le(m, i(2))) = eq(i(2), m)
and_(ge(m, i(-2)), lt(m, i(-1))) = eq(m, i(-2))
and_(ge(m, i(3)), lt(m, i(3))) = t(False)
and_(ge(m, i(5)), lt(m, i(3))) = t(False)
le(m, i(2)) = lt(m, i(3))
gt(m, i(2)) = ge(m, i(3))
lt(i(2), m) = ge(m, i(3))
ne(m, i(2)) = not_(eq(i(2), m))
ge(u, b(0)) = t(True)
lt(u, b(0)) = t(False)
gt(u, b(255)) = t(False)
le(u, b(255)) = t(True)
maximum(u, b(0)) = u
minimum(u, b(0)) = b(0)
minimum(u, b(255)) = u
maximum(as_s32(u), i(0)) = as_s32(u)
minimum(as_s32(u), i(255)) = as_s32(u)
minimum(as_s32(u), i(256)) = as_s32(u)
clamp(i(0), as_s32(u), i(255)) = as_s32(u)
remainder(as_s32(u), i(256)) = as_s32(u)
lt(as_s32(u), i(256)) = t(True)
ge(as_s32(u), i(256)) = t(False)
eq(as_s32(u), i(256)) = t(False)
ne(as_s32(u), i(-1)) = t(True)
as_f16(as_f32(h)) = h
as_f32(as_f64(x)) = x
as_pred(as_s32(p)) = p
as_f32(as_s32(p)) = as_f32(p)
as_f32(p) = select(p, f(1), f(0))
bits_as_f32(bits_as_s32(x)) = bits_as_f32(bits_as_s32(x))
add(h, h) = multiply(h, e(2))
"""
IN_REALS = """
add(x, add(y, z)) = add(add(z, x), y)
multiply(add(x, y), z) = add(multiply(x, z), multiply(z, y))
subtract(x, x) = f(0)
negate(negate(x)) = add(x, f(0))
subtract(x, y) = negate(subtract(y, x))
divide(x, y) = multiply(x, divide(f(1), y))
divide(x, f(3)) = multiply(x, f(0.33333334))
power(x, f(0)) = f(1)
power(x, f(1)) = x
power(x, f(2)) = multiply(x, x)
power(x, f(3)) = multiply(x, multiply(x, x))
power(x, f(-1)) = divide(f(1), x)
power(x, f(-2)) = divide(f(1), multiply(x, x))
rsqrt(x) = divide(f(1), sqrt(x))
exponential_minus_one(x) = subtract(exponential(x), f(1))
log_plus_one(x) = log(add(f(1), x))
logistic(x) = divide(f(1), add(f(1), exponential(negate(x))))
tanh(h) = as_f16(tanh(as_f32(h)))
add(h, g) = as_f16(add(as_f32(g), as_f32(h)))
"""
UNDECIDED = """
minimum(minimum(x, y), x) = minimum(y, x)
and_(m, and_(n, m)) = and_(n, m)
select(p, select(p, x, y), z) = select(p, x, z)
and_(p, or_(q, o)) = or_(and_(p, q), and_(p, o))
xor(p, p) = t(False)
"""
"""Laws of idempotence inside of other operations, of which fingerprints know nothing."""
WRONG = """
subtract(x, y) = subtract(y, x)
divide(x, f(4)) = multiply(x, f(0.5))
add(x, x) = multiply(x, f(3))
maximum(x, y) = minimum(x, y)
clamp(x, y, z) = maximum(x, minimum(y, z))
and_(m, n) = or_(m, n)
shift_left(m, i(3)) = multiply(m, i(9))
shift_left(m, i(1)) = m
shift_right_logical(m, i(2)) = divide(m, i(4))
shift_right_logical(u, b(2)) = divide(u, b(8))
remainder(u, b(8)) = and_(u, b(8))
remainder(m, i(8)) = and_(m, i(7))
remainder(u, b(6)) = and_(u, b(5))
select(p, x, y) = select(p, y, x)
select(p, x, y) = select(q, x, y)
not_(and_(p, q)) = and_(not_(p), not_(q))
xor(p, q) = or_(p, q)
lt(p, q) = gt(p, q)
le(p, q) = ge(p, q)
lt(m, n) = le(m, n)
le(m, n) = ge(m, n)
not_(lt(x, y)) = ge(x, y)
eq(x, x) = t(True)
before(x, y) = lt(x, y)
gt(maximum(x, y), y) = ge(x, y)
ge(maximum(x, y), y) = ge(x, y)
lt(maximum(x, y), y) = lt(x, y)
gt(minimum(x, y), y) = gt(x, y)
and_(ge(m, i(2)), lt(m, i(4))) = eq(m, i(2))
and_(ge(m, i(2)), lt(n, i(3))) = eq(m, i(2))
le(m, i(2)) = lt(m, i(2))
gt(m, i(2)) = ge(m, i(2))
gt(u, b(0)) = t(True)
gt(u, b(254)) = t(False)
lt(u, b(255)) = t(True)
maximum(u, b(1)) = u
minimum(u, b(254)) = u
minimum(as_s32(u), i(254)) = as_s32(u)
clamp(i(1), as_s32(u), i(255)) = as_s32(u)
clamp(i(0), as_s32(u), i(254)) = as_s32(u)
remainder(as_s32(u), i(255)) = as_s32(u)
lt(as_s32(u), i(255)) = t(True)
eq(as_s32(u), i(255)) = t(False)
as_f32(as_f16(x)) = x
as_f32(as_s32(x)) = x
as_s32(as_u8(m)) = m
divide(x, f(3)) = multiply(x, f(0.25))
power(x, f(2)) = x
power(x, f(3)) = multiply(x, x)
power(x, f(-1)) = x
power(x, f(1.5)) = multiply(x, x)
rsqrt(x) = sqrt(x)
exponential_minus_one(x) = add(exponential(x), f(1))
log_plus_one(x) = log(x)
logistic(x) = divide(f(1), add(f(1), exponential(x)))
exponential(x) = log(x)
tanh(x) = sine(x)
"""


def rows(table: str) -> list[str]:
    """Return the lines of a table."""
    return table.strip().splitlines()


@pytest.mark.parametrize("law", rows(BITS))
def test_laws_of_bits(law: str) -> None:
    before, after = map(module, law.split(" = "))
    assert prove(before, after).relation is IDENTICAL


@pytest.mark.parametrize("law", rows(IN_REALS))
def test_laws_of_real_numbers(law: str) -> None:
    before, after = map(module, law.split(" = "))
    assert prove(before, after).relation is REALS


@pytest.mark.parametrize("law", rows(UNDECIDED))
def test_laws_that_are_not_proved(law: str) -> None:
    before, after = map(module, law.split(" = "))
    assert prove(before, after).relation is Relation.OPEN


@pytest.mark.parametrize("mistake", rows(WRONG))
def test_what_is_no_law(mistake: str) -> None:
    before, after = map(module, mistake.split(" = "))
    assert prove(before, after).relation is REFUTED
