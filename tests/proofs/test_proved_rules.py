"""The page of proved rules is up to date, and proofs that take little time are made again."""

from __future__ import annotations

import pytest

from hloom.passes.registry import passes
from hloom.proofs.symbolic.ranks import HIGHEST_RANK, programs_of_rank
from hloom.proofs.symbolic.rewrites import prove_rewrite
from hloom.proofs.verdict import Relation
from tests.proofs.proved_rules import (
    LATE,
    PAGE,
    digest_of,
    digest_of_statement,
    load,
    prove_example,
    rules,
    rules_of_xla,
)
from tests.proofs.proved_rules_page import TESTED, is_treated_by_tensorright, page, rules_of
from tests.proofs.rule_mutants import REFUTED, judged, judged_statement, mutants, mutants_of_statement

RESULTS = load()
AGAIN = (
    "abs_again", "add_zero", "bitcast_convert_twice", "broadcast_twice", "concatenate_of_neighbours",
    "convert_twice", "convolution_of_reversed_kernel", "dot_of_converts", "dot_of_transpose",
    "dynamic_slice_of_broadcast", "pad_that_cuts",
    "gather_of_everything", "power_as_reciprocal", "reduce_of_broadcast", "reduce_twice", "reverse_twice",
    "select_of_not", "slice_twice", "sort_of_unused", "transpose_of_reshape", "update_with_what_is_there",
)  # fmt: skip
"""Rules of each kind whose first example is proved again."""


NOT_PROVED = {"sums.convolution_of_pad", "sums.convolution_of_padded_kernel"}
"""Rules of XLA that are not proved at all ranks: conditions on windows have too many cases."""


def test_the_page_is_up_to_date() -> None:
    """``make docs`` has been run since a rule or one of its examples changed."""
    listed = {name: digest_of(rule, examples) for name, rule, examples in rules()}
    listed |= {name: digest_of_statement(rule) for name, rule in rules_of_xla()}
    recorded = {name: result.digest for name, result in RESULTS.items()}
    changed = sorted(name for name in {*listed, *recorded} if listed.get(name) != recorded.get(name))
    assert not changed, f"run make docs: {changed}"
    assert PAGE.read_text() == page(RESULTS), "run make docs"


def test_every_rule_is_proved_or_has_a_reason() -> None:
    names = {name for name, _, _ in rules()}
    proved = {name for name in names if RESULTS[name].is_proved}
    assert set(TESTED) == names - proved
    assert len(proved) >= 0.85 * len(names)


def test_rules_of_xla_are_proved_at_all_ranks() -> None:
    proved = {name for name, _ in rules_of_xla() if RESULTS[name].is_proved_at_all_ranks}
    assert {name for name, _ in rules_of_xla()} - proved == NOT_PROVED
    assert sum(map(is_treated_by_tensorright, proved)) >= 115


def test_no_verdict_depends_on_the_machine() -> None:
    """No proof of the page was given up by the processor time that it took."""
    assert not [name for name, result in RESULTS.items() if any(LATE in reason for _, reason in result.open)]


def test_every_rule_belongs_to_a_pass() -> None:
    applied = {rule.name for pass_class in passes().values() for rule in rules_of(pass_class)}
    assert {name for name, _, _ in rules()} <= applied


@pytest.mark.parametrize("name", AGAIN)
def test_proofs_are_made_again(name: str) -> None:
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for other, rule, examples in rules() if other == name)
    assert RESULTS[name].is_proved
    assert Relation(RESULTS[name].relations[0][2]) is prove_example(rule, examples[0])


@pytest.mark.parametrize("name", ["add_zero", "dot_of_transpose", "slice_twice", "transpose_of_broadcast"])
@pytest.mark.parametrize("rank", range(HIGHEST_RANK + 1))
def test_programs_of_every_rank_are_proved(name: str, rank: int) -> None:
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for other, rule, examples in rules() if other == name)
    (program,) = programs_of_rank(next(iter(examples[0].programs())), rank, 1)
    assert prove_rewrite(rule, program).relation.is_proof


@pytest.mark.parametrize("name", ["slice_of_concatenate", "slice_of_reverse", "slice_twice"])
def test_rules_with_a_mistake_are_refuted(name: str) -> None:
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for other, rule, examples in rules() if other == name)
    text = next(iter(examples[0].programs()))
    judgements = {mistake: judged(mutant, text, 1) for mistake, mutant in mutants(rule)}
    wrong = {mistake: word for mistake, word in judgements.items() if word.startswith("wrong")}
    assert wrong
    assert set(wrong.values()) == {REFUTED}, wrong


def test_a_wrong_number_at_infinity_is_refuted() -> None:
    """``power(-inf, -1.5)`` becomes 1 in place of 0: over the reals the mutant is right."""
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for name, rule, examples in rules() if name == "power_by_root")
    text = next(text for example in examples for text in example.programs() if "constant(-1.5)" in text)
    words = [judged(mutant, text, 1) for mistake, mutant in mutants(rule) if mistake.endswith(": 0 plus 1")]
    assert words[-1] == REFUTED


@pytest.mark.parametrize(
    "name", ["slicing.slice_twice", "movement.pad_between_one", "elementwise.common_factor"]
)
def test_statements_with_a_mistake_are_refuted(name: str) -> None:
    pytest.importorskip("z3", reason="z3 is not installed")
    rule = dict(rules_of_xla())[name]
    counts = dict.fromkeys(rule.axes, 1) | {"N": 2}
    judgements = {mistake: judged_statement(m, counts, 1) for mistake, m in mutants_of_statement(rule)}
    wrong = {mistake: word for mistake, word in judgements.items() if word.startswith("wrong")}
    assert wrong
    assert set(wrong.values()) == {REFUTED}, wrong
