"""Mutants of rules: copies of their code with one small mistake each.

``python -m tests.proofs.rule_mutants --count N --seed S`` draws mutants of hloom's rules and judges each for
all sizes of an example, or of a program of another rank that is made from one; with ``--xla`` mutants of the
statements of XLA's rules, each for drawn numbers of dimensions. A mutant is wrong if the evaluator tells the
results apart, for the sizes of the program or for others that are drawn. A wrong one must be refuted, and
never be proved.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import copy
import inspect
import itertools
import random
import signal
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.rewriting import RewriteRule, same_type
from hloom.proofs.refutation import DISTRIBUTIONS, refute
from hloom.proofs.symbolic.formulas import Formula
from hloom.proofs.symbolic.generalization import Generalization
from hloom.proofs.symbolic.ranks import HIGHEST_RANK, programs_of_rank
from hloom.proofs.symbolic.rewrites import apply_once, prove_rewrite
from hloom.proofs.symbolic.rules import SymbolicRule, programs, prove_instance
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.symbolic.verdicts import InvalidSizes, plain
from hloom.proofs.verdict import Relation
from tests.proofs.judging import is_told_apart
from tests.proofs.proved_rules import MODULES, rules_of_xla
from tests.rule_checks import Example

SECONDS: Final = 15
"""Processor time for the judgement of a mutant."""
REFUTED: Final = "wrong, refuted"
"""The judgement that a wrong mutant must get."""
DRAWS: Final = 20
"""Number of sizes that are drawn to look for a mistake."""
TRIES: Final = 2000
"""Number of draws, most of sizes that a statement does not apply to."""
LARGEST: Final = 3
"""Largest number that is drawn for a symbol of a statement."""
PROGRAMS: Final = 8
"""Number of programs of a rank from which one is drawn."""
_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip


Judge: TypeAlias = Callable[[random.Random, int], tuple[str, str]]
"""Returns what a mutant is judged on, and the judgement."""


class _TooLongError(BaseException):
    """Time is up; no handler of errors takes it for another one."""


def _give_up(number: int, frame: object) -> None:
    raise _TooLongError


class _Mistake(ast.NodeTransformer):
    """Makes one mistake: the one of a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = ""

    def _is_it(self, node: ast.AST, text: str) -> bool:
        self.number -= 1
        if self.number == -1:
            self.text = f"line {node.lineno}: {text}"  # type: ignore[attr-defined]
            return True
        return False

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        other = _COMPARISONS.get(type(node.ops[0]))
        if other is not None and self._is_it(node, f"{type(node.ops[0]).__name__} to {other.__name__}"):
            node.ops[0] = other()
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None and self._is_it(node, f"{type(node.op).__name__} to {other.__name__}"):
            node.op = other()
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) in (int, float) and self._is_it(node, f"{node.value} plus 1"):
            return ast.copy_location(ast.Constant(node.value + 1), node)  # type: ignore[operator]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if self._is_it(node, "a condition dropped"):
            return node.values[0]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        refuses = isinstance(node.body[0], ast.Return) and not node.orelse
        if refuses and self._is_it(node, "an early return dropped"):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        pairs = {"Add": "Subtract", "Multiply": "Add", "Maximum": "Minimum", "And": "Or"}
        if isinstance(node.ctx, ast.Load) and node.id in pairs and self._is_it(node, f"{node.id} changed"):
            return ast.copy_location(ast.Name(pairs[node.id], node.ctx), node)
        return node


def mutants(rule: RewriteRule) -> Iterator[tuple[str, RewriteRule]]:
    """Yield copies of a rule with a mistake each, and what it is."""
    for mistake, function in _mutated(rule.rewrite):
        yield mistake, replace(rule, rewrite=function)


def mutants_of_statement(rule: SymbolicRule) -> Iterator[tuple[str, SymbolicRule]]:
    """Yield copies of a statement with a mistake each, and what it is; none of a function in another one."""
    if isinstance(rule.statement, Formula):
        for mistake, text in _mutated_formulas(rule.statement.text):
            yield mistake, replace(rule, statement=Formula(text))
    elif rule.statement.__closure__ is None:
        for mistake, function in _mutated(rule.statement):
            yield mistake, replace(rule, statement=function, most=HIGHEST_RANK)


def _mutated_formulas(text: str) -> Iterator[tuple[str, str]]:
    """Yield formulas with a mistake in the left side."""
    left, right = text.split(" ⇒ ")
    for number in itertools.count():
        mistake = _Mistake(number)
        mutated = mistake.visit(ast.parse(left))
        if not mistake.text:
            return
        yield mistake.text, f"{ast.unparse(mutated)} ⇒ {right}"


def _mutated(original: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    for number in itertools.count():
        mutated, mistake = copy.deepcopy(tree), _Mistake(number)
        mistake.visit(mutated)
        if not mistake.text:
            return
        space = dict(original.__globals__)
        flags = __future__.annotations.compiler_flag
        code = compile(ast.fix_missing_locations(mutated), original.__name__, "exec", flags)
        exec(code, space)
        yield mistake.text, space[function.name]


def difference(
    rule: RewriteRule, before: HloModule, after: HloModule, relation: Relation = Relation.OPEN
) -> bool | None:
    """Return whether a rule changes the results of the second of two equal programs; None if it is idle.

    With a relation that is proved: whether the evaluator contradicts it.
    """
    try:
        before.verify()
        if not apply_once(rule, after):
            return None
    except Exception:  # a mistake that makes the rule fail is no wrong rewriting
        return None
    try:
        after = plain(after)
        after.verify()
    except HloError:
        return True
    if relation.is_proof:
        return is_told_apart(before, after, relation, count=8)
    kinds = [d for d in DISTRIBUTIONS if d.is_ordinary or not rule.reorders]
    return refute(before, after, samples=8, distributions=kinds) is not None


def is_wrong(rule: RewriteRule, text: str, seed: int, relation: Relation = Relation.OPEN) -> bool | None:
    """Return whether a rule is wrong for the sizes of an example or drawn ones; None if it does not apply."""
    verdict = difference(rule, *(HloModule.from_text(text) for _ in "ab"), relation=relation)
    if verdict is None or verdict:
        return verdict
    general, draw = Generalization(text), random.Random(seed)
    for _ in range(DRAWS):
        values = {n: v if draw.random() < 0.6 else draw.randint(0, 4) for n, v in general.values.items()}
        try:
            pair = [plain(general.build(Trail(dict(values)))) for _ in "ab"]
        except Exception:  # sizes that no program has
            continue
        if difference(rule, *pair, relation=relation):
            return True
    return False


def judged(mutant: RewriteRule, text: str, seed: int) -> str:
    """Return whether a mutant is wrong for sizes of an example, and what the proof says of a wrong one."""
    return _judged(
        lambda relation: is_wrong(mutant, text, seed, relation), lambda: prove_rewrite(mutant, text).relation
    )


def _judged(is_wrong: Callable[[Relation], bool | None], relation_of: Callable[[], Relation]) -> str:
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 1)
    wrong: bool | None = False
    try:
        wrong = is_wrong(Relation.OPEN)
        if not wrong:
            return "idle" if wrong is None else "right for the sizes that were drawn"
        relation = relation_of()
        if relation.is_proof:
            return "wrong, proved" if is_wrong(relation) else f"right, {relation.value}"
        return f"wrong, {relation.value}"
    except _TooLongError:
        return f"{'wrong' if wrong else 'unknown'}, too long"
    except Exception as error:
        return f"wrong, {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class DrawnSizes(dict[str, int]):
    """Numbers for symbols, drawn when a symbol is first asked for."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw

    def setdefault(self, name: str, default: int = 0) -> int:
        """Return the number of a symbol."""
        return super().setdefault(name, self.draw.randint(0, LARGEST))


def is_wrong_statement(
    rule: SymbolicRule, counts: Mapping[str, int], seed: int, relation: Relation = Relation.OPEN
) -> bool | None:
    """Return whether both programs of a statement differ for some drawn sizes; None if it applies to none."""
    draw, valid = random.Random(seed), 0
    kinds = [d for d in DISTRIBUTIONS if d.is_ordinary]
    for _ in range(TRIES):
        try:
            pair = programs(rule, rule.kinds[0], counts, Trail(DrawnSizes(draw)))
            before, after = plain(pair.before), plain(pair.after)
            after.verify()
        except InvalidSizes:
            continue
        except HloError:  # the second program is not valid
            return True
        except Exception:  # a mistake that makes the statement fail
            return None
        valid += 1
        if not same_type(before.entry.root.shape, after.entry.root.shape):
            return True
        if relation.is_proof:
            differs = is_told_apart(before, after, relation, count=3)
        else:
            differs = refute(before, after, samples=3, most=3, distributions=kinds) is not None
        if differs:
            return True
        if valid == DRAWS:
            break
    return False if valid else None


def judged_statement(mutant: SymbolicRule, counts: Mapping[str, int], seed: int) -> str:
    """Return whether a mutant of a statement is wrong, and what the proof says of a wrong one."""
    return _judged(
        lambda relation: is_wrong_statement(mutant, counts, seed, relation),
        lambda: prove_instance(mutant, mutant.kinds[0], counts).verdict.relation,
    )


def program_of(example: Example, draw: random.Random) -> str:
    """Return an example, or a program of a drawn rank that is made from it."""
    text = next(iter(example.programs()))
    return draw.choice([text, *programs_of_rank(text, draw.randint(0, HIGHEST_RANK), PROGRAMS)])


def main() -> None:
    """Draw and judge mutants, and print those that are wrong and not refuted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--xla", action="store_true")
    options = parser.parse_args()
    draw, counts = random.Random(options.seed), Counter[str]()
    pool = list(_statements() if options.xla else _rules())
    print(len(pool), "mutants", flush=True)
    draw.shuffle(pool)
    for name, mistake, judge in pool:
        if sum(counts[key] for key in counts if key.startswith("wrong")) >= options.count:
            break
        subject, word = judge(draw, options.seed)
        counts[word] += 1
        if word.startswith("wrong") and word != REFUTED:
            print(f"{name}: {mistake}: {word}\n{subject}", flush=True)
    print(dict(counts))


def _rules() -> Iterator[tuple[str, str, Judge]]:
    """Yield mutants of hloom's rules, and what judges each on a drawn program."""

    def judge(
        mutant: RewriteRule, examples: Sequence[Example], draw: random.Random, seed: int
    ) -> tuple[str, str]:
        text = program_of(draw.choice(examples), draw)
        return text, judged(mutant, text, seed)

    for module in MODULES:
        for name, rule in module.RULES.items():
            for mistake, mutant in mutants(rule):
                yield name, mistake, partial(judge, mutant, module.EXAMPLES[name])


def _statements() -> Iterator[tuple[str, str, Judge]]:
    """Yield mutants of statements of XLA's rules, and what judges each for drawn numbers of dimensions."""

    def judge(mutant: SymbolicRule, draw: random.Random, seed: int) -> tuple[str, str]:
        counts = draw.choice(list(mutant.counts()))
        return str(counts), judged_statement(mutant, counts, seed)

    for name, rule in rules_of_xla():
        for mistake, mutant in mutants_of_statement(rule):
            yield name, mistake, partial(judge, mutant)


if __name__ == "__main__":
    main()
