"""Equal programs with control flow, tables and reductions, proved by fingerprints and by relations.

Each has a wrong form, which neither proves.
"""

from __future__ import annotations

import re

import pytest

from hloom import HloModule
from hloom.proofs import Relation, prove
from hloom.proofs.partitioned import annotated_tilings, prove_partitioned
from tests.reducers import binary

COMPUTATIONS = f"""
{binary("add", name="sum")}
{binary("multiply", name="product")}
{binary("maximum", name="largest")}
{binary("multiply", "s32", name="integers")}
{binary("and", "pred", name="all")}
{binary("or", "pred", name="any")}
{binary("minimum", "pred", name="every")}
{binary("xor", "pred", name="odd")}
negated {{ a = f32[4] parameter(0) ROOT r = f32[4] negate(a) }}
same {{ a = f32[4] parameter(0) ROOT r = f32[4] copy(a) }}
cosine {{ a = f32[4] parameter(0) ROOT r = f32[4] cosine(a) }}
scaled {{ a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] multiply(a, b)
  ROOT r = f32[] subtract(m, b) }}
both {{ a = f32[4] parameter(0) n = f32[4] negate(a) ROOT r = (f32[4], f32[4]) tuple(a, n) }}
swapped {{ a = f32[4] parameter(0) n = f32[4] negate(a) ROOT r = (f32[4], f32[4]) tuple(n, a) }}
step {{ s = (s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) m = s32[] add(n, one)
  y = f32[4] cosine(x) ROOT t = (s32[], f32[4]) tuple(m, y) }}
more {{ s = (s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(s), index=0 k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT }}
greater {{ a = f32[] parameter(0) b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }}
less {{ a = f32[] parameter(0) b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }}
"""
X, Y = "x = f32[4] parameter(0)", "y = f32[4] parameter(1)"
N, P = "n = s32[] parameter(2)", "p = pred[] parameter(3)"
M, Q = "ms = s32[4] parameter(4)", "q = pred[4,3] parameter(5)"
A = "square = f32[4,4] parameter(6)"
PARAMETERS = "\n".join([X, Y, N, P, M, Q, A])
BY_NUMBER = "branch_computations={negated,same,cosine}"
BY_PREDICATE = "true_computation=negated, false_computation=cosine"

PROGRAMS: dict[str, tuple[str, str, str]] = {
    "a conditional by a known number": (
        f"c = s32[] constant(1) ROOT r = f32[4] conditional(c, y, x, y), {BY_NUMBER}",
        "ROOT r = f32[4] copy(x)",
        "ROOT r = f32[4] negate(y)",
    ),
    "a number that is out of range": (
        f"c = s32[] constant(3) ROOT r = f32[4] conditional(c, y, y, x), {BY_NUMBER}",
        "ROOT r = f32[4] cosine(x)",
        "ROOT r = f32[4] negate(y)",
    ),
    "a negative number": (
        f"c = s32[] constant(-1) ROOT r = f32[4] conditional(c, y, y, x), {BY_NUMBER}",
        "ROOT r = f32[4] cosine(x)",
        "ROOT r = f32[4] negate(y)",
    ),
    "a conditional by a known predicate": (
        f"c = pred[] constant(true) ROOT r = f32[4] conditional(c, x, y), {BY_PREDICATE}",
        "ROOT r = f32[4] negate(x)",
        "ROOT r = f32[4] cosine(y)",
    ),
    "a conditional that is false": (
        f"c = pred[] constant(false) ROOT r = f32[4] conditional(c, x, y), {BY_PREDICATE}",
        "ROOT r = f32[4] cosine(y)",
        "ROOT r = f32[4] negate(x)",
    ),
    "a conditional by a predicate": (
        f"ROOT r = f32[4] conditional(p, x, y), {BY_PREDICATE}",
        """a = f32[4] negate(x) b = f32[4] cosine(y) c = pred[4] broadcast(p), dimensions={}
        ROOT r = f32[4] select(c, a, b)""",
        """a = f32[4] negate(x) b = f32[4] cosine(y) c = pred[4] broadcast(p), dimensions={}
        ROOT r = f32[4] select(c, b, a)""",
    ),
    "branches of equal results": (
        "ROOT r = f32[4] conditional(p, x, x), true_computation=cosine, false_computation=cosine",
        "ROOT r = f32[4] cosine(x)",
        "ROOT r = f32[4] copy(x)",
    ),
    "branches of tuples": (
        """c = (f32[4], f32[4]) conditional(p, x, x), true_computation=both, false_computation=swapped
        ROOT r = f32[4] get-tuple-element(c), index=1""",
        """a = f32[4] negate(x) c = pred[4] broadcast(p), dimensions={}
        ROOT r = f32[4] select(c, a, x)""",
        """a = f32[4] negate(x) c = pred[4] broadcast(p), dimensions={}
        ROOT r = f32[4] select(c, x, a)""",
    ),
    "a conditional by a number": (
        f"ROOT r = f32[4] conditional(n, x, y, x), {BY_NUMBER}",
        f"z = f32[4] copy(x) ROOT r = f32[4] conditional(n, z, y, z), {BY_NUMBER}",
        f"ROOT r = f32[4] conditional(n, y, y, x), {BY_NUMBER}",
    ),
    "a loop of three steps": (
        """z = s32[] constant(0) t = (s32[], f32[4]) tuple(z, x)
        w = (s32[], f32[4]) while(t), condition=more, body=step
        ROOT r = f32[4] get-tuple-element(w), index=1""",
        "a = f32[4] cosine(x) b = f32[4] cosine(a) ROOT r = f32[4] cosine(b)",
        "a = f32[4] cosine(x) ROOT r = f32[4] cosine(a)",
    ),
    "a loop without steps": (
        """z = s32[] constant(3) t = (s32[], f32[4]) tuple(z, x)
        w = (s32[], f32[4]) while(t), condition=more, body=step
        ROOT r = f32[4] get-tuple-element(w), index=1""",
        "ROOT r = f32[4] copy(x)",
        "ROOT r = f32[4] cosine(x)",
    ),
    "a map": (
        "ROOT r = f32[4] map(x, y), dimensions={0}, to_apply=scaled",
        "m = f32[4] multiply(x, y) ROOT r = f32[4] subtract(m, y)",
        "m = f32[4] multiply(x, y) ROOT r = f32[4] subtract(m, x)",
    ),
    "the size of a dimension": (
        "ROOT r = s32[] get-dimension-size(q), dimensions={1}",
        "ROOT r = s32[] constant(3)",
        "ROOT r = s32[] constant(4)",
    ),
    "an affine table": (
        "ROOT r = s32[4] constant({7, 10, 13, 16})",
        """i = s32[4] iota(), iota_dimension=0 c = s32[] constant(3) d = s32[4] broadcast(c), dimensions={}
        e = s32[] constant(7) f = s32[4] broadcast(e), dimensions={} g = s32[4] multiply(i, d)
        ROOT r = s32[4] add(g, f)""",
        """i = s32[4] iota(), iota_dimension=0 c = s32[] constant(3) d = s32[4] broadcast(c), dimensions={}
        e = s32[] constant(8) f = s32[4] broadcast(e), dimensions={} g = s32[4] multiply(i, d)
        ROOT r = s32[4] add(g, f)""",
    ),
    "a table of digits": (
        "ROOT r = s32[4] constant({5, 5, 9, 9})",
        """i = s32[4] iota(), iota_dimension=0 c = s32[] constant(2) d = s32[4] broadcast(c), dimensions={}
        h = s32[4] divide(i, d) e = s32[] constant(4) f = s32[4] broadcast(e), dimensions={}
        g = s32[4] multiply(h, f) k = s32[] constant(5) l = s32[4] broadcast(k), dimensions={}
        ROOT r = s32[4] add(g, l)""",
        """i = s32[4] iota(), iota_dimension=0 c = s32[] constant(2) d = s32[4] broadcast(c), dimensions={}
        h = s32[4] remainder(i, d) e = s32[] constant(4) f = s32[4] broadcast(e), dimensions={}
        g = s32[4] multiply(h, f) k = s32[] constant(5) l = s32[4] broadcast(k), dimensions={}
        ROOT r = s32[4] add(g, l)""",
    ),
    "a constant of equal numbers": (
        "ROOT r = f32[4] constant({2, 2, 2, 2})",
        "c = f32[] constant(2) ROOT r = f32[4] broadcast(c), dimensions={}",
        "c = f32[] constant(3) ROOT r = f32[4] broadcast(c), dimensions={}",
    ),
    "a constant of any numbers": (
        "c = f32[4] constant({2, 1, 5, 3}) ROOT r = f32[4] cosine(c)",
        """c = f32[4] constant({2, 1, 5, 3}) b = f32[4] copy(c) ROOT r = f32[4] cosine(b)""",
        """c = f32[4] constant({1, 2, 5, 3}) ROOT r = f32[4] cosine(c)""",
    ),
    "constants that are joined": (
        """c = s32[2] constant({1, 4}) d = s32[2] constant({3, 7})
        e = s32[4] concatenate(c, d), dimensions={0}
        ROOT r = s32[4] add(ms, e)""",
        "e = s32[4] constant({1, 4, 3, 7}) ROOT r = s32[4] add(e, ms)",
        "e = s32[4] constant({1, 3, 4, 7}) ROOT r = s32[4] add(e, ms)",
    ),
    "a part of a constant": (
        """c = s32[6] constant({9, 1, 4, 3, 7, 8}) e = s32[4] slice(c), slice={[1:5]}
        ROOT r = s32[4] add(ms, e)""",
        "e = s32[4] constant({1, 4, 3, 7}) ROOT r = s32[4] add(e, ms)",
        "e = s32[4] constant({9, 1, 4, 3}) ROOT r = s32[4] add(e, ms)",
    ),
    "a product of integers in two steps": (
        """o = s32[] constant(1) ROOT r = s32[] reduce(ms, o), dimensions={0}, to_apply=integers""",
        """o = s32[] constant(1) h = s32[2,2] reshape(ms)
        s = s32[2] reduce(h, o), dimensions={1}, to_apply=integers
        ROOT r = s32[] reduce(s, o), dimensions={0}, to_apply=integers""",
        """o = s32[] constant(2) ROOT r = s32[] reduce(ms, o), dimensions={0}, to_apply=integers""",
    ),
    "a conjunction": (
        """t = pred[] constant(true) ROOT r = pred[] reduce(q, t), dimensions={0,1}, to_apply=all""",
        """t = pred[] constant(true) s = pred[3] reduce(q, t), dimensions={0}, to_apply=all
        ROOT r = pred[] reduce(s, t), dimensions={0}, to_apply=all""",
        """t = pred[] constant(true) ROOT r = pred[] reduce(q, t), dimensions={0,1}, to_apply=any""",
    ),
    "a disjunction": (
        """f = pred[] constant(false) ROOT r = pred[] reduce(q, f), dimensions={0,1}, to_apply=any""",
        """f = pred[] constant(false) s = pred[3] reduce(q, f), dimensions={0}, to_apply=any
        ROOT r = pred[] reduce(s, f), dimensions={0}, to_apply=any""",
        """f = pred[] constant(false) s = pred[3] reduce(q, f), dimensions={0}, to_apply=any
        ROOT r = pred[] reduce(s, f), dimensions={0}, to_apply=all""",
    ),
    "a largest element of a transposed array": (
        """l = f32[] constant(-inf) ROOT r = f32[4] reduce(square, l), dimensions={1}, to_apply=largest""",
        """l = f32[] constant(-inf) t = f32[4,4] transpose(square), dimensions={1,0}
        ROOT r = f32[4] reduce(t, l), dimensions={0}, to_apply=largest""",
        """l = f32[] constant(-inf) ROOT r = f32[4] reduce(square, l), dimensions={0}, to_apply=largest""",
    ),
    "windows that are rows": (
        """z = f32[] constant(-inf) w = f32[4,1] reduce-window(square, z), window={size=1x4}, to_apply=largest
        ROOT r = f32[4] reshape(w)""",
        """z = f32[] constant(-inf) ROOT r = f32[4] reduce(square, z), dimensions={1}, to_apply=largest""",
        """z = f32[] constant(-inf) ROOT r = f32[4] reduce(square, z), dimensions={0}, to_apply=largest""",
    ),
    "a sort of copies": (
        "ROOT r = f32[4] sort(x), dimensions={0}, to_apply=less",
        "b = f32[4] copy(x) ROOT r = f32[4] sort(b), dimensions={0}, to_apply=less",
        "ROOT r = f32[4] sort(x), dimensions={0}, to_apply=greater",
    ),
    "a decomposition": (
        "ROOT r = f32[4,4] cholesky(square), lower=true",
        "b = f32[4,4] copy(square) ROOT r = f32[4,4] cholesky(b), lower=true",
        "ROOT r = f32[4,4] cholesky(square), lower=false",
    ),
    "a scatter that adds": (
        """i = s32[1,1] constant({{2}}) u = f32[1] slice(y), slice={[0:1]}
        ROOT r = f32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=largest""",
        """i = s32[1] constant({2}) u = f32[1] slice(y), slice={[0:1]}
        ROOT r = f32[4] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={},
        scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=largest""",
        """i = s32[1] constant({1}) u = f32[1] slice(y), slice={[0:1]}
        ROOT r = f32[4] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={},
        scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=largest""",
    ),
}  # fmt: skip


def program(body: str, devices: int) -> HloModule:
    """Return a program whose parameters and results are on every device whole."""
    everywhere = re.sub(r"(parameter\(\d\))", r"\1, sharding={replicated}", PARAMETERS)
    lines = (
        body if devices == 1 else re.sub(r"(ROOT .*)$", r"\1, sharding={replicated}", body, flags=re.DOTALL)
    )
    head = f"HloModule m, num_partitions={devices}\n{COMPUTATIONS}"
    return HloModule.from_text(
        f"{head}\nENTRY e {{\n{PARAMETERS if devices == 1 else everywhere}\n{lines}\n}}"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_fingerprints(name: str) -> None:
    before, after, wrong = (program(body, 1) for body in PROGRAMS[name])
    assert prove(before, after).relation.is_proof
    assert prove(before, wrong).relation is Relation.REFUTED


@pytest.mark.parametrize("name", PROGRAMS)
def test_relations(name: str) -> None:
    """Proofs by relations are certain."""
    before, after, wrong = (program(body, 2) for body in PROGRAMS[name])
    tilings = annotated_tilings(before, 2)
    proof = prove_partitioned(before, after, *tilings, samples=1)
    assert proof.relation.is_proof and proof.certain
    assert not prove_partitioned(before, wrong, *tilings, samples=1).relation.is_proof
