"""dynamic-padder: rewrite programs of dynamic sizes into static shapes with explicit sizes."""

from __future__ import annotations

from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.passes.expand import dynamic_rules as dynamic_rules  # registers the rules
from hloom.passes.expand.dynamic_form import is_dynamic, static_form
from hloom.passes.expand.dynamic_writer import DynamicWriter
from hloom.passes.pipeline import Pass
from hloom.shape.shape import Shape


class DynamicPadder(Pass, name="dynamic-padder"):
    """``f32[<=8] add(x, y)`` → ``f32[8] add(x, y)`` beside the size of x."""

    def run(self, module: HloModule) -> bool:
        """Rewrite the entry and the computations it runs; parameters and results take the static form."""
        if not is_dynamic(module):
            return False
        unbounded = next((i for i in module.instructions() if i.shape.is_unbounded), None)
        if unbounded is not None:
            message = f"nothing bounds the sizes of {unbounded.shape}"
            raise HloError(message, rule="dynamic-padder.unbounded", instruction=unbounded.name)
        _Module(module).run()
        return True


def static_module(module: HloModule) -> HloModule:
    """Return a copy of a program in static form."""
    copy = clone_module(module)
    DynamicPadder().run(copy)
    return copy


class _Module:
    """The rewritten computations of a module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.rewritten: dict[tuple[HloComputation, Shape], HloComputation] = {}

    def run(self) -> None:
        """Rewrite the entry and, from it, all reachable computations."""
        old = self.module.entry
        new = self.computation(old, old.root.shape)
        for computation in dict.fromkeys(computation for computation, _ in self.rewritten):
            self.module.remove(computation)
        self.module.remove(new)
        self.module.add(new, entry=True)
        self.module.config.entry_layout = None

    def computation(self, old: HloComputation, result: Shape) -> HloComputation:
        """Return the static form of a computation of control flow; see `Computations`."""
        key = old, static_form(result).without_layout()
        if key not in self.rewritten:
            new = HloComputation(self.module.unique_name(old.name))
            self.rewritten[key] = self.module.add(new)
            DynamicWriter(self, old, new, result).run()
        return self.rewritten[key]
