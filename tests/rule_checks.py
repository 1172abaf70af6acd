"""Check rewrite rules: both sides of a rule are evaluated on arguments full of special numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.rewriting import RewriteRule, RuleTable
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import draw
from tests.reducers import binary
from tests.samples import sample

REAL = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2fnuz", "s8", "u16", "s32", "u64", "s4")
FLOATS = ("f32", "f64", "bf16", "f16")
SMALL_FLOATS = ("f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e8m0fnu", "f4e2m1fn")
INTEGERS = ("s8", "u16", "s32", "u64", "s4", "u4")
ANYTHING = (*REAL, "c64", "pred")
"""Element types to which examples are put for ``T``."""

COMPUTATIONS = (
    binary("add", "T", name="sum")
    + binary("multiply", "T", name="product")
    + binary("maximum", "T", name="largest")
    + binary("minimum", "T", name="least")
    + """
thrice { a = T[] parameter(0)  b = T[] parameter(1)  c = T[] constant(3)  ROOT r = T[] multiply(b, c) }
second { a = T[] parameter(0)  ROOT b = T[] parameter(1) }
"""
)
ORDER = (
    "order { a = T[] parameter(0)  b = T[] parameter(1)  c = T[] parameter(2)  d = T[] parameter(3)"
    "  ROOT r = pred[] compare(a, b), direction=LT }"
)
"""Of two operands, of which the first decides."""


@dataclass(frozen=True)
class Example:
    """A program that a rule matches.

    Attributes:
        parameters: as ``x: T[3], y: s32[]``.
        body: instructions, separated by semicolons or line ends; the last one is the root.
        types: what ``T`` stands for, one after the other.
    """

    parameters: str
    body: str
    types: Sequence[str] = ("f32",)

    def programs(self) -> Iterable[str]:
        """Return the program for every type."""
        found = re.findall(r"(\w+): (\([^)]*\)|\w+\[[^\]]*\])", self.parameters)
        lines = [f"{name} = {shape} parameter({n})" for n, (name, shape) in enumerate(found)]
        steps = [s.strip() for s in re.split(r"[;\n]", self.body) if s.strip()]
        lines += [*steps[:-1], "ROOT " + steps[-1]]
        every = re.findall(r"^\w+ \{[^}]*\}", COMPUTATIONS + ORDER, re.M)
        used = [c for c in every if f"={c.split()[0]}" in self.body]
        called = "\n".join(c.replace("{", "{\n").replace("  ", "\n").replace("}", "\n}") for c in used)
        text = "HloModule example\n" + called + "\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"
        for kind in self.types:
            yield re.sub(r"\bT\b", kind, text)


def rewritten(rule: RewriteRule, module: HloModule) -> bool:
    """Apply one rule alone to a module; return whether it matched."""
    changed = RuleTable([rule]).rewrite_module(module)
    DeadCodeElimination().run(module)
    module.verify()
    return changed


def check(rule: RewriteRule, example: Example) -> None:
    """Assert that a rule fits an example, for every type, and that both sides have the same value."""
    for text in example.programs():
        before = parse(text)
        before.verify()
        after = clone_module(before)
        assert rewritten(rule, after), f"{rule.name} does not fit\n{text}"
        for seed in range(3):
            arguments = [argument(p.shape, seed, plain=rule.reorders) for p in before.entry.parameters]
            try:
                check_values(Evaluator().run(after.entry, arguments), before, arguments, rule)
            except AssertionError as error:
                raise AssertionError(f"{rule.name}\n{text}\n{after}\n{error}") from None


def check_refused(rule: RewriteRule, example: Example) -> None:
    """Assert that a rule does not match an example, for every type."""
    for text in example.programs():
        module = parse(text)
        module.verify()
        assert not rewritten(rule, module), f"{rule.name} fits\n{text}\nand makes\n{module}"


def argument(shape: Shape, seed: int, *, plain: bool = False) -> Any:
    """Draw a value of a shape: special numbers of all kinds, or plain ones if sums are reordered."""
    if shape.is_tuple:
        return tuple(argument(s, seed + 7 * n, plain=plain) for n, s in enumerate(shape.tuple_shapes))
    if not shape.is_array:
        return None
    if plain:
        return draw(np.random.default_rng(seed), shape)
    count = max(shape.element_count, 1)
    return sample(shape.element_type.name, count, seed)[: shape.element_count].reshape(shape.dimensions)


def check_values(got: Any, before: HloModule, arguments: Sequence[Any], rule: RewriteRule) -> None:
    """Assert that a result is that of the module before, as nearly as a rule promises."""
    wanted = Evaluator().run(before.entry, arguments)
    if rule.reorders:
        agreement.computed(got, before, arguments)
    elif rule.ulps:
        agreement.near(parts(got), parts(wanted), rule.ulps, signs=True)
    else:
        agreement.same(got, wanted)


def parts(value: Any) -> Any:
    """Return a value with the parts of its complex numbers in adjacent elements."""
    if isinstance(value, tuple):
        return tuple(map(parts, value))
    return (value.real, value.imag) if value is not None and value.dtype.kind == "c" else value
