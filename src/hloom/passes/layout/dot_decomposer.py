"""dot_decomposer: rewrite dots as matrix products of strided matrices.

Transposes around a dot are folded into its dimension numbers. A dot that is not a product of strided matrices
is rewritten into one, if necessary by transposing an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.contraction import Dot
from hloom.operations.conversion import Convert
from hloom.operations.movement import Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.passes.pipeline import Pass
from hloom.passes.rewriting import Rewrite, RuleTable, discard
from hloom.passes.rules import contraction


def every_dot(dot: HloInstruction) -> bool:
    """Accept every dot, for targets without a preference."""
    return True


class DotDecomposer(Pass, name="dot_decomposer", of=Dot, settles=True):
    """Apply the rules of `hloom.passes.rules.contraction` if they do not degrade a matrix product.

    Attributes:
        is_product: returns whether a dot is a matrix product as it is.
    """

    is_product: Callable[[HloInstruction], bool] = every_dot

    def run(self, module: HloModule) -> bool:
        """Rewrite the dots of every computation."""
        folds = [replace(rule, rewrite=self.guard(rule.rewrite, False)) for rule in contraction.FOLDS]
        repairs = [replace(rule, rewrite=self.guard(rule.rewrite, True)) for rule in contraction.REPAIRS]
        return RuleTable(folds, repairs).rewrite_module(module)

    def guard(self, rewrite: Rewrite, repairs: bool) -> Rewrite:
        """Return a rule that discards the result of ``rewrite`` where it makes a dot worse.

        With ``repairs``, the rule applies only to dots that are no matrix products, and the result must be
        one. Otherwise only a matrix product must stay one.
        """

        def guarded(i: HloInstruction, *operations: Operation) -> HloInstruction | None:
            old = dot_in(i)
            if old is None or (repairs and self.is_product(old)):
                return None
            new = rewrite(i, *operations)
            if new is None:
                return None
            dot = dot_in(new)
            if dot is None or self.is_product(dot) or not (repairs or self.is_product(old)):
                return new
            discard(new)
            return None

        return guarded


def dot_in(i: HloInstruction) -> HloInstruction | None:
    """Return the dot below any reshapes, transposes, converts and sums; None if there is none."""
    while isinstance(i.operation, (Reshape, Transpose, Convert, Reduce)):
        i = i.operands[0]
    return i if isinstance(i.operation, Dot) else None
