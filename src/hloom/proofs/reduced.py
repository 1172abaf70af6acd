"""The undecided part of two programs: their open results, from values that both compute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set

from hloom.debug.cut import reset_config
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import Parameter, Tuple
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Body
from hloom.shape.shape import Shape

Hashed = tuple[HloModule, Mapping[HloInstruction, int]]
"""A program, and the hash of each array that its entry computation computes."""


def undecided(before: Hashed, after: Hashed, results: Set[int]) -> tuple[HloModule, ...]:
    """Return two programs whose parameters are values that both programs compute, and their own parameters.

    Args:
        before, after: the programs.
        results: the numbers of the arrays of the result that are open.

    Returns:
        The programs, whose results are the open ones, or all if the result is nested; nothing if only effects
        are open.
    """
    common = set(before[1].values()) & set(after[1].values())
    first, second = (_Part(*each, common, results) for each in (before, after))
    if not (first.results and second.results):
        return ()
    inputs = {**second.inputs, **first.inputs}
    return first.program(inputs), second.program(inputs)


class _Part:
    """The instructions from which open results are computed.

    Attributes:
        results: the instructions that compute the open results.
        inputs: the values that are not computed: their names and shapes, by what both programs know them by.
    """

    def __init__(
        self, module: HloModule, hashes: Mapping[HloInstruction, int], common: Set[int], results: Set[int]
    ) -> None:
        self.inputs: dict[Hashable, tuple[str, Shape]] = {}
        self._module, self._hashes, self._common = module, hashes, common
        root = module.entry.root
        arrays = list(root.operands) if isinstance(root.operation, Tuple) else [root]
        is_flat = all(array.shape.is_array for array in arrays)
        self.results = [arrays[n] for n in sorted(results) if n < len(arrays)] if is_flat else [root]
        self._needed: set[HloInstruction] = set()
        pending = list(self.results)
        while pending:
            i = pending.pop()
            if i in self._needed:
                continue
            key = self._key(i)
            if key is None:
                self._needed.add(i)
                pending += i.operands
            else:
                self.inputs[key] = i.name, i.shape

    def _key(self, i: HloInstruction) -> Hashable:
        """Return what both programs know a value by; None if it is computed."""
        if isinstance(i.operation, Parameter):
            return f"parameter {i.operation.parameter_number}"
        value = self._hashes.get(i)
        return value if i.operands and value in self._common else None

    def program(self, inputs: Mapping[Hashable, tuple[str, Shape]]) -> HloModule:
        """Return the program of these instructions with some parameters."""
        copy = self._module.clone()
        reset_config(copy)
        computations = dict(zip((c.name for c in copy.computations), copy.computations, strict=True))
        body = Body(copy, "undecided", entry=True)
        parameters = {key: body.parameter(shape, name) for key, (name, shape) in inputs.items()}
        values: dict[HloInstruction, HloInstruction] = {}
        entry = self._module.entry
        for i in entry.post_order():
            key = self._key(i)
            if key in parameters and i not in self._needed:
                values[i] = parameters[key]
            elif i in self._needed:
                called = [computations[c.name] for c in i.called_computations]
                operands = [values[o] for o in i.operands]
                values[i] = body.computation.add(i.clone(operands=operands, called_computations=called))
        results = [values[i] for i in self.results]
        shape = Shape.tuple_([i.shape for i in results])
        root = results[0]
        if len(results) > 1:
            root = body.computation.add(HloInstruction(copy.unique_name("results"), Tuple(), shape, results))
        body.computation.root = root
        DeadCodeElimination().run(copy)
        return copy
