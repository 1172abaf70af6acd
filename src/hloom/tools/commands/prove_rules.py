"""`hloom prove --symbolic`: whether rules hold for all sizes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloom.errors import HloError
from hloom.tools.console.terminal import echo, progress, styled

if TYPE_CHECKING:
    from hloom.proofs.symbolic.rules import InstanceVerdict, RuleBook


def judge_rules(file: str, *, as_json: bool) -> int:
    """Judge the rules of a Python file and print their verdicts; return the exit status."""
    from hloom.proofs.symbolic.rules import overall, prove_rule
    from hloom.proofs.verdict import Relation

    relations: set[Relation] = set()
    rows: list[dict[str, Any]] = []
    for rule in (rule for book in rule_books(file) for rule in book):
        progress(rule.name)
        instances = prove_rule(rule)
        verdict = overall(instances)
        relations.add(verdict.relation)
        rows.append({"rule": rule.name, "purpose": rule.purpose, **_row(instances)})
        if not as_json:
            progress.done()
            style = "added" if verdict.relation.is_proof else "removed"
            echo(f"{rule.name}: {styled(verdict.relation.value, style)}")
            if not verdict.relation.is_proof:
                echo(_counterexample(rows[-1]))
    progress.done()
    if as_json:
        echo(json.dumps({"rules": rows}, indent=1))
    return 1 if Relation.REFUTED in relations else 2 if Relation.OPEN in relations else 0


def rule_books(file: str) -> list[RuleBook]:
    """Return the books of rules that a Python file defines."""
    from hloom.proofs.symbolic.rules import RuleBook

    specification = importlib.util.spec_from_file_location(Path(file).stem, file)
    if specification is None or specification.loader is None:
        raise HloError(f"{file} is no Python file", rule="prove.rule-file")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    books = [value for value in vars(module).values() if isinstance(value, RuleBook)]
    if not books:
        raise HloError(f"{file} defines no RuleBook", rule="prove.rule-file")
    return books


def _row(instances: list[InstanceVerdict]) -> dict[str, Any]:
    from hloom.proofs.symbolic.rules import overall

    verdict = overall(instances)
    inputs = verdict.counterexample.inputs if verdict.counterexample is not None else ""
    return {
        "relation": verdict.relation.value,
        "instances": len(instances),
        "cases": sum(i.verdict.cases for i in instances),
        "reason": verdict.reason,
        "sizes": dict(verdict.sizes),
        "inputs": inputs,
        "before": verdict.before,
        "after": verdict.after,
    }


def _counterexample(row: dict[str, Any]) -> str:
    sizes = ", ".join(f"{name} = {value}" for name, value in row["sizes"].items())
    lines = [
        row["reason"],
        f"sizes: {sizes}" if sizes else "",
        f"inputs: {row['inputs']}" if row["inputs"] else "",
    ]
    return "\n".join(f"  {line}" for line in lines if line)
