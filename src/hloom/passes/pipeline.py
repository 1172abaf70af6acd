"""Passes and pipelines: the interface of a pass, and sequences of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, TypeAlias, TypedDict, Unpack, dataclass_transform

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation, has_fields
from hloom.phases import phase
from hloom.records import dataclass

Classes: TypeAlias = type[Operation] | tuple[type[Operation], ...]

PASSES: Final[dict[str, type[Pass]]] = {}
"""The passes whose modules are imported, by name; `hloom.passes.registry` imports all of them."""


class Declaration(TypedDict, total=False):
    """The class arguments of a pass.

    Attributes:
        name: the pass's name, XLA's where XLA has the pass.
        needs, establishes, breaks: the facts (`hloom.passes.facts`) that it relies on, makes true or makes
            false.
        settles: whether it is idempotent.
        of: the operations it rewrites; a pipeline skips it for modules without any.
    """

    name: str
    needs: Iterable[str]
    establishes: Iterable[str]
    breaks: Iterable[str]
    settles: bool
    of: Classes


@dataclass_transform(frozen_default=True)
class Pass(ABC):
    """A rewrite of a module, as a frozen dataclass whose fields are its options.

    Its class arguments are a `Declaration`, whose name registers it.

    Raises HloError by the rule ``pass.name-unique`` if another class has the name.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    establishes: ClassVar[frozenset[str]] = frozenset()
    breaks: ClassVar[frozenset[str]] = frozenset()
    settles: ClassVar[bool] = False
    of: ClassVar[Classes] = Operation

    def __init_subclass__(cls, **declaration: Unpack[Declaration]) -> None:
        super().__init_subclass__()
        if has_fields(cls):
            dataclass(frozen=True)(cls)
        cls.of = declaration.get("of", cls.of)
        name = declaration.get("name")
        if name is None:
            return
        cls.name, cls.settles = name, declaration.get("settles", False)
        cls.needs = frozenset(declaration.get("needs", ()))
        cls.establishes = frozenset(declaration.get("establishes", ()))
        cls.breaks = frozenset(declaration.get("breaks", ()))
        other = PASSES.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            message = f"{cls.__qualname__} has the name {name} of {other.__module__}.{other.__qualname__}"
            raise HloError(message, rule="pass.name-unique")
        PASSES[name] = cls

    @abstractmethod
    def run(self, module: HloModule) -> bool:
        """Rewrite the module in place; return whether anything changed."""


class Pipeline(Pass):
    """A sequence of passes, itself a pass.

    Attributes:
        passes: the passes, in order. A pass that needs a fact which no earlier pass establishes is rejected
            with HloError (``pipeline.needs``).
        until_stable: whether the passes are repeated until none changes anything, at most ``rounds`` times.
        assumes: the facts that hold before the first pass.
        title: the purpose, in a word.
    """

    name = "pipeline"
    passes: Sequence[Pass]
    until_stable: bool = False
    rounds: int = 25
    assumes: frozenset[str] = frozenset()
    title: str = "pipeline"

    def __post_init__(self) -> None:
        holding = self.assumes
        for item in self.flat():
            if missing := ", ".join(sorted(item.needs - holding)):
                message = f"{item.name} needs {missing}, which no pass before it establishes"
                raise HloError(message, rule="pipeline.needs")
            holding = (holding - item.breaks) | item.establishes

    def run(self, module: HloModule, observe: Callable[[Pass, HloModule], None] | None = None) -> bool:
        """Run the passes; call ``observe`` with the module after every pass that changed it.

        In later rounds a pass runs only if another pass has changed the module since, or if it changed the
        module itself and is not idempotent.
        """
        changes = 0
        present: set[type[Operation]] = set()
        done = [-1] * len(self.passes)
        for _ in range(self.rounds if self.until_stable else 1):
            before = changes
            for number, item in enumerate(self.passes):
                if done[number] == changes:
                    continue
                done[number] = changes
                present = present or {type(i.operation) for i in module.instructions()}
                if not any(issubclass(operation, item.of) for operation in present):
                    continue
                if isinstance(item, Pipeline):
                    changed = item.run(module, observe)
                else:
                    with phase("passes", item.name, lambda: module.instruction_count):
                        changed = item.run(module)
                if not changed:
                    continue
                changes += 1
                present = set()
                if item.settles:
                    done[number] = changes
                if observe is not None and not isinstance(item, Pipeline):
                    observe(item, module)
            if changes == before:
                break
        return changes > 0

    def flat(self) -> Iterator[Pass]:
        """Yield every pass that is not a pipeline, in order."""
        for item in self.passes:
            if isinstance(item, Pipeline):
                yield from item.flat()
            else:
                yield item
