"""Rewrite rules, and how they are applied to a computation until none fits any more.

A rule is a function that looks at one instruction and either returns what can stand in its place (an
instruction that exists, or new ones that it wrote beside it) or None. It is registered in the family of its
file for the opcodes it looks at; its docstring shows ``before → after``. A rule is exact to the last bit (any
NaN counting as any other) unless it says how far it may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from hloom.analysis.instructions import splat
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.simplify.dead_code import is_dead
from hloom.shape.shape import Shape

Rewrite: TypeAlias = Callable[[HloInstruction], "HloInstruction | None"]

ByOpcode: TypeAlias = dict[str, tuple[list[Rewrite], list[Rewrite]]]
"""Rules for any operands, and rules for constants."""

REWRITES_PER_INSTRUCTION: Final = 40
"""A computation is rewritten at most so many times for each of its instructions, whatever the rules do."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite.

    Attributes:
        name: of the function.
        opcodes: of the instructions it looks at.
        rewrite: the function.
        ulps: how many units in the last place the results may differ; 0: they are the same bits.
        reorders: sums are formed in another order, or of fewer roundings; which order is taken is free.
        constant: it looks only at instructions whose last operand is one number everywhere.
    """

    name: str
    opcodes: tuple[str, ...]
    rewrite: Rewrite
    ulps: float = 0.0
    reorders: bool = False
    constant: bool = False


class Family:
    """The rules of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, Rule] = {}

    def rewrites(
        self, *opcodes: str, ulps: float = 0.0, reorders: bool = False, constant: bool = False
    ) -> Callable[[Rewrite], Rewrite]:
        """Register a function as a rule for some opcodes."""

        def register(function: Rewrite) -> Rewrite:
            name = function.__name__
            self.rules[name] = Rule(name, opcodes, function, ulps, reorders, constant)
            return function

        return register

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules.values())


class RuleTable:
    """Rules by the opcode that they look at."""

    def __init__(self, *families: Iterable[Rule]) -> None:
        self.by_opcode: ByOpcode = {}
        for family in families:
            for rule in family:
                for opcode in rule.opcodes:
                    self.by_opcode.setdefault(opcode, ([], []))[rule.constant].append(rule.rewrite)

    def rewrite_module(self, module: HloModule) -> bool:
        """Apply the rules to every computation."""
        changed = False
        for computation in module.computations:
            changed |= self.rewrite(computation)
        return changed

    def rewrite(self, computation: HloComputation) -> bool:
        """Apply the rules until none fits; returns whether anything changed."""
        if all(i.operation.opcode not in self.by_opcode for i in computation.instructions):
            return False
        return _Rewriter(computation, self.by_opcode).run()


class _Rewriter:
    """One computation being rewritten: the instructions that are still to be looked at, operands first."""

    def __init__(self, computation: HloComputation, rules: ByOpcode) -> None:
        self.computation = computation
        self.rules = rules
        order = [i for i in computation.instructions if i.operation.opcode in rules]
        self.known: set[HloInstruction] = set(computation.instructions)
        self.waiting: dict[HloInstruction, None] = dict.fromkeys(reversed(order))
        self.dynamic = any(_has_dynamic(i.shape) for i in self.known)
        self.budget = REWRITES_PER_INSTRUCTION * len(self.known)

    def run(self) -> bool:
        """Look at everything that waits."""
        changed = False
        while self.waiting and self.budget > 0:
            instruction, _ = self.waiting.popitem()
            if instruction.parent is self.computation and self.look(instruction):
                self.budget -= 1
                changed = True
        return changed

    def look(self, old: HloInstruction) -> bool:
        """Apply the first rule that fits an instruction."""
        if old.control_predecessors or old.control_successors or (self.dynamic and _is_dynamic(old)):
            return False
        plain, for_constants = self.rules[old.opcode]
        of_constant = bool(for_constants) and splat(old.operands[-1]) is not None
        for rule in (*for_constants, *plain) if of_constant else plain:
            new = rule(old)
            if new is not None and new is not old and self.replace(old, new):
                return True
        return False

    def replace(self, old: HloInstruction, new: HloInstruction) -> bool:
        """Put ``new`` in the place of ``old``; not where types or the layouts that somebody reads differ."""
        fresh = new not in self.known
        for user in old.users:
            self.wait(user)
        if new.shape != old.shape:
            if not same_type(new.shape, old.shape):
                discard(new)
                return False
            if fresh:
                new.shape = old.shape
            elif old.is_root or any(u.operation.reads_layout for u in old.users):
                return False
        if fresh:
            new.sharding, new.frontend_attributes = old.sharding, old.frontend_attributes
            new.original_value, new.statistics = old.original_value, old.statistics
            self.welcome(new)
        else:
            self.wait(new)
        old.replace_all_uses_with(new)
        self.remove(old)
        return True

    def welcome(self, new: HloInstruction) -> None:
        """Look at new instructions, operands first: they are put on the stack after their users."""
        self.known.add(new)
        self.wait(new)
        for operand in new.operands:
            if operand not in self.known:
                self.welcome(operand)

    def wait(self, instruction: HloInstruction) -> None:
        """Look at an instruction (again): next, or when it is its turn if it waits already."""
        if instruction.opcode in self.rules:
            self.waiting.setdefault(instruction)

    def remove(self, old: HloInstruction) -> None:
        """Remove what nobody uses now, and so on upwards."""
        dead = [old]
        while dead:
            instruction = dead.pop()
            if instruction.parent is None or not is_dead(instruction):
                continue
            if instruction.control_predecessors or instruction.control_successors:
                continue
            operands = list(dict.fromkeys(instruction.operands))
            self.computation.remove(instruction)
            self.known.discard(instruction)
            self.waiting.pop(instruction, None)
            for operand in operands:
                if not operand.users:
                    dead.append(operand)
                elif len(operand.users) == 1:
                    self.wait(next(iter(operand.users)))


def discard(i: HloInstruction) -> None:
    """Remove an instruction that was written for nothing, and what was written for it alone."""
    if i.parent is not None and is_dead(i) and not (i.control_predecessors or i.control_successors):
        operands = list(dict.fromkeys(i.operands))
        i.parent.remove(i)
        for operand in operands:
            discard(operand)


def same_type(a: Shape, b: Shape) -> bool:
    """Whether shapes differ in layouts only."""
    return a.element_type is b.element_type and a.equal(b, layout=False)


def _has_dynamic(shape: Shape) -> bool:
    return True in shape.dynamic_dimensions or (bool(shape.tuple_shapes) and shape.is_dynamic)


def _is_dynamic(i: HloInstruction) -> bool:
    """Whether an instruction, its operands or theirs have a dynamic dimension."""
    return (
        i.shape.is_dynamic
        or any(o.shape.is_dynamic for o in i.operands)
        or any(p.shape.is_dynamic for o in i.operands for p in o.operands)
    )
