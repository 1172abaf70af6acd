"""Evaluation of the programs of all devices on fingerprints: collectives exchange and combine these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, cast

import numpy as np

from hloom.devices.world import World
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation, Run
from hloom.ir.traits import Family
from hloom.operations.collectives import AllGather, AllReduce, ReduceScatter, waiting
from hloom.operations.custom_call import is_identity
from hloom.operations.device_ids import PartitionId, ReplicaId
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.rooted_collectives import CollectiveBroadcast
from hloom.proofs.algebra import Algebra
from hloom.proofs.degrees import Degree, largest
from hloom.proofs.prints import Prints
from hloom.proofs.programs import FingerprintEvaluator, device_count, is_stateful
from hloom.proofs.sums import TooLarge
from hloom.proofs.values import mapped

_LARGEST_DEGREE: Final = 1 << 61


class DeviceEvaluator(FingerprintEvaluator):
    """The evaluator of one device's program on fingerprints.

    Custom calls that are identities return their operand. Loops run if their conditions are known numbers.
    """

    def __init__(self, algebra: Algebra, device: Any = None) -> None:
        super().__init__(algebra, runs_loops=True)
        if device is not None:
            self.alone, self.device = None, device
            self._numbers = Evaluator(device)

    def signature(self, computation: HloComputation) -> int:
        """Return the fingerprint of a computation as a function. Raises TooLarge if it has collectives."""
        _require_local(computation)
        return super().signature(computation)

    def _function(self, i: HloInstruction) -> Callable[..., Any]:
        match i.operation:
            case PartitionId() | ReplicaId():
                return self._device_number
            case AllReduce() | ReduceScatter():
                return self._combined
            case AllGather() | AllToAll():
                return self._exchanged
            case CollectivePermute(slice_sizes=()) | CollectiveBroadcast(has_dynamic_root=False):
                return self._exchanged
            case operation if _communicates(operation):
                raise TooLarge(f"{i.opcode} has no rule")
            case _ if is_identity(i) and len(i.operands) == 1:
                return _identity
            case _:
                return super()._function(i)

    def _device_number(self, run: Run) -> Prints:
        return self.algebra.known(run.instruction.operation.evaluate(run))

    def _conditional(self, run: Run, index: Any, *arguments: Any) -> Any:
        if index.value is None:
            for computation in run.instruction.called_computations:
                _require_local(computation)
        return super()._conditional(run, index, *arguments)

    def _with_degree(self, i: HloInstruction, value: Any, operands: Sequence[Any]) -> Any:
        if not _communicates(i.operation) and not is_identity(i):
            return super()._with_degree(i, value, operands)
        self.evaluations: int = self.evaluations + 1
        mapped(value, self._record)
        return value

    def _record(self, x: Prints) -> None:
        self.degree: int = max(self.degree, x.degree.degree)

    def _exchanged(self, run: Run, *operands: Prints) -> Any:
        """Return the result of a collective that moves elements between devices.

        The degrees of the operands are moved by the same collective, as numbers.
        """
        operation = cast("Any", run.instruction.operation)
        codes = [2 * min(x.degree.degree, _LARGEST_DEGREE) + x.degree.is_fraction for x in operands]
        arrays = [np.full(x.shape, code, np.uint64) for x, code in zip(operands, codes, strict=True)]
        sources = operation.evaluate(run, *arrays)
        numbers: set[int] = set()
        mapped(sources, lambda array: numbers.update(np.unique(array).tolist()))
        degrees = [Degree(max(1, n // 2), bool(n % 2)) for n in numbers]
        degree = largest(degrees)
        residues = operation.evaluate(run, *[x.residues for x in operands])
        return mapped(residues, lambda array: Prints(array, degree=degree))

    def _combined(self, run: Run, *operands: Prints) -> Any:
        """Return the result of an all-reduce or reduce-scatter.

        The reducer combines the operands of the replica group's members in the order of the group. Raises
        TooLarge for a reducer that is not elementwise.
        """
        i = run.instruction
        operation = i.operation
        assert isinstance(operation, AllReduce | ReduceScatter)
        reducer = i.called_computations[0]
        kind = reducer.root.shape.element_type
        if not self.mappable(reducer) or any(o.shape.element_type != kind for o in i.operands):
            raise TooLarge(f"the reducer of {i.opcode} has no rule")
        members = operation.members(run)
        meeting = ("fingerprints", operation.kind, operation.channel_id, members)
        values: Any = run.device.exchange(meeting, members, cast("Any", operands), waiting(run)).wait()

        def combine(a: Prints, b: Prints) -> Prints:
            return cast("Prints", self.call(reducer, cast("Any", (a, b))))

        results = [reduce(combine, column) for column in zip(*values, strict=True)]
        if isinstance(operation, ReduceScatter):
            (axis,) = operation.scatter_dimensions
            position = members.index(run.device.id)
            results = [x.moved(lambda a: np.split(a, len(members), axis)[position]) for x in results]
        return results[0] if len(results) == 1 else tuple(results)


def results_of_devices(
    module: HloModule, algebra: Algebra, arguments: Sequence[Sequence[Any]]
) -> tuple[list[Any], int]:
    """Run the program of every device on the fingerprints of its arguments.

    Returns the fingerprints of the result of each device, and a number that bounds the probability of a wrong
    proof: the number of instructions evaluated plus the largest degree. Raises TooLarge for programs that
    have state, side effects, or collectives without a rule.
    """
    for i in module.instructions():
        if not _communicates(i.operation) and is_stateful(i):
            raise TooLarge(f"{i.opcode} has state or effects")
    world = World(module.config.replica_count, module.config.num_partitions)
    evaluators = [DeviceEvaluator(algebra, device) for device in world.devices]
    by_id = {e.device.id: (e, a) for e, a in zip(evaluators, arguments, strict=True)}

    def work(device: Any) -> Any:
        evaluator, values = by_id[device.id]
        return evaluator.run(module.entry, values)

    results = world.run(work)
    assert len(results) == device_count(module)
    return results, sum(e.evaluations for e in evaluators) + max(e.degree for e in evaluators)


def _identity(run: Run, x: Any) -> Any:
    return x


def _communicates(operation: Operation) -> bool:
    return operation.family is Family.COLLECTIVE and operation.communicates


def _require_local(computation: HloComputation) -> None:
    """Raise TooLarge if a computation has a collective: it is evaluated without the other devices."""
    for i in computation.instructions:
        if i.operation.family is Family.COLLECTIVE:
            raise TooLarge(f"%{i.name} is in a loop or branch of unknown length")
        for inner in i.called_computations:
            _require_local(inner)
