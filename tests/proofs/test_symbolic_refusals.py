"""What proofs for all sizes refuse; none of it needs the solver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.proofs.symbolic import questions
from hloom.proofs.symbolic.elements import IndexVariables, SymbolicElements
from hloom.proofs.symbolic.rules import SymbolicRule, prove_rule
from hloom.proofs.symbolic.sizes import Trail
from hloom.tools.commands.prove_rules import rule_books


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    questions.solver_library.cache_clear()
    with pytest.raises(HloError, match=r"pip install 'hloom\[prove\]'") as caught:
        questions.solver_library()
    assert caught.value.rule == "prove.solver"
    questions.solver_library.cache_clear()


def test_a_rule_without_instances_is_refused() -> None:
    with pytest.raises(HloError, match="no sizes") as caught:
        prove_rule(SymbolicRule("nothing", lambda w: iter(()), kinds=()))
    assert caught.value.rule == "prove.vacuous"


def test_operations_without_declared_elements_are_refused() -> None:
    sort = HloModule.from_text(
        "HloModule m\nless { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT r = pred[] compare(a, b), direction=LT }\n"
        "ENTRY e { x = f32[3] parameter(0)\n ROOT r = f32[3] sort(x), dimensions={0}, to_apply=less }"
    ).entry.root
    with pytest.raises(HloError, match="sort are not modelled") as caught:
        SymbolicElements(Trail({}), IndexVariables()).undeclared(sort, ())
    assert caught.value.rule == "prove.operation"


def test_a_file_without_rules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("x = 1\n")
    with pytest.raises(HloError, match="defines no RuleBook") as caught:
        rule_books(str(tmp_path / "rules.py"))
    assert caught.value.rule == "prove.rule-file"
