"""Evaluation of programs on fingerprints: the evaluator, with a function on fingerprints for each operation.

Operations that only move elements are evaluated on the positions of their operands' elements, by the same
functions that evaluate them on numbers. Values that depend on no argument are evaluated on numbers too, so
that loops with a known trip count run, and slices have known starts. Each result of any other operation is an
unknown function of all operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import numpy as np

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation, Run
from hloom.ir.traits import Family
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.asynchronous import CopyDone, CopyStart
from hloom.operations.comparison import Compare
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Conditional, While
from hloom.operations.conversion import Bitcast, BitcastConvert
from hloom.operations.convolution import Convolution
from hloom.operations.custom_call import CustomCall, is_identity
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather, Scatter
from hloom.operations.linear_algebra import Cholesky, TriangularSolve
from hloom.operations.reduction import Map, Reduce
from hloom.operations.sorting import Sort, TopK
from hloom.operations.structure import GetDimensionSize, Parameter, SetDimensionSize
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.expand.topk_custom_calls import is_top_k
from hloom.passes.expand.triangular_solve_custom_calls import solve_of
from hloom.proofs import field
from hloom.proofs.addressing import dynamic_slice, dynamic_update_slice, gather, scatter
from hloom.proofs.algebra import Algebra, either, is_rounded
from hloom.proofs.degrees import CONSTANT, Degree, degree_of, largest, product, total
from hloom.proofs.field import salt_of
from hloom.proofs.loops import last_state
from hloom.proofs.prints import Bag, Prints
from hloom.proofs.ranges import derived_range, equal_to_numbers, in_bounds
from hloom.proofs.sums import TooLarge, accumulate, combined, combining, convolution, dot, in_order
from hloom.proofs.updates import Places
from hloom.proofs.values import MOST_ELEMENTS, hash_of, mapped, unknown
from hloom.shape.element_type import F64, S32, S64, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

MOST_WORK: Final = 1 << 31
"""Maximum number of elements that all instructions together may compute, iterations of loops counted."""
STEP: Final = 1 << 14
"""Elements that take as long as the evaluation of an instruction besides its elements."""


class FingerprintEvaluator(Evaluator):
    """The evaluator of programs on fingerprints.

    Args:
        algebra: the laws by which fingerprints are equal.
        runs_loops: whether loops whose trip count depends on no argument run; otherwise the result of a loop
            is an unknown function of its computations and its initial state.

    Attributes:
        effects: the fingerprints of instructions with side effects and of their operands, in order.
        degree: the largest degree of a fingerprint.
        evaluations: the number of evaluations of instructions.
        prints: the hash of the fingerprints of each array that the entry computation has computed.
    """

    def __init__(self, algebra: Algebra, *, runs_loops: bool) -> None:
        super().__init__()
        self.algebra = algebra
        self.runs_loops = runs_loops
        self.effects: list[int] = []
        self.degree = 1
        self.evaluations = 0
        self.prints: dict[HloInstruction, int] = {}
        self._entry: HloComputation | None = None
        self._numbers = Evaluator(self.device)
        self._signatures: dict[HloComputation, int] = {}
        self._work = 0
        self._devices = 1
        self._states = 0
        self._depth = 0

    def results(self, module: HloModule) -> Any:
        """Return the fingerprints of a program's result.

        Raises TooLarge for programs that are not run on fingerprints, and HloError for evaluation errors.
        """
        self._entry = module.entry
        self._devices = device_count(module)
        return self.run(
            module.entry, [unknown(p.shape, str(n)) for n, p in enumerate(module.entry.parameters)]
        )

    def evaluation(self, instruction: HloInstruction) -> Callable[..., Any]:
        """Return the function on fingerprints of operands that evaluates an instruction."""
        evaluate = self._function(instruction)

        def observed(run: Run, *operands: Any) -> Any:
            self._spend(instruction.shape)
            value = self._with_degree(instruction, evaluate(run, *operands), operands)
            if instruction.parent is self._entry and isinstance(value, Prints):
                self.prints[instruction] = hash_of(value)
            if instruction.operation.side_effect:
                self.effects.append(salt_of(repr(instruction.operation), *map(hash_of, operands)))
            return value

        return observed

    def _with_degree(self, i: HloInstruction, value: Any, operands: Sequence[Any]) -> Any:
        """Return the fingerprints of a result with their degree, and record the largest degree."""
        self.evaluations += 1
        if not isinstance(value, Prints) or i.operation.family in (Family.CONTROL, Family.STRUCTURE):
            return value
        # Combiners are instructions whose degrees are counted.
        keeps_degree = isinstance(i.operation, Map | Scatter) or is_identity(i)
        if value.value is None and not keeps_degree:
            prints = [x for x in operands if isinstance(x, Prints)]
            degrees = [x.degree if x.value is None else CONSTANT for x in prints]
            value = replace(
                value,
                range=derived_range(i, prints),
                degree=degree_of(
                    i,
                    degrees,
                    forms_ring=self.algebra.forms_ring(i.shape.element_type),
                    has_fractions=self.algebra.has_fractions,
                ),
            )
        self.degree = max(self.degree, value.degree.degree)
        return value

    def _spend(self, shape: Shape) -> None:
        if not shape.is_array:
            return
        if shape.is_dynamic or shape.is_unbounded:
            raise TooLarge("sizes are dynamic")
        self._work += STEP + shape.element_count
        if shape.element_count > MOST_ELEMENTS or self._work > MOST_WORK:
            raise TooLarge("the arrays are too large, or loops too long")

    def _function(self, i: HloInstruction) -> Callable[..., Any]:
        operation = i.operation
        if isinstance(operation, While):
            return self._while
        if isinstance(operation, Conditional):
            return self._conditional
        if is_identity(i) and len(i.operands) == 1:
            return _identity
        passes_on = operation.family in (Family.CONTROL, Family.STRUCTURE) and bool(i.operands)
        if isinstance(operation, CopyStart | CopyDone):
            return operation.evaluate
        if passes_on and not isinstance(operation, GetDimensionSize | SetDimensionSize):
            return operation.evaluate
        return self._array

    def _array(self, run: Run, *operands: Any) -> Any:
        """Return the result of an operation on arrays: computed on numbers if all operands are known."""
        i = run.instruction
        operation = i.operation
        if not all(isinstance(x, Prints) for x in operands):
            return self.function_of(i, operands)
        prints = cast("tuple[Prints, ...]", operands)
        if not self._depends_on_run(operation) and all(x.value is not None for x in prints):
            value = self._numbers.apply(i, [x.value for x in prints])
            return mapped(value, self.algebra.known)
        if operation.elementwise and i.shape.is_array:
            return self._shaped(i, self.algebra.elementwise(i, list(prints)))
        match operation:
            case Dot():
                return dot(self.algebra, i, *prints)
            case Reduce():
                return self._reduce(i, prints)
            case ReduceWindow():
                salt = salt_of(*self._words(i))
                return _single(accumulate(self.algebra, i, prints, i.called_computations[0], salt))
            case Convolution():
                return convolution(self.algebra, i, *prints)
            case GetDimensionSize():
                size = i.operands[0].shape.dimensions[operation.dimensions[0]]
                return self.algebra.known(np.asarray(size, i.shape.element_type.numpy_dtype))
            case Map() if self.mappable(i.called_computations[0]):
                return self._shaped(
                    i, cast("Prints", self.call(i.called_computations[0], cast("Any", prints)))
                )
            case Sort():
                return self._sort(i, operation, prints)
            case TopK(largest=largest):
                return self._top_k(i, prints[0], largest=largest)
            case CustomCall() if is_top_k(i):
                return self._top_k(i, prints[0], largest=True)
            case Cholesky() | TriangularSolve():
                return self._factorized(i, operation, prints)
            case CustomCall() if (solve := solve_of(i)) is not None:
                return self._factorized(i, solve, prints)
            case Scatter() if i.shape.is_array:
                return self._scatter(i, operation, prints)
            case Bitcast() | BitcastConvert() if _keeps_width(i):
                return self._bitcast(i, prints)
            case _ if operation.family is Family.MOVEMENT:
                return self._movement(i, prints)
            case _:
                return self.function_of(i, prints)

    def _depends_on_run(self, operation: Operation) -> bool:
        """Return whether a result depends on other devices, state or foreign code, not only on operands."""
        if operation.family is Family.COLLECTIVE:
            return operation.communicates or self._devices > 1
        return operation.side_effect or operation.configured or operation.family is Family.RANDOM

    def _shaped(self, i: HloInstruction, x: Prints) -> Prints:
        return x if x.shape else x.moved(lambda array: np.broadcast_to(array, i.shape.dimensions))

    # -- movement

    def _movement(self, i: HloInstruction, operands: Sequence[Prints]) -> Any:
        """Return the result of an operation that moves elements: those at positions that it computes.

        The operation is evaluated on the positions of its operands' elements.
        """
        sources = tuple(i.operation.element_sources(len(operands)))
        if not sources or any(x.value is None for n, x in enumerate(operands) if n not in sources):
            return self._addressed(i, operands)
        run: Any = _Positions(i)

        def evaluate(positions: dict[int, Any]) -> Any:
            arguments = [positions.get(n, x.value) for n, x in enumerate(operands)]
            return i.operation.evaluate(run, *arguments)

        return _moved(operands, sources, evaluate)

    def _bitcast(self, i: HloInstruction, operands: Sequence[Prints]) -> Prints:
        """Return the result of a bitcast or bitcast-convert between types of the same width."""
        before, after = i.operands[0].shape.element_type, i.shape.element_type
        moved = operands[0]
        if isinstance(i.operation, Bitcast):
            moved = _moved(operands, (0,), lambda positions: _bitcast(i, positions[0]))
        return moved if before == after else self.algebra.reinterpreted(moved, before, after)

    def _addressed(self, i: HloInstruction, operands: Sequence[Prints]) -> Any:
        """Return the result of a slice, gather or update at positions that depend on arguments."""
        match i.operation:
            case DynamicSlice():
                return dynamic_slice(operands[0], operands[1:], i.shape.dimensions)
            case Gather() as operation:
                return gather(operation, operands[0], operands[1], i.shape.dimensions)
            case DynamicUpdateSlice():
                updated = dynamic_update_slice(operands[0], operands[1], operands[2:])
                return self.function_of(i, operands) if updated is None else updated
            case _:
                return self.function_of(i, operands)

    def _scatter(self, i: HloInstruction, operation: Scatter, operands: Sequence[Prints]) -> Any:
        computation = i.called_computations[0]
        single = combining(computation)
        kind = i.shape.element_type
        ring = single is not None and (
            not issubclass(single, Add | Multiply) or self.algebra.forms_ring(kind)
        )
        ways = self._updated, self._with_window, self._changed
        updated = next((x for way in ways if (x := way(i, operation, operands)) is not None), None)
        if updated is not None:
            return updated
        salt = salt_of("scatter", self.signature(computation), kind.name)
        return scatter(operation, salt, not ring, *operands)

    def _updated(self, i: HloInstruction, operation: Scatter, operands: Sequence[Prints]) -> Prints | None:
        """Return the result of a scatter that updates elements at known positions once; None for others."""
        old, indices, updates = operands
        (computation,) = i.called_computations
        if indices.value is None or not updates.residues.size or not self.mappable(computation):
            return None
        run: Any = _Overwriting(i)
        numbers = np.arange(1, updates.residues.size + 1, dtype=np.int64).reshape(updates.shape)
        chosen = np.asarray(operation.evaluate(run, np.zeros(old.shape, np.int64), indices.value, numbers))
        is_updated = chosen > 0
        if run.rounds > 1 or (run.rounds == 0 and int(is_updated.sum()) < numbers.size):
            return None
        new = updates.moved(lambda array: array.reshape(-1)[np.maximum(chosen - 1, 0)])
        return either(is_updated, cast("Prints", self.call(computation, cast("Any", [old, new]))), old)

    def _with_window(
        self, i: HloInstruction, operation: Scatter, operands: Sequence[Prints]
    ) -> Prints | None:
        """Return the result of a scatter of one window: an update with what is there if it is out of bounds.

        None for several windows, a window that may be at too many places, or updates in order.
        """
        old, indices, updates = operands
        (computation,) = i.called_computations
        places = Places(operation, old.shape, indices.residues, updates.shape)
        if places.window_count != 1 or not places.fits or not self.mappable(computation):
            return None
        starts = [replace(indices, residues=start, value=None, bag=None) for start in places.firsts()]
        there = dynamic_slice(old, starts, places.widths)
        update = updates.moved(lambda array: array.reshape(places.widths))
        new = cast("Prints", self.call(computation, cast("Any", [there, update])))
        inside = field.ONE
        for d in places.components:
            kind, last = i.operands[1].shape.element_type, old.shape[d] - places.widths[d]
            inside = field.multiply(np.asarray(inside), in_bounds(kind, starts[d], last))
        change = field.multiply(*np.broadcast_arrays(inside, field.subtract(new.residues, there.residues)))
        window = Prints(field.add(there.residues, change))
        updated = dynamic_update_slice(old, window, starts)
        terms = total([largest([old.degree, there.degree, new.degree])], 2 * places.count_of_firsts)
        degree = product([terms, Degree(2 * len(starts))])
        return None if updated is None else replace(updated, degree=degree)

    def _changed(self, i: HloInstruction, operation: Scatter, operands: Sequence[Prints]) -> Prints | None:
        """Return the result of a scatter as the sum of the changes at the places where updates may be.

        None where the places are many, or elements may be updated several times and updates are not added.
        """
        old, indices, updates = operands
        (computation,) = i.called_computations
        kind, kind_of_indices = i.shape.element_type, i.operands[1].shape.element_type
        adds = combining(computation) is Add and self.algebra.forms_ring(kind) and not is_rounded(kind)
        places = Places(operation, old.shape, indices.residues, updates.shape)
        if not places.are_few or not (adds or (places.count == 1 and self.mappable(computation))):
            return None
        equal = partial(equal_to_numbers, kind_of_indices)
        combine = cast("Any", lambda a, b: self.call(computation, cast("Any", [a, b])))  # pyright: ignore
        return places.changed(old, updates, combine, equal)

    def _sort(self, i: HloInstruction, operation: Sort, operands: Sequence[Prints]) -> Any:
        """Return the result of a sort."""
        (axis,) = operation.dimensions
        types = [o.shape.element_type for o in i.operands]
        comparator = self.signature(i.called_computations[0])
        return _single(_sorted(comparator, operation.is_stable, axis, operands, types))

    def _top_k(self, i: HloInstruction, x: Prints, *, largest: bool) -> Any:
        """Return the first elements of a stable sort of an array, in total order, and of their numbers."""
        kind, axis = i.operands[0].shape.element_type, len(x.shape) - 1
        if i.called_computations:
            comparator = self.signature(i.called_computations[0])
        else:
            order = Compare(
                direction="GT" if largest else "LT", comparison_type="TOTALORDER" if kind.is_floating else ""
            )
            arguments = [unknown(Shape(kind), f"argument {n}").residues for n in range(2)]
            comparator = hash_of(Prints(self.algebra.comparison(order, kind, *arguments)))
        numbers = np.broadcast_to(np.arange(x.shape[-1], dtype=np.uint64), x.shape)
        results = _sorted(comparator, True, axis, [x, Prints(numbers)], [kind, S32])
        k = i.shape.tuple_shapes[0].dimensions[-1]
        return tuple([each.moved(lambda array: array[..., :k]) for each in results])

    # -- combinations

    def _reduce(self, i: HloInstruction, operands: Sequence[Prints]) -> Any:
        half = len(operands) // 2
        front = sorted(i.operation.dimensions)  # type: ignore[attr-defined]
        free = [d for d in range(len(operands[0].shape)) if d not in front]
        sizes = [operands[0].shape[d] for d in free]
        terms = [x.moved(lambda a: a.transpose(*front, *free).reshape(-1, *sizes)) for x in operands[:half]]
        reducer = i.called_computations[0]
        operation = combining(reducer) if half == 1 else None
        if operation is not None:
            kind = i.shape.element_type
            result = combined(self.algebra, operation, kind, terms[0], operands[half])
            if result is not None:
                return self._shaped(i, result)
        words = (self.signature(reducer), *(o.shape.element_type.name for o in i.operands))
        return _single(in_order(salt_of("reduce", *words), terms, operands[half:], half))

    # -- control flow

    def _while(self, run: Run, init: Any) -> Any:
        i = run.instruction
        if self.runs_loops:
            state = init
            while True:
                again = cast("Any", run.call(1, state))
                if again.value is None:
                    break
                if not again.value:
                    return state
                state = run.call(0, state)
        if not i.shape.is_tuple or is_stateful(i) or any(map(_communicates, i.called_computations)):
            return self.function_of(i, [init])
        self._depth += 1
        state = last_state(i, init, self._depth, lambda state: (run.call(0, state), run.call(1, state)))
        self._depth -= 1
        return state

    def _conditional(self, run: Run, index: Any, *arguments: Any) -> Any:
        if index.value is not None:
            return run.instruction.operation.evaluate(run, index.value, *arguments)
        results = [run.call(n, argument) for n, argument in enumerate(arguments)]
        is_predicate = run.instruction.operands[0].shape.element_type.is_predicate

        def joined(*branches: Any) -> Any:
            if isinstance(branches[0], tuple):
                return tuple([joined(*parts) for parts in zip(*branches, strict=True)])
            if branches[0] is None:
                return None
            residues = [x.residues for x in branches]
            if not is_predicate:
                branch = np.broadcast_to(index.residues, residues[0].shape)
                return Prints(np.asarray(field.mix(salt_of("branch"), branch, *residues)))
            yes = field.multiply(index.residues, residues[0])
            no = field.multiply(field.subtract(field.ONE, index.residues), residues[1])
            same = residues[0] == residues[1]
            degree = product([index.degree, total([x.degree for x in branches])])
            elements = np.where(same, residues[0], field.add(yes, no))
            return Prints(np.asarray(elements), degree=degree)

        return joined(*results)

    # -- functions of which nothing is known

    def _factorized(self, i: HloInstruction, operation: Operation, operands: Sequence[Prints]) -> Any:
        """Return the result of a factorization or solve: over the reals that of exact numbers, rounded."""
        kind = i.shape.element_type
        if not (self.algebra.reals and kind.is_floating):
            return self.function_of(i, operands)
        exact = unknown(i.shape, str(salt_of(repr(operation), *map(hash_of, operands))))
        return exact if kind == F64 else Prints(field.mix(salt_of("round", kind.name), exact.residues))

    def function_of(self, i: HloInstruction, operands: Sequence[Any]) -> Any:
        """Return an instruction's result as an unknown function of all elements of its operands."""
        salt = salt_of(*self._words(i), *map(hash_of, operands))
        return unknown(i.shape, str(salt))

    def _words(self, i: HloInstruction) -> list[object]:
        words: list[object] = [repr(i.operation), *map(self.signature, i.called_computations)]
        constrained = (
            isinstance(i.operation, CustomCall) and i.operation.operand_layout_constraints is not None
        )
        reads_layout = i.operation.reads_layout and not constrained
        words += [o.shape.to_string(layout=reads_layout) for o in i.operands]
        words.append(i.shape.to_string(layout=i.operation.reads_layout))
        if i.operation.configured:
            words += [i.backend_config, sorted((i.frontend_attributes or {}).items())]
        if i.operation.distinct or (i.operation.family is Family.RANDOM and i.operation.side_effect):
            words.append(len(self.effects))
        return words

    def signature(self, computation: HloComputation) -> int:
        """Return the fingerprint of a computation as a function of its parameters."""
        if computation not in self._signatures:
            arguments = [unknown(p.shape, f"argument {n}") for n, p in enumerate(computation.parameters)]
            depth, self._depth = self._depth, 0
            self._signatures[computation] = hash_of(self.call(computation, arguments))
            self._depth = depth
        return self._signatures[computation]


class _Positions:
    """The context in which an operation is evaluated on positions: elements are 64-bit integers."""

    def __init__(self, i: HloInstruction) -> None:
        self.instruction = i
        self.shape = Shape(S64, i.shape.dimensions, i.shape.dynamic_dimensions)
        self.dtype = np.dtype(np.int64)


class _Overwriting(_Positions):
    """The context of a scatter on positions whose updates replace elements.

    Attributes:
        rounds: the number of updates of one element, if more than replaced elements are counted.
    """

    def __init__(self, i: HloInstruction) -> None:
        super().__init__(i)
        self.rounds = 0

    def map(self, index: int, old: Any, new: Any) -> Any:
        """Return the updates."""
        self.rounds += 1
        return new


def _moved(
    operands: Sequence[Prints], sources: Sequence[int], evaluate: Callable[[dict[int, Any]], Any]
) -> Prints:
    """Return the elements that a movement operation picks from some operands.

    Args:
        operands: all operands of the operation.
        sources: the numbers of the operands whose elements it moves.
        evaluate: the operation on positions, which number the elements of all sources from 1; elements at
            position 0 are zeros.
    """
    positions: dict[int, Any] = {}
    count = 1
    for n in sources:
        size = operands[n].residues.size
        positions[n] = np.arange(count, count + size, dtype=np.int64).reshape(operands[n].shape)
        count += size
    picked = np.asarray(evaluate(positions))
    if len(sources) == 1 and not (picked == 0).any():
        return operands[sources[0]].moved(lambda array: array.reshape(-1)[picked - 1])
    residues = [np.zeros(1, np.uint64), *(operands[n].residues.reshape(-1) for n in sources)]
    values = [operands[n].value for n in sources]
    value = None
    if all(v is not None for v in values):
        value = np.concatenate([np.zeros(1, values[0].dtype), *(v.reshape(-1) for v in values)])[picked]
    formats = {operands[n].format for n in sources}
    bag = None
    if any(operands[n].bag is not None for n in sources):
        bags = [Bag.single(operands[n]).parts for n in sources]
        none = np.zeros(1, np.uint64)
        bag = Bag(*(np.concatenate([none, *(p.reshape(-1) for p in part)])[picked] for part in zip(*bags)))
    return Prints(
        np.concatenate(residues)[picked], value, bag, format=formats.pop() if len(formats) == 1 else None
    )


def _bitcast(i: HloInstruction, positions: Any) -> Any:
    before, after = (
        Shape(S64, shape.dimensions, layout=shape.layout) for shape in (i.operands[0].shape, i.shape)
    )
    return Literal.from_bytes(after, Literal(positions, before).to_bytes()).array


def _sorted(
    comparator: int, is_stable: bool, axis: int, operands: Sequence[Prints], types: Sequence[ElementType]
) -> list[Prints]:
    """Return the results of a sort: random functions of the positions and of the unsorted lines."""
    lines = [np.moveaxis(x.residues, axis, 0) for x in operands]
    salt = salt_of("sort", comparator, is_stable, len(lines[0]), *(kind.name for kind in types))
    shape = lines[0].shape
    state = field.mix(salt, *(field.sequence(salt, line) for line in lines))
    steps = np.arange(shape[0], dtype=np.uint64).reshape(-1, *[1] * (len(shape) - 1))
    state, steps = (np.broadcast_to(each, shape) for each in (state, steps))
    return [Prints(np.moveaxis(field.mix(salt_of(n), state, steps), 0, axis)) for n in range(len(lines))]


def _keeps_width(i: HloInstruction) -> bool:
    """Return whether an instruction reads elements as elements of the same width, neither of them a pred."""
    before, after = (shape.element_type for shape in (i.operands[0].shape, i.shape))
    return before == after or (before.bits == after.bits and not (before.is_predicate or after.is_predicate))


def _communicates(computation: HloComputation) -> bool:
    """Return whether a computation, or one that it calls, exchanges values with other devices."""
    return any(
        (i.operation.family is Family.COLLECTIVE and i.operation.communicates)
        or any(map(_communicates, i.called_computations))
        for i in computation.instructions
    )


def is_stateful(i: HloInstruction) -> bool:
    """Return whether evaluations on equal operands may differ or have effects: random state, transfers."""
    is_id = i.operation.family is Family.COLLECTIVE and not i.operation.communicates
    state = i.operation.side_effect or i.operation.family is Family.TRANSFER or i.operation.distinct
    return (state and not is_id and not isinstance(i.operation, Parameter)) or any(
        is_stateful(inner) for c in i.called_computations for inner in c.instructions
    )


def _identity(run: Run, operand: Any) -> Any:
    return operand


def _single(results: list[Prints]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def device_count(module: HloModule) -> int:
    """Return the number of devices that run a program."""
    return module.config.replica_count * module.config.num_partitions
