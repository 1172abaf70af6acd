"""Check rewrite rules: both sides of a rule are evaluated on arguments full of special numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation import parse
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.rewriting import Rule, RuleTable
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape.shape import Shape
from native_runs import draw
from samples import sample

REAL = ("f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2fnuz", "s8", "u16", "s32", "u64", "s4")
FLOATS = ("f32", "f64", "bf16", "f16")
SMALL_FLOATS = ("f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e8m0fnu", "f4e2m1fn")
INTEGERS = ("s8", "u16", "s32", "u64", "s4", "u4")
ANYTHING = (*REAL, "c64", "pred")
"""Element types to which examples are put for ``T``."""

COMPUTATIONS = """
sum { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] add(a, b) }
product { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] multiply(a, b) }
largest { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] maximum(a, b) }
least { a = T[] parameter(0)  b = T[] parameter(1)  ROOT r = T[] minimum(a, b) }
second { a = T[] parameter(0)  ROOT b = T[] parameter(1) }
"""
ORDER = (
    "order { a = T[] parameter(0)  b = T[] parameter(1)  c = T[] parameter(2)  d = T[] parameter(3)"
    "  ROOT r = pred[] compare(a, b), direction=LT }"
)
"""Of two operands, of which the first decides."""


@dataclass(frozen=True)
class Example:
    """A program in which a rule fits.

    Attributes:
        parameters: as ``x: T[3], y: s32[]``.
        body: instructions, separated by semicolons or line ends; the last one is the root.
        types: what ``T`` stands for, one after the other.
    """

    parameters: str
    body: str
    types: Sequence[str] = ("f32",)

    def programs(self) -> Iterable[str]:
        """The program for every type."""
        found = re.findall(r"(\w+): (\([^)]*\)|\w+\[[^\]]*\])", self.parameters)
        lines = [f"{name} = {shape} parameter({n})" for n, (name, shape) in enumerate(found)]
        steps = [s.strip() for s in re.split(r"[;\n]", self.body) if s.strip()]
        lines += [*steps[:-1], "ROOT " + steps[-1]]
        used = [c for c in [*COMPUTATIONS.strip().split("\n"), ORDER] if f"={c.split()[0]}" in self.body]
        called = "\n".join(c.replace("{", "{\n").replace("  ", "\n").replace("}", "\n}") for c in used)
        text = "HloModule example\n" + called + "\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"
        for kind in self.types:
            yield re.sub(r"\bT\b", kind, text)


def rewritten(rule: Rule, module: HloModule) -> bool:
    """Apply one rule alone to a module; returns whether it fitted."""
    changed = RuleTable([rule]).rewrite_module(module)
    DeadCodeElimination().run(module)
    module.verify()
    return changed


def check(rule: Rule, example: Example) -> None:
    """Assert that a rule fits an example, for every type, and that both sides have the same value."""
    for text in example.programs():
        before = parse(text)
        before.verify()
        after = clone_module(before)
        assert rewritten(rule, after), f"{rule.name} does not fit\n{text}"
        for seed in range(3):
            arguments = [argument(p.shape, seed, plain=rule.reorders) for p in before.entry.parameters]
            values = [Evaluator().run(m.entry, arguments) for m in (after, before)]
            assert not difference(*values, rule), f"{rule.name}\n{text}\n{after}\n{difference(*values, rule)}"


def check_refused(rule: Rule, example: Example) -> None:
    """Assert that a rule leaves an example alone, for every type."""
    for text in example.programs():
        module = parse(text)
        module.verify()
        assert not rewritten(rule, module), f"{rule.name} fits\n{text}\nand makes\n{module}"


def argument(shape: Shape, seed: int, *, plain: bool = False) -> Any:
    """A value of a shape: special numbers of all kinds, or plain ones where sums take another order."""
    if shape.is_tuple:
        return tuple(argument(s, seed + 7 * n, plain=plain) for n, s in enumerate(shape.tuple_shapes))
    if not shape.is_array:
        return None
    if plain:
        return draw(np.random.default_rng(seed), shape)
    count = max(shape.element_count, 1)
    return sample(shape.element_type.name, count, seed)[: shape.element_count].reshape(shape.dimensions)


def difference(got: Any, wanted: Any, rule: Rule | None = None) -> str:
    """What differs between two values, beyond what a rule allows; empty if nothing does."""
    if isinstance(wanted, tuple):
        assert isinstance(got, tuple) and len(got) == len(wanted)
        return "; ".join(filter(None, (difference(g, w, rule) for g, w in zip(got, wanted, strict=True))))
    if wanted is None:
        return "" if got is None else "no token"
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
    if got.tobytes() == wanted.tobytes():
        return ""
    if got.dtype.kind in "biu":
        return f"{got} instead of {wanted}"
    if got.dtype.kind == "c":
        return difference((got.real, got.imag), (wanted.real, wanted.imag), rule)
    return _float_difference(got, wanted, rule)


def _float_difference(got: Any, wanted: Any, rule: Rule | None) -> str:
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    same = (g == w) & (np.signbit(g) == np.signbit(w)) | (np.isnan(g) & np.isnan(w))
    if rule is not None and rule.reorders:
        same |= np.isclose(g, w, rtol=1e-2 if got.dtype.itemsize < 4 else 1e-5, atol=1e-5)
    elif rule is not None and rule.ulps:
        with np.errstate(all="ignore"):
            step = np.spacing(np.abs(wanted)).astype(np.float64)
            same |= np.isfinite(g) & np.isfinite(w) & (np.abs(g - w) <= rule.ulps * step)
    return "" if same.all() else f"{g[~same]} instead of {w[~same]}"
