"""convolution-canonicalization: canonicalize windows and labels; rewrite matrix products as dots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.convolution import Convolution
from hloom.passes.layout.dot_decomposer import dot_in, every_dot
from hloom.passes.pipeline import Pass
from hloom.passes.rewriting import Rewrite, RuleTable, discard
from hloom.passes.rules import convolution


class ConvolutionCanonicalization(Pass, name="convolution-canonicalization", of=Convolution, settles=True):
    """Apply the rules of `hloom.passes.rules.convolution` to a fixed point.

    Attributes:
        is_product: whether a dot is a matrix product; convolutions are rewritten to no other dots.
    """

    is_product: Callable[[HloInstruction], bool] = every_dot

    def run(self, module: HloModule) -> bool:
        """Rewrite the convolutions of every computation."""
        dots = [replace(rule, rewrite=self.checked(rule.rewrite)) for rule in convolution.DOTS]
        return RuleTable(convolution.RULES, dots).rewrite_module(module)

    def checked(self, rewrite: Rewrite) -> Rewrite:
        """Return a rule that discards its result unless it is a matrix product."""

        def checked(i: HloInstruction, *operations: Operation) -> HloInstruction | None:
            new = rewrite(i, *operations)
            dot = None if new is None else dot_in(new)
            if new is None or dot is None or self.is_product(dot):
                return new
            discard(new)
            return None

        return checked
