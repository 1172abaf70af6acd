"""Mutants of hloom's rules: copies of their code with one small mistake each.

``python -m tests.proofs.rule_mutants --count N --seed S`` draws mutants and judges each for all sizes of an
example, or of a program of another rank that is made from one. A mutant is wrong if the evaluator tells the
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
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.rewriting import RewriteRule
from hloom.proofs.refutation import DISTRIBUTIONS, refute
from hloom.proofs.symbolic.generalization import Generalization
from hloom.proofs.symbolic.ranks import HIGHEST_RANK, programs_of_rank
from hloom.proofs.symbolic.rewrites import apply_once, prove_rewrite
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.symbolic.verdicts import plain
from tests.proofs.proved_rules import MODULES
from tests.rule_checks import Example

SECONDS: Final = 15
"""Processor time for the judgement of a mutant."""
REFUTED: Final = "wrong, refuted"
"""The judgement that a wrong mutant must get."""
DRAWS: Final = 20
"""Number of sizes that are drawn to look for a mistake."""
PROGRAMS: Final = 8
"""Number of programs of a rank from which one is drawn."""
_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip


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
    tree = ast.parse(textwrap.dedent(inspect.getsource(rule.rewrite)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    for number in itertools.count():
        mutated, mistake = copy.deepcopy(tree), _Mistake(number)
        mistake.visit(mutated)
        if not mistake.text:
            return
        space = dict(rule.rewrite.__globals__)
        flags = __future__.annotations.compiler_flag
        code = compile(ast.fix_missing_locations(mutated), rule.name, "exec", flags)
        exec(code, space)
        yield mistake.text, replace(rule, rewrite=space[function.name])


def difference(rule: RewriteRule, before: HloModule, after: HloModule) -> bool | None:
    """Return whether a rule changes the results of the second of two equal programs; None if it is idle."""
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
    kinds = [d for d in DISTRIBUTIONS if d.is_ordinary or not rule.reorders]
    return refute(before, after, samples=8, distributions=kinds) is not None


def is_wrong(rule: RewriteRule, text: str, seed: int) -> bool | None:
    """Return whether a rule is wrong for the sizes of an example or drawn ones; None if it does not apply."""
    verdict = difference(rule, *(HloModule.from_text(text) for _ in "ab"))
    if verdict is None or verdict:
        return verdict
    general, draw = Generalization(text), random.Random(seed)
    for _ in range(DRAWS):
        values = {n: v if draw.random() < 0.6 else draw.randint(0, 4) for n, v in general.values.items()}
        try:
            pair = [plain(general.build(Trail(dict(values)))) for _ in "ab"]
        except Exception:  # sizes that no program has
            continue
        if difference(rule, *pair):
            return True
    return False


def judged(mutant: RewriteRule, text: str, seed: int) -> str:
    """Return whether a mutant is wrong for sizes of an example, and what the proof says of a wrong one."""
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 1)
    wrong: bool | None = False
    try:
        wrong = is_wrong(mutant, text, seed)
        if not wrong:
            return "idle" if wrong is None else "right for the sizes that were drawn"
        relation = prove_rewrite(mutant, text).relation
        return "wrong, proved" if relation.is_proof else f"wrong, {relation.value}"
    except _TooLongError:
        return f"{'wrong' if wrong else 'unknown'}, too long"
    except Exception as error:
        return f"wrong, {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def program_of(example: Example, draw: random.Random) -> str:
    """Return an example, or a program of a drawn rank that is made from it."""
    text = next(iter(example.programs()))
    return draw.choice([text, *programs_of_rank(text, draw.randint(0, HIGHEST_RANK), PROGRAMS)])


def main() -> None:
    """Draw and judge mutants, and print those that are wrong and not refuted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, counts = random.Random(options.seed), Counter[str]()
    pool = [
        (name, mistake, mutant, module.EXAMPLES[name])
        for module in MODULES
        for name, rule in module.RULES.items()
        for mistake, mutant in mutants(rule)
    ]
    print(len(pool), "mutants", flush=True)
    draw.shuffle(pool)
    for name, mistake, mutant, examples in pool:
        if sum(counts[key] for key in counts if key.startswith("wrong")) >= options.count:
            break
        text = program_of(draw.choice(examples), draw)
        word = judged(mutant, text, options.seed)
        counts[word] += 1
        if word.startswith("wrong") and word != REFUTED:
            print(f"{name}: {mistake}: {word}\n{text}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
