"""Prove the rules of hloom's passes for all sizes, and write the page docs/proved_rules.md.

``python -m tests.proofs.proved_rules`` proves the rules whose code or examples changed since the page was
written, and writes the page; with ``--all`` it proves every rule (an hour on one core). `make docs` runs it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.rewriting import RewriteRule
from hloom.proofs.symbolic.repetition import HIGHEST_RANK, repeated_programs
from hloom.proofs.symbolic.rewrites import prove_rewrite
from hloom.proofs.verdict import Relation
from tests.passes import test_arithmetic_rules, test_contraction_rules, test_movement_rules
from tests.rule_checks import Example

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proved_rules.md"
RESULTS: Final = Path(__file__).with_name("proved_rules.json")
MODULES: Final[tuple[ModuleType, ...]] = (
    test_arithmetic_rules,
    test_movement_rules,
    test_contraction_rules,
)
SECONDS: Final = 10
"""Processor time after which a proof is given up."""


@dataclass
class Result:
    """The verdicts on a rule.

    Attributes:
        digest: of its code and its examples.
        relations: the verdict for each example and element type.
        ranks: the ranks of the programs that are proved.
        repeated: the number of programs with a repeated dimension that are proved, and the number of all.
        open: programs that are not proved, with reasons.
    """

    digest: str
    relations: list[tuple[int, str, str]] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    repeated: tuple[int, int] = (0, 0)
    open: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_proved(self) -> bool:
        """Return whether each example is proved for at least one element type."""
        proved = {example for example, _, relation in self.relations if Relation(relation).is_proof}
        return bool(proved) and proved == {example for example, _, _ in self.relations}


class _TooLong(Exception):
    pass


def _give_up(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def rules() -> Iterator[tuple[str, RewriteRule, list[Example]]]:
    """Yield every rule with its examples."""
    for module in MODULES:
        for name, rule in module.RULES.items():
            yield name, rule, module.EXAMPLES[name]


def digest_of(rule: RewriteRule, examples: Sequence[Example]) -> str:
    """Return a digest of what a proof is about."""
    texts = [inspect.getsource(rule.rewrite), *(f"{e.parameters} {e.body} {list(e.types)}" for e in examples)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def verdict(rule: RewriteRule, text: str) -> tuple[Relation, str]:
    """Return the verdict on a rule for all sizes of a program, and why it is open."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 1)
    try:
        judged = prove_rewrite(rule, text)
    except _TooLong:
        return Relation.OPEN, f"not decided in {SECONDS} s"
    except HloError as error:
        return Relation.OPEN, error.message
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return judged.relation, judged.reason


def prove_example(rule: RewriteRule, example: Example) -> Relation:
    """Judge a rule for all sizes of an example, for its first type."""
    return prove_rewrite(rule, next(iter(example.programs()))).relation


def prove(rule: RewriteRule, examples: Sequence[Example]) -> Result:
    """Judge a rule for all sizes of its examples, for every type, and of those with a repeated dimension."""
    result = Result(digest_of(rule, examples))
    ranks: set[int] = set()
    for number, example in enumerate(examples):
        for kind, text in zip(example.types, example.programs(), strict=True):
            relation, reason = verdict(rule, text)
            result.relations.append((number, kind, relation.value))
            if relation.is_proof:
                ranks.add(_rank(text))
            else:
                result.open.append((f"{example.body} ({kind})", reason))
        text = next(iter(example.programs()))
        for program in _repeated(text):
            relation, reason = verdict(rule, program)
            proved, count = result.repeated
            result.repeated = proved + relation.is_proof, count + 1
            if relation.is_proof:
                ranks.add(_rank(program))
            else:
                result.open.append((f"{example.body}, a dimension repeated", reason))
    result.ranks = sorted(ranks)
    return result


def _repeated(text: str) -> Iterator[str]:
    """Yield an example with each dimension twice, and an elementwise one up to rank 4."""
    yield from repeated_programs(text, 2)
    steps = HloModule.from_text(text).entry.post_order()
    if all(i.operation.elementwise or not i.operands or not i.operands[0].shape.rank for i in steps):
        for times in range(3, HIGHEST_RANK + 1):
            yield from repeated_programs(text, times)


def _rank(text: str) -> int:
    return max(i.shape.rank for i in HloModule.from_text(text).entry.post_order() if i.shape.is_array)


def load() -> dict[str, Result]:
    """Return the recorded results."""
    if not RESULTS.exists():
        return {}
    return {name: Result(**row) for name, row in json.loads(RESULTS.read_text()).items()}


def main(arguments: Sequence[str]) -> None:
    """Prove what changed, and write the results and the page."""
    signal.signal(signal.SIGVTALRM, _give_up)
    results = {} if "--all" in arguments else load()
    names: list[str] = []
    for name, rule, examples in rules():
        names.append(name)
        if name not in results or results[name].digest != digest_of(rule, examples):
            print(name, flush=True)
            results[name] = prove(rule, examples)
            rows = (json.dumps(known) + ": " + json.dumps(asdict(r)) for known, r in results.items())
            RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    from tests.proofs.proved_rules_page import page

    PAGE.write_text(page({name: results[name] for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
