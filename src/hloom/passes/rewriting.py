"""Rewrite rules and their application to a computation, to a fixed point.

A rule is a function that takes one instruction and returns its replacement (an existing instruction, or new
ones added to the computation) or None. It is registered in the family of its file for a pattern: the classes
of operations that it rewrites and, if it requires some, those of the first operands. It receives the
instruction and the matched operations, whose attributes are typed::

    @RULES.rewrites(Slice, of=Broadcast)
    def slice_of_broadcast(i: HloInstruction, cut: Slice, spread: Broadcast) -> HloInstruction | None:
        \"\"\"``slice(broadcast(x))`` → ``broadcast(slice(x))``.\"\"\"

Its docstring shows ``before → after``. A rule is bitwise exact (up to the payload of NaNs) unless it declares
an error bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import ClassVar, Final, TypeAlias, TypedDict, TypeVar, Unpack, overload

from hloom.analysis.instructions import splat
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.passes.fuel import consume, exhausted
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import is_dead
from hloom.records import dataclass
from hloom.shape.shape import Shape

A = TypeVar("A", bound=Operation)
B = TypeVar("B", bound=Operation)
C = TypeVar("C", bound=Operation)

Rewrite: TypeAlias = Callable[..., "HloInstruction | None"]
"""The function of a rule, called with the instruction and the matched operations, its own first."""
Rewrite1: TypeAlias = Callable[[HloInstruction, A], "HloInstruction | None"]
Rewrite2: TypeAlias = Callable[[HloInstruction, A, B], "HloInstruction | None"]
Rewrite3: TypeAlias = Callable[[HloInstruction, A, B, C], "HloInstruction | None"]

Classes: TypeAlias = tuple[type[Operation], ...]
"""Operation classes, one of which a pattern requires."""
OneOf: TypeAlias = type[B] | tuple[type[B], ...]

REWRITES_PER_INSTRUCTION: Final = 40
"""Limit on rewrites of a computation per instruction, so that rewriting terminates."""


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A rule with its pattern and properties.

    Attributes:
        name: the name of the function.
        pattern: the classes of the instruction's operation, then of its first operands' operations.
        rewrite: the function.
        ulps: the maximum error of results in units in the last place; 0 if they are bitwise equal.
        reorders: whether sums are formed in another order or with fewer roundings.
        constant: whether it applies only to instructions whose last operand is a uniform constant.
    """

    name: str
    pattern: tuple[Classes, ...]
    rewrite: Rewrite
    ulps: float = 0.0
    reorders: bool = False
    constant: bool = False

    def matches(self, operands: Classes) -> bool:
        """Return whether the operations of the first operands match the pattern."""
        patterns = self.pattern[1:]
        return len(operands) >= len(patterns) and all(
            o in w for o, w in zip(operands, patterns, strict=False)
        )

    def apply(self, i: HloInstruction) -> HloInstruction | None:
        """Call the function on an instruction that matches the pattern."""
        if len(self.pattern) == 1:
            return self.rewrite(i, i.operation)
        return self.rewrite(i, i.operation, *(o.operation for o in i.operands[: len(self.pattern) - 1]))


class Options(TypedDict, total=False):
    """The properties of a rule; see `RewriteRule`."""

    ulps: float
    reorders: bool
    constant: bool


class RuleFamily:
    """The rules of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, RewriteRule] = {}

    @overload
    def rewrites(
        self, *classes: type[A], **options: Unpack[Options]
    ) -> Callable[[Rewrite1[A]], Rewrite1[A]]: ...

    @overload
    def rewrites(
        self, *classes: type[A], of: OneOf[B], **options: Unpack[Options]
    ) -> Callable[[Rewrite2[A, B]], Rewrite2[A, B]]: ...

    @overload
    def rewrites(
        self, *classes: type[A], operands: tuple[OneOf[B], OneOf[C]], **options: Unpack[Options]
    ) -> Callable[[Rewrite3[A, B, C]], Rewrite3[A, B, C]]: ...

    def rewrites(
        self,
        *classes: type[Operation],
        of: OneOf[Operation] | None = None,
        operands: tuple[OneOf[Operation], ...] = (),
        **options: Unpack[Options],
    ) -> Callable[[Rewrite], Rewrite]:
        """Register a function as a rule.

        Args:
            classes: operation classes of the instruction.
            of: operation classes of the first operand.
            operands: operation classes of the first two operands.
            options: see `RewriteRule`.
        """
        replacements = operands if of is None else (of,)
        pattern = (classes, *(w if isinstance(w, tuple) else (w,) for w in replacements))

        def register(function: Rewrite) -> Rewrite:
            self.rules[function.__name__] = RewriteRule(function.__name__, pattern, function, **options)
            return function

        return register

    def __iter__(self) -> Iterator[RewriteRule]:
        return iter(self.rules.values())


_Fitting: TypeAlias = tuple[list[RewriteRule], list[RewriteRule]]
"""Rules for any operands, and rules for a constant last operand followed by the former."""


@dataclass(slots=True)
class _Dispatch:
    """The rules for one class of operations.

    Attributes:
        rules: all of them, in the order in which they are tried.
        depth: number of operands that patterns inspect.
        fitting: matching rules by the operation classes of the first ``depth`` operands.
    """

    rules: list[RewriteRule] = field(default_factory=list[RewriteRule])
    depth: int = 0
    fitting: dict[Classes, _Fitting] = field(default_factory=dict[Classes, "_Fitting"])

    def choose(self, operands: Classes) -> _Fitting:
        """Return the rules that match the operations of the first operands, and cache them."""
        matching = [rule for rule in self.rules if rule.matches(operands)]
        plain = [rule for rule in matching if not rule.constant]
        constant = [rule for rule in matching if rule.constant]
        self.fitting[operands] = plain, constant + plain if constant else []
        return self.fitting[operands]


class RuleTable:
    """Rules indexed by the operation class they match."""

    def __init__(self, *families: Iterable[RewriteRule]) -> None:
        self.by_class: dict[type[Operation], _Dispatch] = {}
        for family in families:
            for rule in family:
                for cls in rule.pattern[0]:
                    entry = self.by_class.setdefault(cls, _Dispatch())
                    entry.rules.append(rule)
                    entry.depth = max(entry.depth, len(rule.pattern) - 1)

    def rewrite_module(self, module: HloModule) -> bool:
        """Apply the rules to every computation."""
        changed = False
        for computation in module.computations:
            changed |= self.rewrite(computation)
        return changed

    def rewrite(self, computation: HloComputation) -> bool:
        """Apply the rules to a fixed point; return whether anything changed."""
        if all(type(i.operation) not in self.by_class for i in computation.instructions):
            return False
        return _Rewriter(computation, self.by_class).run()


class RulePass(Pass):
    """A pass that applies rule families, given as a class argument, to a fixed point."""

    table: ClassVar[RuleTable]

    def __init_subclass__(cls, *, name: str, families: Sequence[RuleFamily]) -> None:
        cls.table = RuleTable(*families)
        super().__init_subclass__(name=name, settles=True, of=tuple(cls.table.by_class))

    def run(self, module: HloModule) -> bool:
        """Rewrite every computation."""
        return self.table.rewrite_module(module)


class _Rewriter:
    """Rewrites one computation with a worklist of instructions, operands first."""

    def __init__(self, computation: HloComputation, rules: dict[type[Operation], _Dispatch]) -> None:
        self.computation = computation
        self.rules = rules
        order = [i for i in computation.instructions if type(i.operation) in rules]
        self.instructions: set[HloInstruction] = set(computation.instructions)
        self.waiting: dict[HloInstruction, None] = dict.fromkeys(reversed(order))
        self.dynamic = any(_has_dynamic(i.shape) for i in self.instructions)
        self.budget = REWRITES_PER_INSTRUCTION * len(self.instructions)

    def run(self) -> bool:
        """Process the worklist until it is empty or the budget is spent."""
        changed = False
        while self.waiting and self.budget > 0:
            instruction, _ = self.waiting.popitem()
            if instruction.parent is self.computation and self.look(instruction):
                self.budget -= 1
                changed = True
        return changed

    def look(self, old: HloInstruction) -> bool:
        """Apply the first rule that rewrites an instruction; return whether a rule did."""
        if old.has_control_dependencies or (self.dynamic and _is_dynamic(old)):
            return False
        if exhausted():
            return False
        dispatch = self.rules[type(old.operation)]
        operands = tuple([type(o.operation) for o in old.operands[: dispatch.depth]])
        plain, with_constant = dispatch.fitting.get(operands) or dispatch.choose(operands)
        for rule in with_constant if with_constant and splat(old.operands[-1]) is not None else plain:
            new = rule.apply(old)
            if new is not None and new is not old and self.replace(old, new):
                consume(f"rule {rule.name} on %{old.name}")
                return True
        return False

    def replace(self, old: HloInstruction, new: HloInstruction) -> bool:
        """Replace ``old`` by ``new`` unless their types, or layouts that a user reads, differ."""
        fresh = new not in self.instructions
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
            self.add_new(new)
        else:
            self.wait(new)
        old.replace_all_uses_with(new)
        self.remove(old)
        return True

    def add_new(self, new: HloInstruction) -> None:
        """Add new instructions to the worklist, operands first: the stack holds them above their users."""
        self.instructions.add(new)
        self.wait(new)
        for operand in new.operands:
            if operand not in self.instructions:
                self.add_new(operand)

    def wait(self, instruction: HloInstruction) -> None:
        """Push an instruction onto the worklist unless it is on it already."""
        if type(instruction.operation) in self.rules:
            self.waiting.setdefault(instruction)

    def remove(self, old: HloInstruction) -> None:
        """Remove a dead instruction and, transitively, operands that become dead."""
        dead = [old]
        while dead:
            instruction = dead.pop()
            if instruction.parent is None or not is_dead(instruction):
                continue
            if instruction.has_control_dependencies:
                continue
            operands = list(dict.fromkeys(instruction.operands))
            self.computation.remove(instruction)
            self.instructions.discard(instruction)
            self.waiting.pop(instruction, None)
            for operand in operands:
                if not operand.users:
                    dead.append(operand)
                elif len(operand.users) == 1:
                    self.wait(next(iter(operand.users)))


def discard(i: HloInstruction) -> None:
    """Remove an unused instruction and, recursively, operands that only it uses."""
    if i.parent is not None and is_dead(i) and not i.has_control_dependencies:
        operands = list(dict.fromkeys(i.operands))
        i.parent.remove(i)
        for operand in operands:
            discard(operand)


def same_type(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are equal up to layouts."""
    return a.element_type is b.element_type and a.equal(b, layout=False)


def _has_dynamic(shape: Shape) -> bool:
    return True in shape.dynamic_dimensions or (bool(shape.tuple_shapes) and shape.is_dynamic)


def _is_dynamic(i: HloInstruction) -> bool:
    """Return whether an instruction, its operands or their operands have a dynamic dimension."""
    return (
        i.shape.is_dynamic
        or any(o.shape.is_dynamic for o in i.operands)
        or any(p.shape.is_dynamic for o in i.operands for p in o.operands)
    )
