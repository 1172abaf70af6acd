"""dot_decomposer: brings dots into a form in which they are matrix products.

Transposes around a dot go into its dimension numbers, and a dot that is no matrix product of strided matrices
becomes one, if it has to be by transposing an operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.contraction import Dot
from hloom.operations.movement import Reshape, Transpose
from hloom.passes.registry import register
from hloom.passes.rewriting import Family, Rewrite, Rule, RuleTable, discard
from hloom.passes.rules import contraction


def every_dot(dot: HloInstruction) -> bool:
    """For machines on which all dots are equal."""
    return True


@register
@dataclass(frozen=True, slots=True)
class DotDecomposer:
    """The rules of `hloom.passes.rules.contraction`, where they make no product worse.

    Attributes:
        is_product: whether a dot is a matrix product as it stands.
    """

    is_product: Callable[[HloInstruction], bool] = every_dot
    name: ClassVar[str] = "dot_decomposer"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite the dots of every computation."""
        table = RuleTable(self.guarded(contraction.FOLDS, False), self.guarded(contraction.REPAIRS, True))
        changed = False
        for computation in module.computations:
            if any(isinstance(i.operation, Dot) for i in computation.instructions) and table.rewrite(
                computation
            ):
                changed = True
        return changed

    def guarded(self, family: Family, repairs: bool) -> list[Rule]:
        """Return the rules of a family, each undone where it would make things worse."""
        return [replace(rule, rewrite=self.guard(rule.rewrite, repairs)) for rule in family]

    def guard(self, rewrite: Rewrite, repairs: bool) -> Rewrite:
        """A rule that takes only what is a product, or was none before; repairs want both."""

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
    """The dot that an instruction is, or hands on in other dimensions."""
    while isinstance(i.operation, (Reshape, Transpose)):
        i = i.operands[0]
    return i if isinstance(i.operation, Dot) else None
