"""Comparison of a program's results on two backends, and search for the first instruction that differs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from hloom.analysis.origin import place
from hloom.debug.agreement import Comparison, compare
from hloom.debug.backends import run_on, run_one
from hloom.debug.cut import cut, extracted, inlined
from hloom.debug.statistics import summary
from hloom.debug.tolerance import GROWTH, Tolerance, unlimited
from hloom.errors import expect
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import Parameter
from hloom.records import dataclass
from hloom.text.printer import print_instruction

Values: TypeAlias = Sequence[Any]
"""The arguments of one device, or a sequence with the result of each device."""


@dataclass(frozen=True)
class Culprit:
    """The first instruction whose value differs between two backends although its operands agree.

    Attributes:
        instruction: the text of the instruction.
        opcode: its opcode.
        origin: the framework's name of the operation and the source line, if recorded; else "".
        loop: the enclosing loops and branches, outermost first, as text: ``%while.3 iteration 2``; "" if the
            instruction is in the entry.
        operands: for each operand, the pair (name and shape, summary of the value).
        comparisons: the comparisons of the arrays that differ, among the values computed up to this
            instruction that later instructions or the result use.
    """

    instruction: str
    opcode: str
    origin: str
    loop: str
    operands: list[tuple[str, str]]
    comparisons: list[Comparison]


@dataclass(frozen=True)
class Check:
    """The outcome of running a program on two backends and comparing the results.

    Attributes:
        backend: the name of the backend under test.
        against: the name of the reference backend; ``stored`` stands for the result stored in a snapshot.
        inputs: the origin of the arguments: ``random 3``, ``edge values 4``, ``snapshot``, ``given``.
        comparisons: one for each array of the result.
        undecided: the reason why some unequal elements have no bound; empty if all have one.
        culprit: the first instruction whose values differ; None if it was not searched or not found.
    """

    backend: str
    against: str
    inputs: str
    comparisons: list[Comparison]
    undecided: str = ""
    culprit: Culprit | None = field(default=None)

    @property
    def agrees(self) -> bool:
        """True if no element of the result is beyond its bound, and no unequal one has an infinite bound."""
        return all(c.agrees for c in self.comparisons)

    @property
    def is_wrong(self) -> bool:
        """True if any element of the result differs from the reference by more than its bound."""
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
        module: the program.
        arguments: one for each parameter; for a program of several devices, such a list for each device.
        backend, against: the names of the backend under test and of the reference.
        tolerance: the allowed differences; None to allow the program's rounding errors.
        locate: search for the first instruction whose values differ if the results of a one-device program
            do.

    Raises HloError for a program or arguments that a backend refuses.
    """
    expect(module, HloModule, "an HloModule")
    arguments_of_devices = per_device(module, arguments)
    tolerance = tolerance or Tolerance()
    got, expected = (run_on(name, module, arguments_of_devices) for name in (backend, against))
    comparison = compared(module, arguments_of_devices, got, expected, tolerance)
    result = Check(backend, against, "given", *comparison)
    if not result.is_wrong or not locate or len(arguments_of_devices) > 1:
        return result
    culprit = first_difference(module, arguments_of_devices[0], backend, against, tolerance)
    return replace(result, culprit=culprit)


def per_device(module: HloModule, arguments: Sequence[Any]) -> list[list[Any]]:
    """Return the arguments of a program as a list that holds, for each device, the list of its arguments.

    If the program runs on one device (replicas times partitions is 1), ``arguments`` are that device's; else
    ``arguments`` has a sequence for each device.
    """
    devices = module.config.replica_count * module.config.num_partitions
    return [list(arguments)] if devices == 1 else [list(values) for values in arguments]


def compared(
    module: HloModule, arguments: Sequence[Values], got: Values, expected: Values, tolerance: Tolerance
) -> tuple[list[Comparison], str]:
    """Compare ``got`` with the reference ``expected``, each a sequence with the result of each device.

    Returns the comparisons of all arrays in the order of the devices, and the reason why some unequal
    elements have no bound ("" if all have one). ``arguments`` has a sequence for each device.
    """
    results = ["result"] if len(got) == 1 else [f"device {n} result" for n in range(len(got))]
    comparisons = [compare(g, e, 0.0, name) for g, e, name in zip(got, expected, results, strict=True)]
    undecided = ""
    if not all(c.agrees for of_device in comparisons for c in of_device):
        bounds = tolerance.bounds_of_devices(module, arguments, expected)
        comparisons = [compare(*each) for each in zip(got, expected, bounds, results, strict=True)]
        if any(c.unjudged for of_device in comparisons for c in of_device):
            undecided = unlimited(module, arguments[0]) if len(got) == 1 else GROWTH
    return [c for of_device in comparisons for c in of_device], undecided


def differs(
    module: HloModule, arguments: Sequence[Any], backend: str, against: str, tolerance: Tolerance
) -> bool:
    """Return whether two backends' results of a program differ by more than the tolerance.

    Elements whose tolerance is not known do not count. ``arguments`` are as for `check`.
    """
    report = check(module, arguments, backend=backend, against=against, tolerance=tolerance, locate=False)
    return report.is_wrong


# -- the first instruction that differs


def first_difference(
    module: HloModule, arguments: Sequence[Any], backend: str, against: str, tolerance: Tolerance
) -> Culprit | None:
    """Return the first instruction of a one-device program whose value differs between two backends.

    The backends run prefixes of the program, each with the values that later instructions need as its result.
    Returns None if these results agree even for the whole program. ``backend`` and ``against`` are the names
    of the backends.
    """
    return _Search(backend, against, tolerance).first(inlined(module), list(arguments), "")


@dataclass(frozen=True)
class _Search:
    """A binary search for the first instruction of a program whose value differs between two backends.

    Both run prefixes of the program. The backends' names are ``backend`` and ``against``; differences within
    ``tolerance`` do not count.
    """

    backend: str
    against: str
    tolerance: Tolerance

    def first(self, module: HloModule, arguments: list[Any], loop: str) -> Culprit | None:
        """Return the first instruction of a program's entry whose value differs between the backends.

        Returns None if there is none. For a loop or conditional, the first instruction that differs inside it
        is returned instead, if found. ``loop`` is a text with the loops and branches in which the entry runs,
        for the `Culprit`; "" for the original program.
        """
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
        return inner or self.culprit(module, order, low, arguments, loop)

    def differs(self, module: HloModule, arguments: list[Any]) -> bool:
        """Return whether the two backends' results of ``module`` differ by more than the tolerance."""
        return differs(module, arguments, self.backend, self.against, self.tolerance)

    def inside(
        self, module: HloModule, instruction: HloInstruction, arguments: list[Any], loop: str
    ) -> Culprit | None:
        """Return the first instruction in a while loop or conditional whose value differs between backends.

        It is searched in the first loop iteration whose result differs, or in the branch that is taken.
        Returns None if ``instruction`` is no loop or conditional, and if no value inside differs. ``loop`` is
        a text with the loops and branches in which ``module`` runs.
        """
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
        self, module: HloModule, order: list[HloInstruction], number: int, arguments: list[Any], loop: str
    ) -> Culprit:
        """Describe ``order[number]`` as the first instruction whose value differs between the backends.

        Runs the program up to this instruction to find the values of its operands and the arrays that differ.

        Args:
            module: the program.
            order: the instructions of its entry, except parameters, in the order of execution.
            number: the position of the instruction in ``order``.
            arguments: the arguments of the program.
            loop: the text of the loops and branches of the original program in which ``module`` runs.
        """
        instruction, alive = order[number], frontier(order, number)
        backends = {"backend": self.backend, "against": self.against}
        report = check(cut(module, alive), arguments, **backends, tolerance=self.tolerance, locate=False)
        named = {f"result.{n}": f"%{value.name}" for n, value in enumerate(alive)}
        wrong = [
            replace(c, name=re.sub(r"result\.\d+", lambda match: named[match[0]], c.name))
            for c in report.comparisons
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
    """Return the instructions up to position ``last`` of ``order`` whose values are needed after it.

    These have users at later positions, or no users, or are the root. Tokens are left out.
    """
    before = set(order[: last + 1])
    return [
        i
        for i in order[: last + 1]
        if not i.shape.is_token and (i.is_root or not i.users or any(u not in before for u in i.users))
    ]


def _branch(instruction: HloInstruction, index: Any) -> int:
    """Return the index of the branch that the conditional ``instruction`` takes.

    ``index`` is the value of its first operand: a predicate, whose first branch is that for true, or an
    integer, for which the last branch is taken if there is no branch of that index.
    """
    branches = len(instruction.called_computations)
    if instruction.operands[0].shape.element_type.is_predicate:
        return int(not index)
    return int(index) if 0 <= int(index) < branches else branches - 1
