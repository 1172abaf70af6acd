"""Explanations: the decisions of the partitioner in words, with the axes of the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloom.analysis.origin import line_of, op_name
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.sharding.planning.decisions import Cause, Cut, Decided, Decision
from hloom.sharding.reading.meshes import cut_text, tiling_text
from hloom.sharding.tiling.coordinates import Column, are_independent
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Why:
    """Why a collective is needed.

    Attributes:
        kind: "operand" of an operation, "reduction", "halo", "annotation", "result" of the program, "loop",
            "branches", "region", "device"; "program" for a collective that the program itself states.
        instruction, opcode, op_name, source: the instruction that needs it; "" for the program's result.
        value: the array that is resharded; "" for reductions and halos.
        before, after: its tiles, such as ``[data, -]``: dimension 0 is cut over the axis data.
        reason: a sentence.
        origins: where the cuts come from, such as ``data of %x: its annotation``.
        bytes: what a device sends for the whole instruction by the model that chose this; -1 if nothing was
            chosen.
        other_bytes: the same of the next cheapest way; -1 if there is none.
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
    """An instruction whose operands or result want cuts that exclude each other.

    Attributes:
        instruction, op_name, source: the instruction.
        kept, lost: the cuts, such as ``%x: contracting dimension over data``.
        bytes, other_bytes: as in `Why`; the cheaper way is taken.
    """

    instruction: str
    op_name: str
    source: str
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    bytes: int
    other_bytes: int


class Explainer:
    """Puts decisions into words.

    Args:
        module: the partitioned program, whose tables have the source lines.
        axes: the axes of the mesh, major first; without them cuts are written in HLO's notation.
    """

    def __init__(self, module: HloModule, axes: Mapping[str, int]) -> None:
        self.module = module
        self.axes = axes

    # -- collectives

    def why(self, cause: Cause | None) -> Why:
        """Return why a collective was written; without a cause it stands in the program."""
        if cause is None:
            return Why("program", reason="the program itself states it")
        purpose, by = cause.purpose, cause.purpose.by
        value = cause.value if isinstance(cause.value, Decision) else None
        choice = by.choice if by is not None else None
        name, line = self._place(by)
        return Why(
            purpose.kind,
            by.instruction.name if by is not None else "",
            by.instruction.opcode if by is not None else "",
            name,
            line,
            value.instruction.name if value is not None else "",
            self._tiling(cause.have),
            self._tiling(cause.want),
            self._reason(cause),
            tuple(dict.fromkeys(self._origins(cause))),
            round(choice.bytes) if choice is not None else -1,
            round(choice.other[1]) if choice is not None and choice.other is not None else -1,
        )

    def _reason(self, cause: Cause) -> str:
        by = cause.purpose.by
        before, after = self._tiling(cause.have), self._tiling(cause.want)
        match cause.purpose.kind:
            case "operand" if by is not None:
                return self._of_operand(by, cause)
            case "reduction" if by is not None:
                reduced = [cut for cut in _cuts(by) if cut[0].result is None]
                words = ", ".join(self._cut_from(by, cut) for cut in reduced)
                return f"devices hold partial results: {words}"
            case "halo" if by is not None:
                found = [cut for cut in _cuts(by) if cut[0].kind != "plain"]
                words = ", ".join(self._cut_from(by, cut) for cut in found)
                return f"{by.instruction.opcode} reads elements of other tiles: {words}"
            case "annotation" if by is not None:
                return f"the program states {after} for %{by.instruction.name}; it is computed as {before}"
            case "loop":
                return f"a loop carries {after}; its initial value or its body gives {before}"
            case "branches":
                return f"a conditional gives {after}, one of its branches {before}; its selector is whole"
            case "region":
                return f"at the border of a manual region the program states {after}; the value is {before}"
            case "device":
                return "one device makes the call, on whole operands, and sends the result to the others"
            case _:
                return f"the program states {after} for its result; it is computed as {before}"

    def _of_operand(self, by: Decision, cause: Cause) -> str:
        """Return why an operation needs other tiles of an operand."""
        have, want = cause.have, cause.want
        number, opcode = cause.purpose.operand, by.instruction.opcode
        if have is None or want is None:
            return ""
        words: list[str] = []
        if have.summands is not None:
            words.append("summands are added first")
        for d in range(len(have.tiles)):
            if have.same_cut(d, want, d):
                continue
            factor = next((f for f in by.factors if f.operands.get(number) == d), None)
            taken = next((cut for cut in _cuts(by) if cut[0] is factor), None)
            if taken is not None:
                words.append(self._cut_from(by, taken))
            elif factor is None:
                words.append(f"{opcode} needs dimension {d} whole")
            else:
                words.append(self._not_kept(by, factor, have.column(d)))
        return "; ".join(words)

    def _not_kept(self, by: Decision, factor: Factor, column: Column) -> str:
        """Return why the cut of an operand is not the one of the factor."""
        over = cut_text(column, self.axes)
        for cut in _cuts(by):
            if not are_independent([cut[1].column(0), column]):
                return f"{over} is taken: {self._cut_from(by, cut)}"
        if factor.kind != "plain":
            return f"{_dimension(by, factor)} of kind {factor.kind} is not cut over {over}"
        return f"{_dimension(by, factor)} is not cut over {over} in the cheapest way"

    # -- cuts

    def _cut_from(self, by: Decision, cut: Cut) -> str:
        """Return a factor's cut and the operand that has it already."""
        factor, tiling = cut
        words = f"{_dimension(by, factor)} is cut over {cut_text(tiling.column(0), self.axes)}"
        number = _having(by, factor, tiling)
        if number is not None:
            return f"{words} as in %{_name(by.operands[number])}"
        return f"{words} as its result is wanted" if _is_wanted(by, factor, tiling) else words

    def _tiling(self, tiling: Tiling | None) -> str:
        return "" if tiling is None else tiling_text(tiling, self.axes)

    def _origins(self, cause: Cause) -> Iterator[str]:
        """Return where the cuts of the value before and after come from."""
        by, value = cause.purpose.by, cause.value
        if isinstance(value, Decision) and cause.have is not None:
            for d in range(len(cause.have.tiles)):
                if cause.have.cuts(d):
                    yield from self._origin(value, d, cause.have.column(d))
        if by is None:
            return
        for factor, tiling in _cuts(by):
            number = _having(by, factor, tiling)
            operand = by.operands[number] if number is not None else None
            if number is not None and isinstance(operand, Decision):
                yield from self._origin(operand, factor.operands[number], tiling.column(0))
            elif factor.result is not None and _is_wanted(by, factor, tiling):
                yield from self._origin_of_hint(by, factor.result, tiling.column(0))
        if cause.purpose.kind == "reduction" and by.target is not None:
            made = {factor.result for factor, _ in _cuts(by)}
            for d in range(len(by.target.tiles)):
                if by.target.cuts(d) and d not in made:  # each device gets a part of the sum
                    yield from self._origin_of_hint(by, d, by.target.column(d))

    def _origin(self, decision: Decision, d: int, column: Column) -> Iterator[str]:
        """Follow a cut from operand to operand, up to the annotation that states it."""
        over = cut_text(column, self.axes)
        passed = 0
        while not decision.is_stated:
            cut = next((cut for cut in _cuts(decision) if cut[0].result == d), None)
            if cut is None:
                if decision.steps is not None and decision.steps.reach(decision.instruction, d):
                    yield from self._origin_of_hint(decision, d, column)
                return
            factor, tiling = cut
            number = _having(decision, factor, tiling)
            operand = decision.operands[number] if number is not None else None
            if number is None or not isinstance(operand, Decision):
                if _is_wanted(decision, factor, tiling):
                    yield from self._origin_of_hint(decision, d, column)
                return
            decision, d = operand, factor.operands[number]
            passed += 1
        through = f", forward through {passed} operations" if passed else ""
        yield f"{over}: the annotation of %{decision.instruction.name}{through}"

    def _origin_of_hint(self, decision: Decision, d: int, column: Column) -> Iterator[str]:
        """Follow the steps of propagation, up to the annotation where they begin."""
        over = cut_text(column, self.axes)
        if decision.is_stated:
            yield f"{over}: the annotation of %{decision.instruction.name}"
            return
        source, steps = decision.instruction, ()
        if decision.steps is not None:
            source, steps = decision.steps.back(decision.instruction, d)
        how = "elementwise operations" if all(step.is_elementwise for step in steps) else "operations"
        yield f"{over}: the annotation of %{source.name}, propagated through {len(steps)} {how}"

    def _place(self, decision: Decision | None) -> tuple[str, str]:
        if decision is None:
            return "", ""
        i = decision.instruction
        return op_name(i), line_of(i.metadata, self.module)

    # -- conflicts

    def conflicts(self, decided: Mapping[HloInstruction, Decided]) -> Iterator[Conflict]:
        """Return the conflicts of a program, in its order."""
        for decision in dict.fromkeys(d for d in decided.values() if isinstance(d, Decision)):
            if decision.choice is None:
                continue
            lost = [words for words, is_kept in self._wishes(decision) if not is_kept]
            if lost:
                kept = [words for words, is_kept in self._wishes(decision) if is_kept]
                other = decision.choice.other
                yield Conflict(
                    decision.instruction.name,
                    *self._place(decision),
                    tuple(dict.fromkeys(kept)),
                    tuple(dict.fromkeys(lost)),
                    round(decision.choice.bytes),
                    round(other[1]) if other is not None else -1,
                )

    def _wishes(self, by: Decision) -> Iterator[tuple[str, bool]]:
        """Return the cuts of operands and of the wanted result, and whether they are kept.

        Cuts that are dropped though nothing excludes them are left out.
        """
        cuts = _cuts(by)
        for factor in by.factors:
            places = [(_name(by.operands[n]), by.have[n], d) for n, d in factor.operands.items()]
            if factor.result is not None:
                places.append((by.instruction.name, by.target, factor.result))
            for name, tiling, d in places:
                if tiling is None or not tiling.cuts(d):
                    continue
                column = tiling.column(d)
                words = f"%{name}: {_dimension(by, factor)} over {cut_text(column, self.axes)}"
                if any(f is factor and t.column(0) == column for f, t in cuts):
                    yield words, True
                elif any(not are_independent([t.column(0), column]) or f is factor for f, t in cuts):
                    yield words, False


def _cuts(decision: Decision) -> Sequence[Cut]:
    return decision.choice.cuts if decision.choice is not None else ()


def _having(decision: Decision, factor: Factor, tiling: Tiling) -> int | None:
    """Return the operand that has the cut of a factor before it is made to fit."""
    for number, d in factor.operands.items():
        have = decision.have[number]
        if have is not None and d < len(have.tiles) and have.same_cut(d, tiling, 0):
            return number
    return None


def _is_wanted(decision: Decision, factor: Factor, tiling: Tiling) -> bool:
    """Return true if the wanted result has the cut of a factor."""
    d, target = factor.result, decision.target
    return d is not None and target is not None and d < len(target.tiles) and target.same_cut(d, tiling, 0)


def _dimension(decision: Decision, factor: Factor) -> str:
    """Return the name of a factor."""
    if factor.result is not None:
        return f"dimension {factor.result} of %{decision.instruction.name}"
    kind = "contracting" if decision.instruction.operation.family is Family.CONTRACTION else "reduced"
    return f"the {kind} dimension of %{decision.instruction.name}"


def _name(decided: Decided | None) -> str:
    return decided.instruction.name if isinstance(decided, Decision) else "?"
