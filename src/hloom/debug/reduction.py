"""Delta debugging: shrink a program while it still shows a fault.

Each step derives a candidate from the smallest program so far. A candidate is kept if it is valid, smaller
and still interesting, that is, shows the fault. Steps that remove most come first: results, the beginning of
the program (its values become arguments), halves, quarters and single instructions, then loops, sizes, ranks
and types. At last elements of the arguments become 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from hloom.debug import smaller, smaller_loops
from hloom.debug.checking import frontier
from hloom.debug.smaller import Reproducer
from hloom.errors import EvaluationError, HloError, expect, plural
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.operations.control_flow import Call, Conditional, Fusion, While
from hloom.operations.structure import Constant, Parameter, Tuple
from hloom.records import dataclass

Interesting = Callable[[HloModule, list[Value]], bool]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Reduction:
    """The smallest program that `reduce` has found.

    Attributes:
        module: the program.
        arguments: its arguments, in the order of the parameters.
        before, after: the numbers of instructions of the given and of the smallest program.
        tests: the number of programs that were tested.
    """

    module: HloModule
    arguments: list[Value]
    before: int
    after: int
    tests: int


def reduce(
    module: HloModule,
    arguments: Sequence[Value],
    interesting: Interesting,
    *,
    progress: Callable[[str], None] | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Reduction:
    """Return the smallest program found that still shows a fault.

    Args:
        module: a program of one device.
        arguments: its arguments; values of instructions that become parameters are added to them.
        interesting: a function (module, arguments) that returns whether this program still shows the fault;
            see `hloom.debug.conditions`. An exception counts as False.
        progress: called before each test with the program size and the number of tests, as text.
        until: called before each candidate; the search ends once it returns True.

    Raises HloError (rule ``reduce.not-interesting``) if the original program does not show the fault.
    """
    expect(module, HloModule, "an HloModule")
    start = Reproducer.of(module, list(arguments))
    reducer = _Reducer(interesting, start, progress or _silent, until)
    if not reducer.holds(start):
        message = "the given program does not show the fault, so there is nothing to reduce"
        raise HloError(message, rule="reduce.not-interesting")
    reducer.run()
    best = reducer.best
    return Reduction(best.module, best.arguments, start.size, best.size, reducer.tests)


class _Reducer:
    """Shrinks a program by steps; ``best`` is the smallest program so far that shows the fault.

    Each step derives candidates from ``best``. A candidate replaces ``best`` if ``interesting`` returns true
    for it, that is, if it still shows the fault.
    """

    def __init__(
        self,
        interesting: Interesting,
        start: Reproducer,
        progress: Callable[[str], None],
        until: Callable[[], bool],
    ) -> None:
        self.interesting = interesting
        self.best = start
        self.progress = progress
        self.until = until
        self.tests = 0
        self.must_verify = _is_valid(start)
        self.seen: set[str] = set()
        self.most_calls = 0

    def holds(self, program: Reproducer) -> bool:
        """Return whether a program was not tested before, is valid, terminates and shows the fault.

        Validity is not required if the original program is invalid.
        """
        text = program.module.to_text()
        if text in self.seen:
            return False
        self.seen.add(text)
        if self.must_verify and not _is_valid(program):
            return False
        return self.ends(program) and self.shows(program)

    def shows(self, program: Reproducer) -> bool:
        """Return whether a program shows the fault, and count the test; if the test raises, return False."""
        self.tests += 1
        self.progress(f"{plural(self.best.size, 'instruction')}, {plural(self.tests, 'test')}")
        try:
            return self.interesting(program.module.clone(), program.arguments)
        except Exception:  # the program may meet another fault, which must not end the reduction
            return False

    def ends(self, program: Reproducer) -> bool:
        """Return whether a program terminates within about twice as many calls as the original program makes.

        Calls of all computations count, such as those of a loop's body. A step of the reduction that changes
        the condition or the counter of a loop may make it endless.
        """
        if not any(isinstance(i.operation, While) for i in program.module.instructions()):
            return True
        counting = CountingEvaluator(self.most_calls)
        with suppress(HloError):
            counting.run(program.module.entry, program.arguments)
        self.most_calls = self.most_calls or 2 * counting.calls + 100
        return counting.calls <= self.most_calls

    def keep(self, make: Callable[[], Reproducer | None], *, lighter: bool = True) -> bool:
        """Replace ``best`` by a candidate if the candidate shows the fault; return whether it was replaced.

        ``make`` returns the candidate; it returns None or raises ValueError if the change is not possible. If
        ``lighter``, the candidate must also have fewer instructions, or as many that compute fewer elements.
        """
        if self.until():
            return False
        try:
            candidate = make()
        except ValueError:  # HloError, or numpy's for other sizes: the step does not fit this program
            return False
        if candidate is None or (lighter and candidate.weight >= self.best.weight):
            return False
        if not self.holds(candidate):
            return False
        self.best = candidate
        return True

    def run(self) -> None:
        """Apply all steps repeatedly, until none of them makes the program smaller.

        Finally, remove metadata and set elements of the arguments to 1.
        """
        ends = self.flatten, self.narrow_results, self.cut_end, self.cut_beginning
        chunks = self.drop_chunks, self.take_loop_body_or_branch, self.simplify_loops, self.narrow_loops
        instructions = self.replace_by_operands, self.merge_parameters, self.clear_computations
        arrays = self.shrink_sizes, self.drop_dimensions, self.narrow_types
        before = None
        while before != self.best.weight and not self.until():
            before = self.best.weight
            for step in (*ends, *chunks, *instructions, *arrays):
                step()
        self.strip()
        self.plain_arguments()

    # -- whole parts

    def flatten(self) -> None:
        """Inline calls and fusions if the fault remains, even if the program becomes larger.

        Then replace each get-tuple-element of a tuple instruction by the tuple's operand.
        """
        if any(isinstance(i.operation, Call | Fusion) for i in self.best.module.instructions()):
            flat = smaller.flattened(self.best)
            if self.holds(flat):
                self.best = flat
        self.keep(lambda: smaller.forwarded(self.best))

    def narrow_results(self) -> None:
        """Drop as many elements of the entry's result tuple as possible while the fault remains."""
        root = self.best.module.entry.root
        if not isinstance(root.operation, Tuple):
            return
        names = list(dict.fromkeys(o.name for o in root.operands))
        for chunk in _chunks(names):
            if self.keep(lambda chunk=chunk: smaller.with_result(self.best, chunk)):
                self.narrow_results()
                return
        for chunk in _chunks(names):
            others = [name for name in names if name not in chunk]
            if others and self.keep(lambda others=others: smaller.with_result(self.best, others)):
                names = others

    def cut_end(self) -> None:
        """Drop as many instructions at the end of the program as possible while the fault remains.

        The values live after the last remaining instruction become the result. The cut is found by binary
        search.
        """
        low, high = 0, len(self.order()) - 1
        while low < high:
            middle = (low + high) // 2
            order = self.order()
            alive = [i.name for i in frontier(order, middle)]
            if alive and self.keep(lambda alive=alive: smaller.with_result(self.best, alive)):
                high = min(middle, len(self.order()) - 1)
            else:
                low = middle + 1

    def cut_beginning(self) -> None:
        """Replace as many instructions at the beginning of the entry as possible while the fault remains.

        Parameters take their place, whose arguments are the values that the instructions compute in a run.
        """
        fraction = 2
        while fraction <= 2 * len(self.order()):
            order = self.order()
            alive = {i.name for i in order[: len(order) - max(1, len(order) // fraction)]}
            if not alive or not self.replace_by_parameters(alive):
                fraction *= 2

    # -- chunks

    def order(self) -> list[HloInstruction]:
        """Return the entry's instructions except for parameters, in post-order."""
        return [i for i in self.best.module.entry.post_order() if not isinstance(i.operation, Parameter)]

    def replace_by_parameters(self, names: Iterable[str]) -> bool:
        """Replace the entry's instructions with the given names by parameters if the fault remains.

        The arguments of these are the values that the instructions compute in a run. Returns whether they
        were replaced.
        """
        values, _ = self.best.values()
        tokens = {i.name for i in self.order() if any(leaf.is_token for _, leaf in i.shape.leaves())}
        replaceable = (set(names) & values.keys()) - tokens - {self.best.module.entry.root.name}
        return bool(replaceable) and self.keep(
            lambda: smaller.with_parameters(self.best, replaceable, values)
        )

    def drop_chunks(self) -> None:
        """Replace instructions of the entry by parameters where the fault remains.

        First tries halves of the instructions, then quarters, and so on, down to single instructions.
        """
        size = max(1, len(self.order()) // 2)
        while size:
            position = 0
            while position < len(self.order()):
                names = [i.name for i in self.order()[position : position + size]]
                before = len(self.order())
                self.replace_by_parameters(names)
                position += size if len(self.order()) == before else 0
            size //= 2

    def replace_by_operands(self) -> None:
        """Replace instructions by an operand of the same shape, and the entry's root by any operand.

        Each replacement is kept if the fault remains.
        """
        for instruction in self.order()[::-1]:
            if instruction.is_root:
                for operand in instruction.operands:
                    self.keep(lambda o=operand: smaller.with_result(self.best, [o.name]))
        for computation in self.best.module.computations:
            for instruction in [*computation.instructions][::-1]:
                for number, operand in enumerate(instruction.operands):
                    if operand.shape.compatible(instruction.shape):
                        use = (computation.name, instruction.name, number)
                        self.keep(lambda use=use: smaller.with_operand(self.best, *use))

    def merge_parameters(self) -> None:
        """Replace parameters of the entry by other parameters of the same shape where the fault remains."""
        for parameter, other in itertools.permutations(self.best.module.entry.parameters, 2):
            if parameter.shape.compatible(other.shape):
                self.keep(lambda a=parameter.name, b=other.name: smaller.merged(self.best, a, b))

    def clear_computations(self) -> None:
        """Replace instructions by zeros in computations other than the entry, such as loop bodies.

        Each replacement is kept if the fault remains.
        """
        for computation in self.best.module.computations:
            if computation is self.best.module.entry:
                continue
            names = [
                i.name for i in computation if i.shape.is_array and not isinstance(i.operation, Constant)
            ]
            for chunk in _chunks(names):
                cleared = computation.name, set(chunk)
                self.keep(lambda cleared=cleared: smaller.with_zeros(self.best, *cleared))

    # -- loops and branches

    def take_loop_body_or_branch(self) -> None:
        """Replace the program by the body of one of its loops, or by a branch of a conditional.

        The new program's argument is an operand that the body or branch receives in a run of the old one. The
        replacement is kept if the fault remains.
        """
        if any(isinstance(i.operation, While | Conditional) for i in self.order()):
            for program in smaller_loops.subprograms(self.best, self.best.values()[1]):
                if self.keep(lambda program=program: smaller.cleaned(program)):
                    return

    def simplify_loops(self) -> None:
        """Replace loops by one run of their body, and conditionals by one of their branches.

        Each replacement is kept if the fault remains.
        """
        for computation in self.best.module.computations:
            for i in computation:
                if isinstance(i.operation, While | Conditional):
                    branches = 1 if isinstance(i.operation, While) else len(i.called_computations)
                    for branch in range(branches):
                        callee = (computation.name, i.name, branch)
                        self.keep(lambda callee=callee: smaller_loops.called(self.best, *callee))

    def narrow_loops(self) -> None:
        """Drop elements of the tuples that loops carry, and lower trip counts, where the fault remains."""
        for loop in [i for i in self.best.module.instructions() if isinstance(i.operation, While)]:
            for number in reversed(range(len(loop.shape.tuple_shapes))):
                for as_initial in (True, False):
                    element = (loop.name, number, as_initial)
                    self.keep(lambda element=element: smaller_loops.without_element(self.best, *element))
            self.keep(lambda name=loop.name: smaller_loops.over_array(self.best, name))
        for computation, name, value in smaller_loops.limits(self.best.module):
            for new in range(1, min(value, 4)):
                limit = (computation, name, new)
                if self.keep(lambda limit=limit: smaller_loops.with_limit(self.best, *limit), lighter=False):
                    break

    # -- shapes

    def shrink_sizes(self) -> None:
        """Reduce each dimension size in the program to the smallest one tried with which the fault remains.

        All dimensions of the same size change together.
        """
        for size in sorted(_sizes(self.best.module), reverse=True):
            for new in _smaller_sizes(size):
                if self.keep(lambda old=size, new=new: smaller.resized(self.best, old, new)):
                    break

    def drop_dimensions(self) -> None:
        """Remove the leading dimension of all arrays, repeatedly, while the fault remains.

        This applies only to programs of elementwise operations on arrays of one shape.
        """
        while self.keep(lambda: smaller.without_dimension(self.best), lighter=False):
            pass

    def narrow_types(self) -> None:
        """Replace each 64-bit type, and c128, by the type of half the width if the fault remains."""
        for kind in smaller.NARROWER:
            used = any(
                leaf.element_type is kind
                for i in self.best.module.instructions()
                for _, leaf in i.shape.leaves()
            )
            if used:
                self.keep(lambda kind=kind: smaller.narrowed(self.best, kind), lighter=False)

    def strip(self) -> None:
        """Remove metadata, attributes that do not affect semantics, and layouts, if the fault remains."""
        self.keep(lambda: smaller.without_metadata(self.best), lighter=False)

    def plain_arguments(self) -> None:
        """Set as many elements of the arguments as possible to 1 while the fault remains.

        First tries halves of each argument, then quarters, and so on, down to single elements.
        """
        for parameter in self.best.module.entry.parameters:
            if not parameter.shape.is_array:
                continue
            for chunk in _chunks(range(parameter.shape.element_count)):
                candidate = None if self.until() else smaller.with_ones(self.best, parameter.name, chunk)
                if candidate is not None and self.shows(candidate):
                    self.best = candidate


class CountingEvaluator(Evaluator):
    """An evaluator that counts calls of computations, such as loop bodies, to detect endless loops.

    It raises EvaluationError after ``most`` calls; 0 sets no limit.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.calls = 0

    def call(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Count the call, evaluate the computation, and return its value.

        Raises EvaluationError if there were ``most`` calls before; 0 sets no limit.
        """
        self.calls += 1
        if self.most and self.calls > self.most:
            raise EvaluationError("the program runs longer than the given one", rule="reduce.endless")
        return super().call(computation, arguments)


def _silent(text: str) -> None:
    """Do nothing: the default for a callback that receives messages."""


def _is_valid(program: Reproducer) -> bool:
    try:
        program.module.verify()
    except HloError:
        return False
    return True


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the halves of a sequence, then its quarters, and so on, down to its single items, as lists."""
    size = max(1, (len(items) + 1) // 2)
    while size:
        for start in range(0, len(items), size):
            yield list(items[start : start + size])
        size //= 2


def _sizes(module: HloModule) -> set[int]:
    shapes = [leaf for i in module.instructions() for _, leaf in i.shape.leaves() if leaf.is_array]
    return {size for shape in shapes for size in shape.dimensions if size > 1}


def _smaller_sizes(size: int) -> list[int]:
    """Return the sizes below ``size`` to try in its place, ascending: 1 to 4 and repeated halves."""
    sizes = [1, 2, 3, 4]
    while size > 8:
        size = (size + 1) // 2
        sizes.append(size)
    return sorted({s for s in sizes if s < size} | set(sizes[4:]))
