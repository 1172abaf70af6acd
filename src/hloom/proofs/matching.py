"""Instructions of two programs that compute the same values, beside the verdict on the programs."""

from __future__ import annotations

from hloom.debug.cut import inlined
from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OriginalArray, OriginalValue
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Fusion
from hloom.operations.structure import Parameter
from hloom.proofs.verdict import ALGEBRAS, Fingerprinted, Relation, Verdict, decide
from hloom.records import dataclass


@dataclass(frozen=True)
class Matching:
    """Pairs of instructions of two programs that compute equal values.

    Instructions are identified by name. Those of loop bodies, branches and reducers are not compared. An
    instruction that is called several times matches if it matches in every call; a fusion matches if its root
    does.

    Attributes:
        verdict: the relation of the results.
        pairs: names of an instruction of the first and one of the second program; each instruction is paired
            with the first of the other program that computes its value.
        before, after: for each compared instruction of the first and of the second program, whether the other
            program computes its value.
    """

    verdict: Verdict
    pairs: tuple[tuple[str, str], ...]
    before: dict[str, bool]
    after: dict[str, bool]


def match(before: HloModule, after: HloModule, *, samples: int) -> Matching:
    """Judge two programs, and match their instructions by fingerprints.

    The verdict is `OPEN`, with the message, if an HloError prevents the comparison; then nothing is compared.
    """
    a, b = (Fingerprinted(_with_origins(module)) for module in (before, after))
    try:
        verdict = decide(a, b, samples=samples)
    except HloError as error:
        return Matching(Verdict(Relation.OPEN, reason=error.message), (), {}, {})
    equal: list[tuple[HloInstruction, HloInstruction]]
    compared: tuple[set[HloInstruction], set[HloInstruction]]
    if verdict.certain:
        orders = [list(inlined(each.module).entry.post_order()) for each in (a, b)]
        equal, compared = list(zip(*orders, strict=True)), (set(orders[0]), set(orders[1]))
    else:
        equal, compared = _equal(a, b)
    states = [
        _by_origin(module, instructions, {pair[side] for pair in equal})
        for side, (module, instructions) in enumerate(zip((before, after), compared, strict=True))
    ]
    pairs = tuple(dict.fromkeys((_origin(x), _origin(y)) for x, y in equal))
    return Matching(verdict, pairs, *states)


def _equal(
    a: Fingerprinted, b: Fingerprinted
) -> tuple[list[tuple[HloInstruction, HloInstruction]], tuple[set[HloInstruction], set[HloInstruction]]]:
    """Return the pairs of instructions with equal fingerprints by any algebra, and those that have any.

    Parameters are equal by number.
    """
    parameters = a.module.entry.parameters, b.module.entry.parameters
    equal = dict.fromkeys(zip(*parameters, strict=True))
    compared = set(parameters[0]), set(parameters[1])
    for algebra in ALGEBRAS:
        for runs_loops in (False, True) if a.has_loop or b.has_loop else (True,):
            x, y = (each.fingerprint(algebra, runs_loops) for each in (a, b))
            if isinstance(x, str) or isinstance(y, str):
                continue
            first: dict[int, HloInstruction] = {}
            for i, value in y.instructions.items():
                first.setdefault(value, i)
            values = set(x.instructions.values())
            by_value = {value: i for i, value in reversed(x.instructions.items())}
            equal |= {(i, first[value]): None for i, value in x.instructions.items() if value in first}
            equal |= {(by_value[value], i): None for i, value in y.instructions.items() if value in values}
            compared[0].update(x.instructions)
            compared[1].update(y.instructions)
            if x.results == y.results:
                return list(equal), compared
    return list(equal), compared


def _with_origins(module: HloModule) -> HloModule:
    """Return a copy whose instructions have their names as original values, which survive inlining."""
    copy = module.clone()
    for i in copy.instructions():
        i.original_value = OriginalValue((((), OriginalArray(i.name)),))
    return copy


def _origin(i: HloInstruction) -> str:
    assert i.original_value is not None and i.original_value.arrays[0][1] is not None
    return i.original_value.arrays[0][1].instruction


def _by_origin(
    module: HloModule, compared: set[HloInstruction], matched: set[HloInstruction]
) -> dict[str, bool]:
    """Return whether the copies of each compared instruction are matched; a fusion has its root's state."""
    states: dict[str, bool] = {}
    for i in compared:
        name = _origin(i)
        states[name] = states.get(name, True) and i in matched
    for computation in module.post_order():
        for i in computation.instructions:
            root = i.called_computations[0].root if isinstance(i.operation, Fusion) else None
            if root is not None and not isinstance(root.operation, Parameter) and root.name in states:
                states.setdefault(i.name, states[root.name])
    return states
