"""Explanations of the partitioner's decisions in words, in terms of mesh axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloom.analysis.origin import line_of, op_name
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.records import dataclass
from hloom.sharding.planning.decisions import Cause, Decision, Decisions, FactorAssignment
from hloom.sharding.reading.meshes import coordinate_text, tiling_text
from hloom.sharding.tiling.coordinates import Coordinate, are_independent
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Why:
    """The reason for a collective of a partitioned program, as text.

    Attributes:
        kind: what needs the collective: "operand" (an operation, of its operand), "reduction" (of partial
            results), "halo" (an operation that reads beyond its tile), "annotation", "result" (of the
            program), "loop", "branches" (of a conditional), "region" (a manual region), "device" (a call on
            one device), or "program" if the program itself contains the collective.
        instruction, opcode, op_name, source: the instruction that needs the collective: its name, opcode,
            framework operation and source line; "" for the program's result.
        value: the name of the resharded array; "" for reductions and halos.
        before, after: the tilings of the array before and after; ``[data, -]`` shards dimension 0 over the
            axis data.
        reason: the reason as a sentence.
        origins: the annotations that the shardings come from, such as ``data: the annotation of %x``.
        bytes: the bytes that a device sends for the instruction, by the cost model; -1 if the sharding of the
            instruction was not chosen by cost.
        other_bytes: the bytes of the second cheapest sharding of the instruction; -1 if there is none.
    """

    kind: str
    instruction: str = ""
    opcode: str = ""
    op_name: str = ""
    source: str = ""
    value: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    origins: tuple[str, ...] = ()
    bytes: int = -1
    other_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """An instruction whose operands and wanted result have shardings that its operation cannot use together.

    Attributes:
        instruction, op_name, source: the name, the framework's operation and the source line.
        kept, lost: the shardings of operands and result that the chosen sharding of the operation uses, and
            those that it excludes, such as ``%x: dimension 0 of %y over data``.
        bytes, other_bytes: the bytes that a device sends for the instruction with the chosen sharding, and
            with the second cheapest, by the cost model; -1 if unknown.
    """

    instruction: str
    op_name: str
    source: str
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    bytes: int
    other_bytes: int


class Explainer:
    """Writes texts that explain why the partitioner emitted collectives, and which shardings conflict.

    Attributes:
        module: the partitioned program, with the tables of source lines.
        axes: the sizes of the mesh axes by name, major first; if empty, tilings are written in HLO's
            notation.
    """

    def __init__(self, module: HloModule, axes: Mapping[str, int]) -> None:
        self.module = module
        self.axes = axes

    # -- collectives

    def why(self, cause: Cause | None) -> Why:
        """Return the reason for a collective, as text, from the cause that the partitioner recorded.

        Pass None for a collective that the program itself contained before partitioning.
        """
        if cause is None:
            return Why("program", reason="the program itself states it")
        purpose, by = cause.purpose, cause.purpose.by
        value = cause.value if isinstance(cause.value, Decision) else None
        assignment = by.assignment if by is not None else None
        name, line = self._location(by)
        return Why(
            purpose.kind,
            by.instruction.name if by is not None else "",
            by.instruction.opcode if by is not None else "",
            name,
            line,
            value.instruction.name if value is not None else "",
            self._tiling(cause.before),
            self._tiling(cause.after),
            self._reason(cause),
            tuple(dict.fromkeys(self._origins(cause))),
            round(assignment.bytes) if assignment is not None else -1,
            _runner_up_bytes(assignment),
        )

    def _reason(self, cause: Cause) -> str:
        by = cause.purpose.by
        before, after = self._tiling(cause.before), self._tiling(cause.after)
        match cause.purpose.kind:
            case "operand" if by is not None:
                return self._of_operand(by, cause)
            case "reduction" if by is not None:
                reduced = [sharded for sharded in by.sharded if sharded[0].result is None]
                words = ", ".join(self._factor_text(by, *sharded) for sharded in reduced)
                return f"devices hold partial results: {words}"
            case "halo" if by is not None:
                halos = [sharded for sharded in by.sharded if sharded[0].kind != "plain"]
                words = ", ".join(self._factor_text(by, *sharded) for sharded in halos)
                return f"{by.instruction.opcode} reads elements of other tiles: {words}"
            case "annotation" if by is not None:
                return f"the program states {after} for %{by.instruction.name}; it is computed as {before}"
            case "loop":
                return f"a loop carries {after}; its initial value or its body gives {before}"
            case "branches":
                return (
                    f"a conditional gives {after}, one of its branches {before}; its selector is replicated"
                )
            case "region":
                return f"at the border of a manual region the program states {after}; the value is {before}"
            case "device":
                return "one device makes the call, on full operands, and broadcasts the result"
            case _:
                return f"the program states {after} for its result; it is computed as {before}"

    def _of_operand(self, by: Decision, cause: Cause) -> str:
        """Return a text that explains why an operation needs its operand resharded.

        It is about the dimensions whose sharding differs between ``cause.before`` and ``cause.after``. ``by``
        is the partitioner's record of how the operation is sharded.
        """
        before, after = cause.before, cause.after
        number, opcode = cause.purpose.operand, by.instruction.opcode
        if before is None or after is None:
            return ""
        words: list[str] = []
        if before.unreduced is not None:
            words.append("partial sums are reduced first")
        for d in range(len(before.tiles)):
            if before.is_sharded_like(d, after, d):
                continue
            factor = next((f for f in by.factors if f.operands.get(number) == d), None)
            sharded = next((sharded for sharded in by.sharded if sharded[0] is factor), None)
            if sharded is not None:
                words.append(self._factor_text(by, *sharded))
            elif factor is None:
                words.append(f"{opcode} needs dimension {d} replicated")
            else:
                words.append(self._conflict_text(by, factor, before.coordinates[d]))
        return "; ".join(words)

    def _conflict_text(self, by: Decision, factor: Factor, coordinate: Coordinate) -> str:
        """Return a text that explains why an operation does not keep the sharding of an operand's dimension.

        Args:
            by: the partitioner's record of how the operation is sharded.
            factor: the index of the operation, such as its contracting dimension, that ranges over the
                dimension.
            coordinate: the tile index of each device along the dimension.
        """
        over = coordinate_text(coordinate, self.axes)
        for sharded, tiling in by.sharded:
            if not are_independent([tiling.coordinates[0], coordinate]):
                return f"{over} is used already: {self._factor_text(by, sharded, tiling)}"
        if factor.kind != "plain":
            return f"{_dimension(by, factor)} of kind {factor.kind} is not sharded over {over}"
        return f"{_dimension(by, factor)} is not sharded over {over} in the cheapest assignment"

    # -- shardings

    def _factor_text(self, by: Decision, factor: Factor, tiling: Tiling) -> str:
        """Return a text such as ``dimension 0 of %y is sharded over data like %x``.

        It states over which mesh axes an index of an operation (``factor``) is sharded, and names an operand,
        or else the wanted result, with the same sharding, if there is one. ``by`` is the partitioner's record
        of how the operation is sharded, ``tiling`` the tiling of the factor, of rank 1.
        """
        over = coordinate_text(tiling.coordinates[0], self.axes)
        words = f"{_dimension(by, factor)} is sharded over {over}"
        number = _operand_with(by, factor, tiling)
        if number is not None:
            return f"{words} like %{_name(by.operands[number])}"
        return f"{words} like its target" if _target_has(by, factor, tiling) else words

    def _tiling(self, tiling: Tiling | None) -> str:
        return "" if tiling is None else tiling_text(tiling, self.axes)

    def _origins(self, cause: Cause) -> Iterator[str]:
        """Yield texts that name the annotations from which the tilings before and after a collective come.

        ``cause`` is what the partitioner recorded as the cause of the collective.
        """
        by, value = cause.purpose.by, cause.value
        if isinstance(value, Decision) and cause.before is not None:
            for d in range(len(cause.before.tiles)):
                if cause.before.is_sharded(d):
                    yield from self._origin(value, d, cause.before.coordinates[d])
        if by is None:
            return
        for factor, tiling in by.sharded:
            number = _operand_with(by, factor, tiling)
            operand = by.operands[number] if number is not None else None
            if number is not None and isinstance(operand, Decision):
                yield from self._origin(operand, factor.operands[number], tiling.coordinates[0])
            elif factor.result is not None and _target_has(by, factor, tiling):
                yield from self._propagated_origin(by, factor.result, tiling.coordinates[0])
        if cause.purpose.kind == "reduction" and by.target is not None:
            computed = {factor.result for factor, _ in by.sharded}
            for d in range(len(by.target.tiles)):
                if by.target.is_sharded(d) and d not in computed:  # scattered by the reduction
                    yield from self._propagated_origin(by, d, by.target.coordinates[d])

    def _origin(self, decision: Decision, d: int, coordinate: Coordinate) -> Iterator[str]:
        """Yield a text that names the annotation from which dimension ``d`` of a value got its sharding.

        The search goes from the value to the operand with the same sharding, from that to its operand, and so
        on. ``decision`` is the partitioner's record of how the value is sharded, ``coordinate`` the tile
        index of each device along the dimension. Yields nothing if no annotation is found.
        """
        over = coordinate_text(coordinate, self.axes)
        passed = 0
        while not decision.is_annotated:
            sharded = next((sharded for sharded in decision.sharded if sharded[0].result == d), None)
            if sharded is None:
                if decision.trace is not None and decision.trace.is_propagated(decision.instruction, d):
                    yield from self._propagated_origin(decision, d, coordinate)
                return
            factor, tiling = sharded
            number = _operand_with(decision, factor, tiling)
            operand = decision.operands[number] if number is not None else None
            if number is None or not isinstance(operand, Decision):
                if _target_has(decision, factor, tiling):
                    yield from self._propagated_origin(decision, d, coordinate)
                return
            decision, d = operand, factor.operands[number]
            passed += 1
        through = f", forward through {passed} operations" if passed else ""
        yield f"{over}: the annotation of %{decision.instruction.name}{through}"

    def _propagated_origin(self, decision: Decision, d: int, coordinate: Coordinate) -> Iterator[str]:
        """Yield a text that names the annotation from which propagation sharded dimension ``d`` of a value.

        ``decision`` is the partitioner's record of how the value is sharded, ``coordinate`` the tile index of
        each device along the dimension.
        """
        over = coordinate_text(coordinate, self.axes)
        if decision.is_annotated:
            yield f"{over}: the annotation of %{decision.instruction.name}"
            return
        source, steps = decision.instruction, ()
        if decision.trace is not None:
            source, steps = decision.trace.source(decision.instruction, d)
        how = "elementwise operations" if all(step.is_elementwise for step in steps) else "operations"
        yield f"{over}: the annotation of %{source.name}, propagated through {len(steps)} {how}"

    def _location(self, decision: Decision | None) -> tuple[str, str]:
        if decision is None:
            return "", ""
        i = decision.instruction
        return op_name(i), line_of(i.metadata, self.module)

    # -- conflicts

    def conflicts(self, decisions: Mapping[HloInstruction, Decisions]) -> Iterator[Conflict]:
        """Yield a `Conflict` for each operation that cannot use the shardings of all its operands and result.

        ``decisions`` has, for each instruction in program order, how its value is sharded and why.
        """
        for decision in dict.fromkeys(d for d in decisions.values() if isinstance(d, Decision)):
            if decision.assignment is None:
                continue
            shardings = list(self._proposed(decision))
            if all(used for _, used in shardings):
                continue
            yield Conflict(
                decision.instruction.name,
                *self._location(decision),
                tuple(dict.fromkeys(words for words, used in shardings if used)),
                tuple(dict.fromkeys(words for words, used in shardings if not used)),
                round(decision.assignment.bytes),
                _runner_up_bytes(decision.assignment),
            )

    def _proposed(self, by: Decision) -> Iterator[tuple[str, bool]]:
        """Yield (text, is used) for each sharded dimension of an operation's operands and wanted result.

        "Is used" is true if the chosen sharding of the operation uses that of the dimension, and false if the
        two exclude each other. Dimensions with neither are left out. ``by`` is the partitioner's record of
        how the operation is sharded.
        """
        for factor in by.factors:
            arrays = [(_name(by.operands[n]), by.operand_tilings[n], d) for n, d in factor.operands.items()]
            if factor.result is not None:
                arrays.append((by.instruction.name, by.target, factor.result))
            for name, tiling, d in arrays:
                if tiling is None or not tiling.is_sharded(d):
                    continue
                coordinate = tiling.coordinates[d]
                words = f"%{name}: {_dimension(by, factor)} over {coordinate_text(coordinate, self.axes)}"
                if any(f is factor and t.coordinates[0] == coordinate for f, t in by.sharded):
                    yield words, True
                elif any(
                    not are_independent([t.coordinates[0], coordinate]) or f is factor for f, t in by.sharded
                ):
                    yield words, False


def _runner_up_bytes(assignment: FactorAssignment | None) -> int:
    """Return the bytes, rounded, that a device sends with the second cheapest sharding of an operation.

    Returns -1 if there is no second sharding, or if ``assignment`` is None.
    """
    if assignment is None or assignment.runner_up is None:
        return -1
    return round(assignment.runner_up[1])


def _operand_with(decision: Decision, factor: Factor, tiling: Tiling) -> int | None:
    """Return the index of an operand whose tiling before resharding shards ``factor`` by ``tiling``.

    Returns None if there is no such operand. ``tiling`` is of rank 1; ``factor`` is an index of the operation
    whose sharding ``decision`` records.
    """
    for number, d in factor.operands.items():
        current = decision.operand_tilings[number]
        if current is not None and d < len(current.tiles) and current.is_sharded_like(d, tiling, 0):
            return number
    return None


def _target_has(decision: Decision, factor: Factor, tiling: Tiling) -> bool:
    """Return true if the result's annotated or propagated tiling shards ``factor`` by ``tiling``.

    ``tiling`` is of rank 1; ``factor`` is an index of the operation whose sharding ``decision`` records, such
    as a dimension of its result.
    """
    d, target = factor.result, decision.target
    return (
        d is not None
        and target is not None
        and d < len(target.tiles)
        and target.is_sharded_like(d, tiling, 0)
    )


def _dimension(decision: Decision, factor: Factor) -> str:
    """Return a text for a factor, such as ``dimension 0 of %x`` or ``the contracting dimension of %x``.

    A factor is an index of the operation whose sharding ``decision`` records, the instruction ``%x``.
    """
    if factor.result is not None:
        return f"dimension {factor.result} of %{decision.instruction.name}"
    kind = "contracting" if decision.instruction.operation.family is Family.CONTRACTION else "reduced"
    return f"the {kind} dimension of %{decision.instruction.name}"


def _name(decisions: Decisions | None) -> str:
    return decisions.instruction.name if isinstance(decisions, Decision) else "?"
