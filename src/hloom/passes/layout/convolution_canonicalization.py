"""convolution-canonicalization: plain windows and labels; dots where they are matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.layout.dot_decomposer import dot_in, every_dot
from hloom.passes.rewriting import Family, RuleTable, discard
from hloom.passes.rules import convolution


@dataclass(frozen=True, slots=True)
class ConvolutionCanonicalization:
    """The rules of `hloom.passes.rules.convolution`, until none fits any more.

    Attributes:
        is_product: whether a dot is a matrix product; convolutions become no other dots.
    """

    is_product: Callable[[HloInstruction], bool] = every_dot
    name: ClassVar[str] = "convolution-canonicalization"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Rewrite the convolutions of every computation."""
        table = RuleTable(convolution.RULES, self.dots())
        changed = False
        for computation in module.computations:
            if any(i.opcode == "convolution" for i in computation.instructions):
                changed |= table.rewrite(computation)
        return changed

    def dots(self) -> Family:
        """The rules that make dots, where these are products."""
        family = Family(convolution.DOTS.name)
        for rule in convolution.DOTS:
            family.rewrites(*rule.opcodes)(lambda i, rewrite=rule.rewrite: self.checked(rewrite(i)))
        return family

    def checked(self, new: HloInstruction | None) -> HloInstruction | None:
        """What a rule made, if it is a product."""
        dot = None if new is None else dot_in(new)
        if new is None or dot is None or self.is_product(dot):
            return new
        discard(new)
        return None
