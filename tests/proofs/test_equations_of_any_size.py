"""Equal programs for all sizes: sums of products, choices by indices, conversions; and wrong ones.

Each is of x, y: f32[7,5], v: f32[7], w: f32[5], s: f32[], i: s32[7,5], b: bf16[7,5] and p: pred[7,5].
"""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from hloom.proofs.symbolic.pairs import prove_any_size
from hloom.proofs.verdict import Relation
from tests.proofs.pairs import IDENTICAL, REALS
from tests.reducers import binary

pytest.importorskip("z3", reason="z3 is not installed")

PARAMETERS = ("x = f32[7,5]", "y = f32[7,5]", "v = f32[7]", "w = f32[5]", "s = f32[]", "i = s32[7,5]",
              "b = bf16[7,5]", "p = pred[7,5]")  # fmt: skip
COMPUTATIONS = f"""
{binary("add", name="sum")}
{binary("maximum", name="largest")}
{binary("add", "s32", name="integers")}
"""
ROWS = "reduce({}, z), dimensions={{1}}, to_apply=sum"
ZERO = "z = f32[] constant(0) "

EQUATIONS: dict[str, tuple[Relation, str, str, str]] = {
    "a sum of sums": (
        REALS,
        f"{ZERO} a = f32[7,5] add(x, y) ROOT r = f32[7] {ROWS.format('a')}",
        f"{ZERO} a = f32[7] {ROWS.format('x')} c = f32[7] {ROWS.format('y')} ROOT r = f32[7] add(c, a)",
        f"{ZERO} a = f32[7] {ROWS.format('x')} c = f32[7] {ROWS.format('y')} ROOT r = f32[7] subtract(c, a)",
    ),
    "a sum of differences": (
        REALS,
        f"{ZERO} a = f32[7,5] subtract(x, y) ROOT r = f32[7] {ROWS.format('a')}",
        f"{ZERO} a = f32[7] {ROWS.format('x')} c = f32[7] {ROWS.format('y')} ROOT r = f32[7] subtract(a, c)",
        f"{ZERO} a = f32[7] {ROWS.format('x')} c = f32[7] {ROWS.format('y')} ROOT r = f32[7] add(a, c)",
    ),
    "a factor of all terms": (
        REALS,
        f"{ZERO} c = f32[7,5] broadcast(v), dimensions={{0}} a = f32[7,5] multiply(x, c) ROOT r = f32[7] "
        f"{ROWS.format('a')}",
        f"{ZERO} a = f32[7] {ROWS.format('x')} ROOT r = f32[7] multiply(v, a)",
        f"{ZERO} a = f32[7] {ROWS.format('x')} ROOT r = f32[7] add(v, a)",
    ),
    "a product of a matrix and a vector": (
        REALS,
        "ROOT r = f32[7] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        f"{ZERO} c = f32[7,5] broadcast(w), dimensions={{1}} a = f32[7,5] multiply(c, x) ROOT r = f32[7] "
        f"{ROWS.format('a')}",
        f"{ZERO} c = f32[7,5] broadcast(w), dimensions={{1}} a = f32[7,5] add(c, x) ROOT r = f32[7] "
        f"{ROWS.format('a')}",
    ),
    "an initial value": (
        REALS,
        "ROOT r = f32[7] reduce(x, s), dimensions={1}, to_apply=sum",
        f"{ZERO} a = f32[7] {ROWS.format('x')} c = f32[7] broadcast(s), dimensions={{}} "
        "ROOT r = f32[7] add(a, c)",
        f"{ZERO} a = f32[7] {ROWS.format('x')} ROOT r = f32[7] add(a, a)",
    ),
    "a sum that is negated": (
        REALS,
        f"{ZERO} a = f32[7,5] negate(x) ROOT r = f32[7] {ROWS.format('a')}",
        f"{ZERO} a = f32[7] {ROWS.format('x')} ROOT r = f32[7] negate(a)",
        f"{ZERO} ROOT r = f32[7] {ROWS.format('x')}",
    ),
    "sums of integers": (
        REALS,
        "z = s32[] constant(0) ROOT r = s32[] reduce(i, z), dimensions={0,1}, to_apply=integers",
        """z = s32[] constant(0) a = s32[5] reduce(i, z), dimensions={0}, to_apply=integers
        ROOT r = s32[] reduce(a, z), dimensions={0}, to_apply=integers""",
        """z = s32[] constant(0) a = s32[5] reduce(i, z), dimensions={0}, to_apply=integers
        c = s32[4] slice(a), slice={[0:4]} ROOT r = s32[] reduce(c, z), dimensions={0}, to_apply=integers""",
    ),
    "maxima of maxima": (
        IDENTICAL,
        "z = f32[] constant(-inf) ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=largest",
        """z = f32[] constant(-inf) a = f32[5] reduce(x, z), dimensions={0}, to_apply=largest
        ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply=largest""",
        """z = f32[] constant(-inf) a = f32[5] reduce(x, z), dimensions={0}, to_apply=largest
        ROOT r = f32[] reduce(a, s), dimensions={0}, to_apply=largest""",
    ),
    "a wider type and back": (
        IDENTICAL,
        "a = f32[7,5] convert(b) ROOT r = bf16[7,5] convert(a)",
        "ROOT r = bf16[7,5] copy(b)",
        "ROOT r = bf16[7,5] negate(b)",
    ),
    "a choice of equal arrays": (
        IDENTICAL,
        "ROOT r = f32[7,5] select(p, x, x)",
        "ROOT r = f32[7,5] copy(x)",
        "ROOT r = f32[7,5] copy(y)",
    ),
    "a choice the other way": (
        IDENTICAL,
        "n = pred[7,5] not(p) ROOT r = f32[7,5] select(n, x, y)",
        "ROOT r = f32[7,5] select(p, y, x)",
        "ROOT r = f32[7,5] select(p, x, y)",
    ),
    "what padding adds is cut": (
        IDENTICAL,
        "a = f32[9] pad(v, s), padding=1_1 ROOT r = f32[7] slice(a), slice={[1:8]}",
        "ROOT r = f32[7] copy(v)",
        "ROOT r = f32[7] reverse(v), dimensions={0}",
    ),
    "the first of two": (
        IDENTICAL,
        "a = f32[12] concatenate(v, w), dimensions={0} ROOT r = f32[7] slice(a), slice={[0:7]}",
        "ROOT r = f32[7] copy(v)",
        "a = f32[12] concatenate(w, v), dimensions={0} ROOT r = f32[7] slice(a), slice={[0:7]}",
    ),
    "rows in another order": (
        IDENTICAL,
        "a = f32[5,7] transpose(x), dimensions={1,0} c = f32[5,7] reverse(a), dimensions={1} "
        "ROOT r = f32[7,5] transpose(c), dimensions={1,0}",
        "ROOT r = f32[7,5] reverse(x), dimensions={0}",
        "ROOT r = f32[7,5] reverse(x), dimensions={1}",
    ),
    "elements of a flat array in reverse": (
        IDENTICAL,
        """a = f32[35] reshape(x) c = f32[35] reverse(a), dimensions={0} ROOT r = f32[7,5] reshape(c)""",
        "ROOT r = f32[7,5] reverse(x), dimensions={0,1}",
        "ROOT r = f32[7,5] reverse(x), dimensions={1}",
    ),
    "a flat array and back": (
        IDENTICAL,
        "a = f32[35] reshape(x) c = f32[35] negate(a) ROOT r = f32[7,5] reshape(c)",
        "ROOT r = f32[7,5] negate(x)",
        "ROOT r = f32[7,5] negate(y)",
    ),
    "rows of copies": (
        IDENTICAL,
        """a = f32[7,5] broadcast(w), dimensions={1} f = f32[35] reshape(a) c = f32[7,5] reshape(f)
        ROOT r = f32[5,7] transpose(c), dimensions={1,0}""",
        "ROOT r = f32[5,7] broadcast(w), dimensions={0}",
        "ROOT r = f32[5,7] broadcast(v), dimensions={1}",
    ),
    "a dimension of size 1": (
        IDENTICAL,
        "a = f32[7,1,5] reshape(x) c = f32[7,1,5] reverse(a), dimensions={1} ROOT r = f32[7,5] reshape(c)",
        "ROOT r = f32[7,5] copy(x)",
        "ROOT r = f32[7,5] reverse(x), dimensions={1}",
    ),
    "polynomials of integers": (
        IDENTICAL,
        "a = s32[7,5] add(i, i) ROOT r = s32[7,5] multiply(a, i)",
        "a = s32[7,5] multiply(i, i) ROOT r = s32[7,5] add(a, a)",
        "ROOT r = s32[7,5] multiply(i, i)",
    ),
}


def module(body: str) -> HloModule:
    """Return a program of the parameters."""
    lines = "\n".join(f"{line} parameter({n})" for n, line in enumerate(PARAMETERS))
    return HloModule.from_text(f"HloModule m\n{COMPUTATIONS}\nENTRY e {{\n{lines}\n{body}\n}}")


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations(name: str) -> None:
    relation, before, after, _ = EQUATIONS[name]
    assert prove_any_size(module(before), module(after)).verdict.relation is relation


@pytest.mark.parametrize("name", EQUATIONS)
def test_mistakes(name: str) -> None:
    _, before, _, wrong = EQUATIONS[name]
    assert prove_any_size(module(before), module(wrong)).verdict.relation is Relation.REFUTED
