"""`hloom prove --any-size`: whether two programs are equal for all sizes of their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hloom.tools.console.terminal import echo, styled

if TYPE_CHECKING:
    from hloom.ir.module import HloModule


def judge_sizes(before: HloModule, after: HloModule, *, as_json: bool) -> int:
    """Judge two programs for all sizes and print what is proved; return the exit status."""
    from hloom.proofs.symbolic.pairs import prove_any_size
    from hloom.proofs.verdict import Relation

    judged = prove_any_size(before, after)
    verdict = judged.verdict
    row = {
        "relation": verdict.relation.value,
        "symbols": dict(judged.sizes),
        "parameters": list(judged.parameters),
        "derived": {str(number): text for number, text in judged.derived.items()},
        "conditions": list(judged.conditions),
        "cases": verdict.cases,
        "reason": verdict.reason,
        "sizes": dict(verdict.sizes),
        "inputs": verdict.counterexample.inputs if verdict.counterexample is not None else "",
    }
    echo(json.dumps(row, indent=1) if as_json else "\n".join(_lines(row, verdict.relation.is_proof)))
    return 1 if verdict.relation is Relation.REFUTED else 0 if verdict.relation.is_proof else 2


def _lines(row: Mapping[str, Any], is_proof: bool) -> list[str]:
    """Return a verdict as text, with what varies and on which conditions."""
    lines = [styled(row["relation"], "added" if is_proof else "removed")]
    if is_proof:
        lines.append(f"  for all sizes {', '.join(row['symbols'])} for which both programs are valid")
    lines.append(f"  parameters: {', '.join(row['parameters'])}")
    if row["derived"]:
        varies = (f"{number} = {text}" for number, text in row["derived"].items())
        lines.append(f"  numbers that vary: {', '.join(varies)}; all others are fixed")
    if row["conditions"]:
        lines.append(f"  valid only if {', '.join(row['conditions'])}")
    lines += [f"  {row['reason']}"] if row["reason"] else []
    if row["sizes"]:
        lines.append("  sizes: " + ", ".join(f"{name} = {value}" for name, value in row["sizes"].items()))
    return lines + ([f"  inputs: {row['inputs']}"] if row["inputs"] else [])
