"""Proofs of rewrite rules: a rule's own code rewrites a program whose sizes are symbols."""

from __future__ import annotations

from hloom.analysis.instructions import splat
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.rewriting import RewriteRule, discard, same_type
from hloom.proofs.symbolic.generalization import Generalization
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.symbolic.verdicts import InvalidSizes, Pair, RuleVerdict, check_sizes, judge


def prove_rewrite(rule: RewriteRule, text: str) -> RuleVerdict:
    """Decide whether a rule keeps the results of a program for all sizes.

    The sizes of the program's shapes, ranges, paddings and windows become symbols. The rule's code runs on
    them, once for each way in which its comparisons of sizes come out.

    Args:
        rule: the rule.
        text: a program of concrete sizes that it rewrites.
    """
    general = Generalization(text)

    def build(trail: Trail) -> Pair | None:
        try:
            before = general.build(trail)
        except (HloError, ZeroDivisionError) as error:
            raise InvalidSizes from error
        check_sizes(before)
        after = general.build(trail)
        return Pair(before, after) if apply_once(rule, after) else None

    if rule.reorders:
        return judge(general.values, build, edges=False)
    return judge(general.values, build, edges=True, ulps=rule.ulps)


def apply_once(rule: RewriteRule, module: HloModule) -> bool:
    """Apply a rule to the first instruction that it rewrites; return whether there is one."""
    computation = module.entry
    for i in computation.post_order():
        operands = tuple(type(o.operation) for o in i.operands)
        if type(i.operation) not in rule.pattern[0] or not rule.matches(operands):
            continue
        if rule.constant and splat(i.operands[-1]) is None:
            continue
        new = rule.apply(i)
        if new is None or new is i or not same_type(new.shape, i.shape):
            continue
        i.replace_all_uses_with(new)
        discard(i)
        return True
    return False
