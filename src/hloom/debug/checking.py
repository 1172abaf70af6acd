"""Compare the results of a program on two backends, and find the first instruction that differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hloom.analysis.origin import place
from hloom.debug.agreement import Comparison, compare
from hloom.debug.backends import run_on, run_one
from hloom.debug.cut import cut, extracted, inlined
from hloom.debug.statistics import summary
from hloom.debug.tolerance import GROWTH, Tolerance, unlimited
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import Parameter
from hloom.text.printer import print_instruction


@dataclass(frozen=True)
class Culprit:
    """The first instruction that differs: with the program cut before it, the backends agree.

    Attributes:
        instruction: its text.
        opcode: its opcode.
        place: the framework's operation and the source line, if they are recorded.
        loop: the loops and branches in which it is, with the number of the iteration.
        operands: the name of each operand and what is to be said of its value.
        comparisons: of its value.
    """

    instruction: str
    opcode: str
    place: str
    loop: str
    operands: list[tuple[str, str]]
    comparisons: list[Comparison]


@dataclass(frozen=True)
class Check:
    """The comparison of one run on two backends.

    Attributes:
        backend, against: the backends; ``stored`` is the result in a snapshot.
        inputs: how the arguments came to be: ``random 3``, ``edge values 4``, ``snapshot``, ``given``.
        comparisons: one for each array of the result.
        undecided: why elements that differ have no bound; empty if all have one.
        culprit: the first instruction that differs, if it was searched and found.
    """

    backend: str
    against: str
    inputs: str
    comparisons: list[Comparison]
    undecided: str = ""
    culprit: Culprit | None = field(default=None)

    @property
    def agrees(self) -> bool:
        """Return whether every array agrees."""
        return all(c.agrees for c in self.comparisons)

    @property
    def is_wrong(self) -> bool:
        """Return whether an element differs by more than its bound."""
        return any(c.wrong for c in self.comparisons)


def check(
    module: HloModule,
    arguments: Sequence[Any],
    *,
    backend: str = "cpu",
    against: str = "evaluator",
    tolerance: Tolerance | None = None,
    locate: bool = True,
) -> Check:
    """Run a program on two backends and compare the results.

    Args:
        arguments: one for each parameter; of a program of several devices, a list for each device.
        tolerance: by default what rounding errors of the program allow.
        locate: search the first instruction that differs.

    Raises HloError for a program or arguments that a backend refuses.
    """
    arguments_of_devices = per_device(module, arguments)
    got, wanted = run_on(backend, module, arguments_of_devices), run_on(against, module, arguments_of_devices)
    comparisons = compared(
        module, arguments_of_devices, got, wanted, tolerance or Tolerance(), (backend, against, "given")
    )
    if not comparisons.is_wrong or not locate or len(arguments_of_devices) > 1:
        return comparisons
    culprit = first_difference(module, arguments_of_devices[0], backend, against, tolerance or Tolerance())
    return replace(comparisons, culprit=culprit)


def per_device(module: HloModule, arguments: Sequence[Any]) -> list[list[Any]]:
    """Return the arguments of each device."""
    devices = module.config.replica_count * module.config.num_partitions
    return [list(arguments)] if devices == 1 else [list(given) for given in arguments]


def compared(
    module: HloModule, arguments: Sequence[Sequence[Any]], got: Sequence[Any], wanted: Sequence[Any],
    tolerance: Tolerance, names: tuple[str, str, str],
) -> Check:  # fmt: skip
    """Compare the results of all devices."""
    results = ["result"] if len(got) == 1 else [f"device {n} result" for n in range(len(got))]
    comparisons = [compare(g, w, 0.0, name) for g, w, name in zip(got, wanted, results, strict=True)]
    undecided = ""
    if not all(c.agrees for made in comparisons for c in made):
        bounds = tolerance.bounds_of_devices(module, arguments, wanted)
        comparisons = [compare(*each) for each in zip(got, wanted, bounds, results, strict=True)]
        if any(c.unjudged for made in comparisons for c in made):
            undecided = unlimited(module, arguments[0]) if len(got) == 1 else GROWTH
    return Check(*names, [c for made in comparisons for c in made], undecided)


def differs(
    module: HloModule, arguments: Sequence[Any], backend: str, against: str, tolerance: Tolerance
) -> bool:
    """Return whether two backends differ by more than is allowed; elements without a bound do not."""
    report = check(module, arguments, backend=backend, against=against, tolerance=tolerance, locate=False)
    return report.is_wrong


# -- the first instruction that differs


def first_difference(
    module: HloModule, arguments: Sequence[Any], backend: str, against: str, tolerance: Tolerance
) -> Culprit | None:
    """Return the first instruction of a program of one device whose value differs, or None.

    None is returned if the difference disappears where values inside the program become results.
    """
    return _Search(backend, against, tolerance).first(inlined(module), list(arguments), "")


@dataclass(frozen=True)
class _Search:
    """Binary search for the shortest beginning of a program whose values differ."""

    backend: str
    against: str
    tolerance: Tolerance

    def first(self, module: HloModule, arguments: list[Any], loop: str) -> Culprit | None:
        """Return the first difference in a program."""
        order = [i for i in module.entry.post_order() if not isinstance(i.operation, Parameter)]
        low, high = 0, len(order) - 1
        if high < 0 or not self.differs(cut(module, frontier(order, high)), arguments):
            return None
        while low < high:
            middle = (low + high) // 2
            if self.differs(cut(module, frontier(order, middle)), arguments):
                high = middle
            else:
                low = middle + 1
        instruction = order[low]
        inner = self.inside(module, instruction, arguments, loop)
        return inner or self.culprit(module, instruction, frontier(order, low), arguments, loop)

    def differs(self, module: HloModule, arguments: list[Any]) -> bool:
        """Return whether the backends differ."""
        return differs(module, arguments, self.backend, self.against, self.tolerance)

    def inside(
        self, module: HloModule, instruction: HloInstruction, arguments: list[Any], loop: str
    ) -> Culprit | None:
        """Return the first difference in an iteration of a loop or in a branch."""
        if not isinstance(instruction.operation, While | Conditional):
            return None
        operands = run_one("evaluator", cut(module, instruction.operands), arguments)
        if isinstance(instruction.operation, Conditional):
            number = _branch(instruction, operands[0])
            branch = inlined(extracted(module, instruction.called_computations[number]))
            return self.first(branch, [operands[1 + number]], f"{loop}%{instruction.name} branch {number} ")
        body, condition = (inlined(extracted(module, c)) for c in instruction.called_computations)
        state, iteration = operands[0], 0
        while bool(run_one("evaluator", condition, [state])):
            if self.differs(body, [state]):
                return self.first(body, [state], f"{loop}%{instruction.name} iteration {iteration} ")
            state = run_one("evaluator", body, [state])
            iteration += 1
        return None

    def culprit(
        self, module: HloModule, instruction: HloInstruction, alive: list[HloInstruction],
        arguments: list[Any], loop: str,
    ) -> Culprit:  # fmt: skip
        """Describe the instruction."""
        cutting = cut(module, alive)
        found = check(
            cutting, arguments, backend=self.backend, against=self.against, tolerance=self.tolerance,
            locate=False,
        )  # fmt: skip
        named = {f"result.{n}": f"%{value.name}" for n, value in enumerate(alive)}
        wrong = [
            replace(c, name=re.sub(r"result\.\d+", lambda found: named[found[0]], c.name))
            for c in found.comparisons
            if c.wrong
        ]
        values = run_one("evaluator", cut(module, instruction.operands), arguments)
        operands = [
            (f"%{o.name} {o.shape.to_string(layout=False)}", summary(value))
            for o, value in zip(instruction.operands, values, strict=True)
        ]
        text = print_instruction(instruction).strip()
        return Culprit(text, instruction.opcode, place(instruction), loop.strip(), operands, wrong)


def frontier(order: Sequence[HloInstruction], last: int) -> list[HloInstruction]:
    """Return the values computed up to a position that are used after it, or by nothing."""
    before = set(order[: last + 1])
    return [
        i
        for i in order[: last + 1]
        if not i.shape.is_token and (i.is_root or not i.users or any(u not in before for u in i.users))
    ]


def _branch(instruction: HloInstruction, index: Any) -> int:
    """Return the number of the branch that a conditional takes."""
    branches = len(instruction.called_computations)
    if instruction.operands[0].shape.element_type.is_predicate:
        return int(not index)
    return int(index) if 0 <= int(index) < branches else branches - 1
