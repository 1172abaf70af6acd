"""Wrong forms of rules, functions and lowerings, planted for the time of a test."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hloom.codegen.elementwise.registry import LOWERINGS, Lower
from hloom.ir.instruction import HloInstruction
from hloom.passes.registry import passes
from hloom.passes.rewriting import RewriteRule, RuleFamily, RuleTable
from hloom.passes.writing import Writer

Plant = Callable[[], AbstractContextManager[None]]
Rewrite = Callable[..., "HloInstruction | None"]


def shifted(rewrite: Rewrite) -> Rewrite:
    """Return a rewrite whose result is 0.5 too large."""

    def wrong(i: HloInstruction, *operations: Any) -> HloInstruction | None:
        new = rewrite(i, *operations)
        if new is None or not new.shape.is_array or not new.shape.element_type.is_floating:
            return new
        from hloom.operations.arithmetic import Add

        writer = Writer(i)
        return writer.op(Add(), new, writer.full(0.5, new.shape))

    return wrong


def first_operand(rewrite: Rewrite) -> Rewrite:
    """Return a rewrite to the first operand of the first operand, whatever the right one is."""
    return lambda i, *operations: rewrite(i, *operations) and i.operands[0].operands[0]


def rule(name: str, wrong: Callable[[Rewrite], Rewrite] = shifted) -> Plant:
    """Return a plant of a wrong rewrite rule, in every table and family that has it."""

    @contextmanager
    def planted() -> Generator[None]:
        passes()  # imports them all
        gc.unfreeze()  # `get_objects` leaves out frozen ones
        tables = [o for o in gc.get_objects() if isinstance(o, RuleTable)]
        families = [o for o in gc.get_objects() if isinstance(o, RuleFamily) and name in o.rules]
        gc.freeze()
        dispatches = [d for table in tables for d in table.by_class.values()]
        kept: list[tuple[Any, Any, RewriteRule]] = [
            (family.rules, name, family.rules[name]) for family in families
        ]
        kept += [(d.rules, n, r) for d in dispatches for n, r in enumerate(d.rules) if r.name == name]
        assert kept, f"there is no rule {name}"
        for holder, key, right in kept:
            holder[key] = dataclasses.replace(right, rewrite=wrong(right.rewrite))
        for dispatch in dispatches:
            dispatch.fitting.clear()
        try:
            yield
        finally:
            for holder, key, right in kept:
                holder[key] = right
            for dispatch in dispatches:
                dispatch.fitting.clear()

    return planted


def function(module: Any, name: str, wrong: Callable[[Any], Any]) -> Plant:
    """Return a plant of a wrong function of a module or class, made from the right one."""

    @contextmanager
    def planted() -> Generator[None]:
        right = getattr(module, name)
        setattr(module, name, wrong(right))
        try:
            yield
        finally:
            setattr(module, name, right)

    return planted


def lowering(opcode: str, wrong: Callable[[Lower], Lower]) -> Plant:
    """Return a plant of a wrong lowering of an elementwise operation to native code."""

    @contextmanager
    def planted() -> Generator[None]:
        right = LOWERINGS[opcode]
        LOWERINGS[opcode] = dataclasses.replace(right, lower=wrong(right.lower))
        try:
            yield
        finally:
            LOWERINGS[opcode] = right

    return planted
