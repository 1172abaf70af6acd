"""Verdicts on pairs of small programs: what must be proved, and what must be refuted."""

from __future__ import annotations

from collections import Counter

import pytest

from hloom import HloError, HloModule
from hloom.proofs import Relation, prove
from hloom.proofs.algebra import Algebra
from hloom.proofs.programs import FingerprintEvaluator
from tests.proofs.index_pairs import INDEX_PAIRS
from tests.proofs.judging import is_told_apart
from tests.proofs.mutants import mutants
from tests.proofs.pairs import IDENTICAL, PAIRS, REALS, REFUTED, program

ALL_PAIRS = PAIRS | INDEX_PAIRS

LOOP = """HloModule m
body {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  y = f32[4] multiply(x, x)
  ROOT t = (s32[], f32[4]) tuple(m, y)
}}
condition {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant({trips})
  ROOT c = pred[] compare(n, k), direction=LT
}}
ENTRY e {{
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}}
"""


SEARCH = """HloModule m
body {{
  s = ({state}) parameter(0)
  x = s32[] get-tuple-element(s), index={x}
  k = s32[] get-tuple-element(s), index={k}
  {rest}
  one = s32[] constant(1)
  {scale} = s32[] or(k, one)
  y = s32[] add(x, h)
  ROOT t = ({state}) tuple({next})
}}
condition {{
  s = ({state}) parameter(0)
  x = s32[] get-tuple-element(s), index={x}
  limit = s32[] constant({limit})
  ROOT c = pred[] compare(x, limit), direction=LT
}}
ENTRY e {{
  x = s32[] parameter(0)
  k = s32[] parameter(1)
  one = s32[] constant(1)
  g = s32[] or(k, one)
  n = s32[] constant(0)
  t = ({state}) tuple({first})
  w = ({state}) while(t), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index={x}
}}
"""
"""A loop whose iterations depend on an argument: x += k | 1, while x is below a limit."""


@pytest.mark.parametrize("name", ALL_PAIRS)
def test_pair(name: str) -> None:
    relation, before, after = ALL_PAIRS[name]
    verdict = prove(program(before), program(after))
    assert verdict.relation is relation
    assert (verdict.error_bits is None) is not relation.is_proof
    if relation is REFUTED:
        assert verdict.inputs
        assert any(c.wrong for c in verdict.comparisons)


def test_the_same_program_is_certain() -> None:
    verdict = prove(program(PAIRS["a softmax by parts"][1]), program(PAIRS["a softmax by parts"][1]))
    assert verdict.certain
    assert verdict.error_bits is None


def test_a_loop_equals_its_iterations() -> None:
    unrolled = "x = f32[4] parameter(0) a = f32[4] multiply(x, x) ROOT r = f32[4] multiply(a, a)"
    assert prove(HloModule.from_text(LOOP.format(trips=2)), program(unrolled)).relation is IDENTICAL
    verdict = prove(HloModule.from_text(LOOP.format(trips=3)), program(unrolled))
    assert verdict.relation is REFUTED


def search(**words: object) -> HloModule:
    plain = {
        "state": "s32[], s32[]",
        "x": 0,
        "k": 1,
        "rest": "",
        "scale": "h",
        "next": "y, k",
        "first": "x, k",
    }
    return HloModule.from_text(SEARCH.format(**{**plain, "limit": 9, **words}))


def test_loops_are_equal_whatever_their_state_holds_besides() -> None:
    """The state in another order, with a counter that nobody reads, with what does not change moved out."""
    longer = search(
        state="s32[], s32[], s32[]", x=2, k=0, next="k, m, y", first="k, n, x",
        rest="j = s32[] get-tuple-element(s), index=1\n m = s32[] add(j, j)",
    )  # fmt: skip
    hoisted = search(
        state="s32[], s32[], s32[]", next="y, k, h", first="x, k, g", scale="unused",
        rest="h = s32[] get-tuple-element(s), index=2",
    )  # fmt: skip
    for other in (longer, hoisted):
        assert prove(search(), other).relation is IDENTICAL


def test_loops_that_differ_are_not_proved() -> None:
    swapped = search(next="k, y")
    counted = search(
        state="s32[], s32[], s32[]", next="y, k, x", first="x, k, g", scale="unused",
        rest="h = s32[] get-tuple-element(s), index=2",
    )  # fmt: skip
    for other in (search(limit=8), search(first="k, x"), swapped, counted):
        assert not prove(search(), other).relation.is_proof


NESTED = """HloModule m
inner {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  o = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  h = s32[] or({read}, one)
  y = s32[] add(x, h)
  ROOT t = (s32[], s32[]) tuple(y, o)
}}
below {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  l = s32[] constant(9)
  ROOT c = pred[] compare(x, l), direction=LT
}}
outer {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  t = (s32[], s32[]) tuple(i, x)
  w = (s32[], s32[]) while(t), condition=below, body=inner
  y = s32[] get-tuple-element(w), index=0
  z = s32[] add(x, y)
  ROOT u = (s32[], s32[]) tuple(z, i)
}}
ENTRY e {{
  a = s32[] parameter(0)
  t = (s32[], s32[]) tuple(a, a)
  w = (s32[], s32[]) while(t), condition=below, body=outer
  ROOT r = s32[] get-tuple-element(w), index=0
}}
"""
"""The inner loop starts with the value that the outer one starts with, and reads either of them."""


def test_loops_in_loops_do_not_share_unknowns() -> None:
    own, outer = (HloModule.from_text(NESTED.format(read=name)) for name in ("x", "o"))
    assert prove(own, own.clone()).relation is IDENTICAL
    assert not prove(own, outer).relation.is_proof


def test_values_drawn_twice_differ() -> None:
    draws = """z = f32[] constant(0) o = f32[] constant(1)
    a = f32[4] rng(z, o), distribution=rng_uniform b = f32[4] rng(z, o), distribution=rng_uniform """
    twice = program(draws + "ROOT r = f32[4] subtract(a, b)")
    zero = program("z = f32[] constant(0) ROOT r = f32[4] broadcast(z), dimensions={}")
    assert prove(twice, zero).relation is not REALS


def test_fingerprints_of_a_large_degree_prove_nothing() -> None:
    squares = "x = s32[4] parameter(0) " + " ".join(
        f"x{n + 1} = s32[4] multiply(x{n or ''}, x{n or ''})" for n in range(40)
    )
    both = [program(f"{squares} ROOT r = s32[4] add(x40, x{n})") for n in (39, 40)]
    assert prove(both[0], both[1]).relation in (REFUTED, Relation.OPEN)
    exchanged = program(f"{squares} ROOT r = s32[4] add(x39, x40)")
    verdict = prove(both[0], exchanged)
    assert verdict.relation is Relation.OPEN
    assert "degree" in verdict.reason


def test_sums_of_many_fractions_have_a_small_degree() -> None:
    """Sums of fractions with different denominators, of sums of such fractions."""
    layers = "x0 = f32[64,64] parameter(0) z = f32[] constant(0) " + "".join(
        f"""e{n} = f32[64,64] exponential(x{n}) t{n} = f32[64] reduce(e{n}, z), dimensions={{1}}, to_apply=add
        b{n} = f32[64,64] broadcast(t{n}), dimensions={{0}} q{n} = f32[64,64] divide(e{n}, b{n})
        x{n + 1} = f32[64,64] dot(q{n}, q{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} """
        for n in range(6)
    )
    before = program(layers + "twice = f32[64,64] add(x6, x6) ROOT r = f32[64,64] add(twice, x6)")
    three = "c = f32[] constant(3) three = f32[64,64] broadcast(c), dimensions={} "
    after = program(layers + three + "ROOT r = f32[64,64] multiply(x6, three)")
    assert prove(before, after).relation is REALS


def test_the_degree_of_a_product_counts_the_terms_of_one_sum() -> None:
    """Not all elements of an operand: 64 fractions are summed, of each of the 4,096 columns."""
    shapes = "x = f32[64] parameter(0) y = f32[64,4096] parameter(1) u = f32[64] parameter(2) "
    fractions = (
        shapes
        + "q = f32[64] divide(u, x) p = f32[4096] dot(q, y), lhs_contracting_dims={0}, "
        + ("rhs_contracting_dims={0} ")
    )
    degree = FingerprintEvaluator(Algebra(reals=True), runs_loops=True)
    degree.results(program(fractions + "ROOT r = f32[4096] negate(p)"))
    assert degree.degree == 64 * 3


def test_a_loop_in_a_loop_depends_on_elements() -> None:
    """As much, where the inner state also has what the outer loop does not need."""
    text = """
    test {{ s = (s32[], s32[], s32[]) parameter(0) x = s32[] get-tuple-element(s), index=0
    l = s32[] constant(9) ROOT c = pred[] compare(x, l), direction=LT }}
    inner {{ s = (s32[], s32[], s32[]) parameter(0) x = s32[] get-tuple-element(s), index=0
    y = s32[] get-tuple-element(s), index=1 z = s32[] get-tuple-element(s), index=2 o = s32[] constant(1)
    n = s32[] add(x, o) m = s32[] multiply(y, y) ROOT t = (s32[], s32[], s32[]) tuple(n, m, z) }}
    outer {{ s = (s32[], s32[], s32[]) parameter(0) x = s32[] get-tuple-element(s), index=0
    y = s32[] get-tuple-element(s), index=1 z = s32[] get-tuple-element(s), index=2 k = s32[] add(z, z)
    i = (s32[], s32[], s32[]) tuple(x, y, {inner})
    w = (s32[], s32[], s32[]) while(i), condition=test, body=inner
    a = s32[] get-tuple-element(w), index=0 b = s32[] get-tuple-element(w), index=1
    ROOT t = (s32[], s32[], s32[]) tuple(a, b, k) }}
    ENTRY e {{ x = s32[] parameter(0) y = s32[] parameter(1) z = s32[] parameter(2)
    t = (s32[], s32[], s32[]) tuple(x, y, z) w = (s32[], s32[], s32[]) while(t), condition=test, body=outer
    ROOT r = s32[] get-tuple-element(w), index={element} }}
    """

    def loops(inner: str, element: int) -> HloModule:
        return HloModule.from_text("HloModule m\n" + text.format(inner=inner, element=element))

    assert prove(loops("z", 1), loops("x", 1)).relation is IDENTICAL
    assert not prove(loops("z", 0), loops("z", 1)).relation.is_proof


def test_what_is_undecided_is_stated() -> None:
    """By the values that both programs compute: the sine is one of them, the results that are equal go."""
    before = """a = f32[4] parameter(0) b = f32[4] sine(a) x = f32[4] exponential(b) y = f32[4] exponential(a)
    p = f32[4] multiply(x, y) ROOT t = (f32[4], f32[4]) tuple(y, p)"""
    after = """a = f32[4] parameter(0) b = f32[4] sine(a) y = f32[4] exponential(a) s = f32[4] add(b, a)
    p = f32[4] exponential(s) ROOT t = (f32[4], f32[4]) tuple(y, p)"""
    verdict = prove(program(before), program(after), samples=0)
    assert verdict.relation is Relation.OPEN
    small = [HloModule.from_text(text) for text in verdict.undecided]
    counts = [Counter(i.opcode for i in module.entry.instructions) for module in small]
    assert counts == [
        {"parameter": 3, "exponential": 1, "multiply": 1},
        {"parameter": 3, "add": 1, "exponential": 1},
    ]
    assert prove(*small, samples=0).relation is Relation.OPEN


def test_the_first_new_value_is_named() -> None:
    before = "a = f32[4] parameter(0) b = f32[4] sine(a) c = f32[4] negate(b) ROOT r = f32[4] tanh(c)"
    after = "a = f32[4] parameter(0) b = f32[4] sine(a) c = f32[4] abs(b) ROOT r = f32[4] tanh(c)"
    assert "abs(" in prove(program(before), program(after)).instruction


def test_other_parameters_are_refused() -> None:
    with pytest.raises(HloError) as caught:
        prove(program("ROOT a = f32[4] parameter(0)"), program("ROOT a = f32[5] parameter(0)"))
    assert caught.value.rule == "prove.form"


@pytest.mark.parametrize("name", [n for n, (relation, _, _) in ALL_PAIRS.items() if relation.is_proof])
def test_no_mistake_is_proved(name: str) -> None:
    """Mutants of the second program of a proved pair that the evaluator tells apart are not proved."""
    _, before, after = ALL_PAIRS[name]
    original = program(before)
    for kind, mutant in list(mutants(program(after), 7))[:6]:
        try:
            verdict = prove(original, mutant)
        except HloError:
            continue
        if verdict.relation.is_proof:
            assert not is_told_apart(original, mutant, verdict.relation), kind
