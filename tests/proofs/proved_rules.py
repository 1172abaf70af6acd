"""Prove rules of hloom's passes and of XLA for all sizes, and write the page docs/proved_rules.md.

``python -m tests.proofs.proved_rules`` proves the rules whose code or examples changed since the page was
written, and writes the page; names as arguments prove these rules again, ``--all`` every rule. `make docs`
runs it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pickle
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from hloom.errors import HloError
from hloom.passes.rewriting import RewriteRule
from hloom.proofs.symbolic.formulas import Formula
from hloom.proofs.symbolic.ranks import HIGHEST_RANK, programs_of_rank
from hloom.proofs.symbolic.rewrites import prove_rewrite
from hloom.proofs.symbolic.rules import SymbolicRule, prove_instance
from hloom.proofs.symbolic.verdicts import NO_CASE, TOO_MANY_STEPS, RuleVerdict
from hloom.proofs.symbolic.xla import conversion, elementwise, movement, slicing, sums
from hloom.proofs.verdict import Relation
from hloom.shape.element_type import ElementType
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
XLA: Final[tuple[ModuleType, ...]] = (elementwise, conversion, movement, slicing, sums)
SECONDS: Final = 60
"""Processor time after which a proof is given up on a machine that takes so long for its steps."""
PROGRAMS: Final = 16
"""Number of programs that are made from an example for each rank, about."""
LATE: Final = f"not decided in {SECONDS} s"
MOST_LATE: Final = 2
"""Number of proofs from an example that are given up before all later ones are, of higher ranks mostly."""
RULE_EFFORT: Final = 600_000_000
"""Steps for a rule after which all proofs of programs of other ranks are given up."""
T = TypeVar("T")


@dataclass
class Result:
    """The verdicts on a rule.

    Attributes:
        digest: of its code and its examples.
        relations: the verdict for each example and element type; of a rule of XLA the weakest for each type.
        ranks: for each rank, the number of programs that are proved, and the number of all.
        open: programs that are not proved, with reasons.
        seconds: processor time.
    """

    digest: str
    relations: list[tuple[int, str, str]] = field(default_factory=list)
    ranks: dict[str, tuple[int, int]] = field(default_factory=dict)
    open: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_proved(self) -> bool:
        """Return whether each example is proved for at least one element type."""
        proved = {example for example, _, relation in self.relations if Relation(relation).is_proof}
        return bool(proved) and proved == {example for example, _, _ in self.relations}

    @property
    def proved_ranks(self) -> list[int]:
        """Return the ranks at which all programs are proved."""
        return [int(rank) for rank, (proved, count) in self.ranks.items() if proved == count]

    @property
    def is_proved_at_all_ranks(self) -> bool:
        """Return whether all programs are proved."""
        return self.is_proved and bool(self.ranks) and len(self.proved_ranks) == len(self.ranks)

    def add(self, rank: int, program: str, reason: str) -> None:
        """Count a program of a rank, not proved for a reason, or proved if there is none."""
        proved, count = self.ranks.get(str(rank), (0, 0))
        self.ranks[str(rank)] = proved + (not reason), count + 1
        if reason and proved == count:
            self.open.append((program, f"rank {rank}: {reason}"))


def rules() -> Iterator[tuple[str, RewriteRule, list[Example]]]:
    """Yield every rule of hloom with its examples."""
    for module in MODULES:
        for name, rule in module.RULES.items():
            yield name, rule, module.EXAMPLES[name]


def rules_of_xla() -> Iterator[tuple[str, SymbolicRule]]:
    """Yield every rule of XLA that is stated, by book and name."""
    for module in XLA:
        for rule in module.RULES:
            yield f"{module.RULES.name}.{rule.name}", rule


def digest_of(rule: RewriteRule, examples: Sequence[Example]) -> str:
    """Return a digest of what a proof is about."""
    texts = [inspect.getsource(rule.rewrite), *(f"{e.parameters} {e.body} {list(e.types)}" for e in examples)]
    return _digest(texts)


def digest_of_statement(rule: SymbolicRule) -> str:
    """Return a digest of a statement, and of the functions of its file that statements call."""
    if isinstance(rule.statement, Formula):
        return _digest([rule.statement.text, inspect.getsource(Formula), f"{rule.kinds} {rule.most}"])
    module = inspect.getmodule(rule.statement)
    shared = [f for n, f in vars(module).items() if n.startswith("_") and inspect.isfunction(f)]
    return _digest([*map(inspect.getsource, (rule.statement, *shared)), f"{rule.kinds} {rule.most}"])


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


# -- proofs


def limited(judge: Callable[..., T], *arguments: object) -> T | str:
    """Return what a function returns, or why it does not.

    It runs in a process of its own: solvers may look at no limit for minutes.
    """
    source, target = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        with suppress(BaseException), os.fdopen(target, "wb") as out:
            pickle.dump(_answer(judge, *arguments), out)
        os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as answer:
        pickled = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return LATE
    result = pickle.loads(pickled)
    if isinstance(result, Exception):
        raise result
    return result


def _answer(judge: Callable[..., T], *arguments: object) -> T | str | Exception:
    try:
        return judge(*arguments)
    except HloError as error:
        return error.message
    except Exception as error:
        return error


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


@dataclass(frozen=True)
class Judgement:
    """The verdict on a program of a rank, the reason if it is open, and the steps of the proof."""

    relation: Relation
    reason: str
    steps: int = 0
    rank: int = 0

    @property
    def is_late(self) -> bool:
        """Return whether the proof reached a limit of time or steps."""
        return self.reason in (LATE, TOO_MANY_STEPS)


@dataclass
class Budget:
    """The steps that are left for a rule, and how many proofs from an example were given up."""

    steps: int = RULE_EFFORT
    late: int = 0

    def judged(self, judge: Callable[..., Judgement | None], *arguments: object) -> Judgement | None:
        """Return a judgement by a process of its own; that it takes too many steps if the budget is used."""
        if self.late >= MOST_LATE or self.steps < 0:
            return Judgement(Relation.OPEN, TOO_MANY_STEPS)
        judgement = limited(judge, *arguments)
        if isinstance(judgement, str):
            judgement = Judgement(Relation.OPEN, judgement)
        if judgement is not None:
            self.steps -= judgement.steps
            self.late += judgement.is_late
        return judgement


def _rewrite(rule: RewriteRule, text: str) -> Judgement | None:
    """Judge a rewrite for all sizes of a program; None if the rule does not apply to it."""
    judgement = _judgement(prove_rewrite(rule, text))
    return None if judgement.reason == NO_CASE else judgement


def _judgement(verdict: RuleVerdict, rank: int = 0) -> Judgement:
    return Judgement(verdict.relation, verdict.reason, verdict.steps, rank)


def prove_example(rule: RewriteRule, example: Example) -> Relation:
    """Judge a rule for all sizes of an example, for its first type."""
    return prove_rewrite(rule, next(iter(example.programs()))).relation


def prove(rule: RewriteRule, examples: Sequence[Example]) -> Result:
    """Judge a rule for all sizes of its examples, for every type, and of programs made from them."""
    result, start = Result(digest_of(rule, examples)), processor_seconds()
    for number, example in enumerate(examples):
        for kind, text in zip(example.types, example.programs(), strict=True):
            judgement = Budget().judged(_rewrite, rule, text) or Judgement(Relation.OPEN, NO_CASE)
            result.relations.append((number, kind, judgement.relation.value))
            if not judgement.relation.is_proof:
                result.open.append((f"{example.body} ({kind})", judgement.reason))
    budget = Budget()
    for example in examples:
        budget.late = 0
        for rank in range(HIGHEST_RANK + 1):
            for text in programs_of_rank(next(iter(example.programs())), rank, PROGRAMS):
                judgement = budget.judged(_rewrite, rule, text)
                if judgement is not None:
                    result.add(rank, text, "" if judgement.relation.is_proof else judgement.reason)
    result.ranks = dict(sorted(result.ranks.items()))
    result.seconds = round(processor_seconds() - start, 1)
    return result


def prove_statement(rule: SymbolicRule) -> Result:
    """Judge a rule of XLA for all its types and numbers of dimensions."""
    result, start = Result(digest_of_statement(rule)), processor_seconds()
    budget = Budget()
    for kind in rule.kinds:
        weakest, budget.late = Relation.IDENTICAL, 0
        for counts in sorted(replace(rule, most=HIGHEST_RANK).counts(), key=lambda c: sum(c.values())):
            judgement = budget.judged(_instance, rule, kind, counts)
            if judgement is None:
                continue
            relation, rank = judgement.relation, judgement.rank or min(sum(counts.values()), HIGHEST_RANK)
            result.add(rank, f"{kind.name} {counts}", "" if relation.is_proof else judgement.reason)
            order = (Relation.IDENTICAL, Relation.EQUAL_OVER_REALS, Relation.OPEN, Relation.REFUTED)
            weakest = max(weakest, relation, key=order.index)
        result.relations.append((0, kind.name, weakest.value))
    result.ranks = dict(sorted(result.ranks.items()))
    result.seconds = round(processor_seconds() - start, 1)
    return result


def _instance(rule: SymbolicRule, kind: ElementType, counts: Mapping[str, int]) -> Judgement | None:
    """Judge a rule of XLA for numbers of dimensions; None if it applies to no sizes."""
    instance = prove_instance(rule, kind, counts)
    return None if instance.is_vacuous else _judgement(instance.verdict, instance.rank)


# -- results


def load() -> dict[str, Result]:
    """Return the recorded results."""
    if not RESULTS.exists():
        return {}
    return {name: Result(**row) for name, row in json.loads(RESULTS.read_text()).items()}


def main(arguments: Sequence[str]) -> None:
    """Prove what changed, and write the results and the page."""
    results = {} if "--all" in arguments else load()
    jobs: dict[str, tuple[str, Callable[[], Result]]] = {
        name: (digest_of(rule, examples), lambda rule=rule, examples=examples: prove(rule, examples))
        for name, rule, examples in rules()
    }
    for name, rule in rules_of_xla():
        jobs[name] = digest_of_statement(rule), lambda rule=rule: prove_statement(rule)
    _, rule, examples = next(rules())
    prove_example(rule, examples[0])  # loads z3, which each process of a proof would load otherwise
    for name, (digest, job) in jobs.items():
        if name not in results or results[name].digest != digest or name in arguments:
            results[name] = job()
            print(name, results[name].ranks, results[name].seconds, flush=True)
            rows = (json.dumps(n) + ": " + json.dumps(asdict(results[n])) for n in jobs if n in results)
            RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    from tests.proofs.proved_rules_page import page

    PAGE.write_text(page({name: results[name] for name in jobs}))


if __name__ == "__main__":
    main(sys.argv[1:])
