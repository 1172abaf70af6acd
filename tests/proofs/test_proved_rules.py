"""The page of proved rules is up to date, and proofs that take little time are made again."""

from __future__ import annotations

from types import ModuleType

import pytest

from hloom.ir.module import HloModule
from hloom.passes.registry import passes
from hloom.proofs.symbolic.ranks import HIGHEST_RANK, programs_of_rank
from hloom.proofs.symbolic.rewrites import prove_rewrite
from hloom.proofs.verdict import Relation
from tests.passes import test_arithmetic_rules, test_contraction_rules, test_movement_rules
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
SLOW = {
    "clamp_without_a_bound", "convolution_of_nothing", "convolution_of_transpose", "divide_by_power_of_two",
    "dot_as_product", "dot_of_reshape", "dot_of_several_sums", "multiply_by_minus_one", "multiply_by_one",
    "pad_twice", "power_as_products", "power_by_root", "reduce_of_antisymmetric", "reduce_of_reshape",
    "reshape_of_iota", "slice_of_everything", "slice_of_pad", "slice_of_reshape", "transpose_of_convolution",
    "update_at_constant_of_one_number", "window_of_everything", "window_of_one",
}  # fmt: skip
"""Rules whose first example takes long to prove, and is of no other kind than one that takes less."""


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


def quickly_proved(module: ModuleType) -> list[str]:
    """Return the names of the rules with examples in a module that are proved in little time."""
    return [name for name in module.RULES if RESULTS[name].is_proved and name not in SLOW]


def prove_again(name: str) -> None:
    """Check that the first example of a rule has the verdict of the page."""
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for other, rule, examples in rules() if other == name)
    assert Relation(RESULTS[name].relations[0][2]) is prove_example(rule, examples[0])


@pytest.mark.parametrize("name", quickly_proved(test_arithmetic_rules))
def test_proofs_of_arithmetic_are_made_again(name: str) -> None:
    prove_again(name)


@pytest.mark.parametrize("name", quickly_proved(test_movement_rules))
def test_proofs_of_movement_are_made_again(name: str) -> None:
    prove_again(name)


@pytest.mark.parametrize("name", quickly_proved(test_contraction_rules))
def test_proofs_of_contractions_are_made_again(name: str) -> None:
    prove_again(name)


@pytest.mark.parametrize("name", ["add_zero", "dot_of_transpose", "slice_twice", "transpose_of_broadcast"])
@pytest.mark.parametrize("rank", range(HIGHEST_RANK + 1))
def test_programs_of_every_rank_are_proved(name: str, rank: int) -> None:
    pytest.importorskip("z3", reason="z3 is not installed")
    rule, examples = next((rule, examples) for other, rule, examples in rules() if other == name)
    (program,) = programs_of_rank(next(iter(examples[0].programs())), rank, 1)
    assert prove_rewrite(rule, program).relation.is_proof


@pytest.mark.parametrize("rank", range(HIGHEST_RANK))
def test_programs_of_a_rank_are_valid_and_have_it(rank: int) -> None:
    """Values have at most the rank, and some exactly."""
    count = 0
    for _, _, examples in rules():
        programs = list(programs_of_rank(next(iter(examples[0].programs())), rank, 1))
        assert len(programs) <= 1
        for text in programs:
            module = HloModule.from_text(text)
            module.verify()
            ranks = [
                leaf.rank for i in module.entry.instructions for _, leaf in i.shape.leaves() if leaf.is_array
            ]
            assert max(ranks) == rank
            count += 1
    assert count > 50


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
