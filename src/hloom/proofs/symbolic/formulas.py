"""Rules of elementwise operations for all sizes, stated by formulas such as ``Multiply(A, 1) ⇒ A``.

A capital letter is an array, P one of predicates. A small letter is a scalar: like numbers, True and False,
it is broadcast where it meets an array. Operations have the names of their classes, comparisons those of
their directions: ``Gt(Maximum(A, B), B) ⇒ Gt(A, B)``. A condition on the elements may follow:
``Remainder(Add(A, c), c) ⇒ Remainder(A, c), where And(Ge(A, 0), Gt(c, 0))``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY, Operation
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.regex import regex
from hloom.shape.element_type import PRED, ElementType

_SYMBOL: Final = regex(r"\b[A-Za-z]\b")


class Formula:
    """The statement of a rule by a formula.

    Attributes:
        text: the formula.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.__doc__ = f"{text}."

    def __call__(self, w: Sketch) -> Iterator[HloInstruction]:
        """Yield the results of both sides."""
        n = w.sizes("n", "N")
        values: dict[str, HloInstruction] = {}
        for name in _SYMBOL.findall(self.text):
            if name not in values:
                kind = PRED if name == "P" else w.kind
                values[name] = w.array(name, *(n if name.isupper() else ()), kind=kind)

        def spread(x: HloInstruction) -> HloInstruction:
            return x if x.shape.rank else w.broadcast(x, n)

        def value(node: ast.expr) -> HloInstruction:
            match node:
                case ast.Name(id=name):
                    return values[name]
                case ast.Call(func=ast.Name(id=name), args=arguments):
                    operands = [value(each) for each in arguments]
                    if any(x.shape.rank for x in operands):
                        operands = [spread(x) for x in operands]
                    operation = _operation(name)
                    if operation is None:
                        return w.compare(operands[0], name.upper(), operands[1])
                    return w.op(operation, *operands)
                case _:
                    number = ast.literal_eval(node)
                    return w.constant(number, kind=PRED if isinstance(number, bool) else w.kind)

        rewriting, _, condition = self.text.partition(", where ")
        if condition:
            w.given(spread(value(ast.parse(condition, mode="eval").body)))
        for side in rewriting.split("⇒"):
            yield spread(value(ast.parse(side.strip(), mode="eval").body))


@cache
def _operation(name: str) -> Operation | None:
    """Return the operation with the name of a class."""
    return next((operation() for operation in REGISTRY.values() if operation.__name__ == name), None)


def state_formulas(book: RuleBook, *kinds: ElementType, **formulas: str) -> None:
    """Add a rule to a book for each formula: for arrays of any rank and of some types, by default f32."""
    for name, text in formulas.items():
        book.add(name, Formula(text), kinds, "N")
