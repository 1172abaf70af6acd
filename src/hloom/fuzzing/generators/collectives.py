"""Generators of operations on four replicas: collectives in various replica groups, replica ids.

XLA:CPU has no collective-broadcast.
"""

from __future__ import annotations

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Draw
from hloom.fuzzing.generators.opcodes import reducers
from hloom.operations.arithmetic import Add
from hloom.records import dataclass

REPLICAS = 4
GROUPS = ("{}", "{{0,1,2,3}}", "{{0,1},{2,3}}", "{{3,1},{0,2}}", "{{0},{1},{2},{3}}", "{{2,0,3,1}}")
TYPES = ("s32", "f32", "u8", "f64", "s64", "f16", "bf16", "c64", "u32")


def group_size(groups: str) -> int:
    """Return the number of replicas in the first of the replica groups."""
    return REPLICAS if groups == "{}" else len(groups[2:].split("}")[0].split(","))


@dataclass(frozen=True)
class Operand:
    """The operand of a collective, with the replica groups.

    Attributes:
        name: the name in the text.
        element_type: the element type.
        sizes: the dimensions.
        axis: the dimension that the collective splits or concatenates.
        groups: the replica groups, in text.
        count: the number of replicas in a group.
    """

    name: str
    element_type: str
    sizes: list[int]
    axis: int
    groups: str
    count: int

    def resized(self, size: int) -> str:
        """Return the shape, in text, with another size of the dimension `axis`."""
        sizes = [size if d == self.axis else each for d, each in enumerate(self.sizes)]
        return shape_of(self.element_type, sizes)

    @property
    def shape(self) -> str:
        """The shape, in text."""
        return self.resized(self.sizes[self.axis])


def all_reduce(body: CaseBody, x: Operand) -> str:
    function = body.binary(x.element_type, body.draw.one(reducers(x.element_type)))
    return f"{x.shape} all-reduce({x.name}), replica_groups={x.groups}, to_apply={function}"


def all_gather(body: CaseBody, x: Operand) -> str:
    shape = x.resized(x.sizes[x.axis] * x.count)
    return f"{shape} all-gather({x.name}), replica_groups={x.groups}, dimensions={{{x.axis}}}"


def reduce_scatter(body: CaseBody, x: Operand) -> str:
    shape, function = x.resized(x.sizes[x.axis] // x.count), body.binary(x.element_type, Add.opcode)
    attributes = f"replica_groups={x.groups}, dimensions={{{x.axis}}}, to_apply={function}"
    return f"{shape} reduce-scatter({x.name}), {attributes}"


def all_to_all(body: CaseBody, x: Operand) -> str:
    groups = GROUPS[1] if x.groups == GROUPS[0] else x.groups
    return f"{x.shape} all-to-all({x.name}), replica_groups={groups}, dimensions={{{x.axis}}}"


def collective_permute(body: CaseBody, x: Operand) -> str:
    targets = body.draw.permutation(REPLICAS)
    sources = sorted(body.draw.subset(range(REPLICAS), body.draw.integer(1, REPLICAS)))
    pairs = ",".join(f"{{{s},{targets[s]}}}" for s in sources)
    return f"{x.shape} collective-permute({x.name}), source_target_pairs={{{pairs}}}"


def replica_id(body: CaseBody, x: Operand) -> str:
    return "u32[] replica-id()"


COLLECTIVES = (all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute, replica_id)


@family("collectives")
def collective(draw: Draw, body: CaseBody) -> Case:
    """Draw a collective of four replicas, each with its own arguments."""
    element_type, groups = draw.one(TYPES), draw.one(GROUPS)
    count = group_size(groups)
    sizes = [max(1, size) for size in draw.sizes(low=1, high=3, largest=4)]
    axis = draw.integer(0, len(sizes) - 1)
    draw_collective = draw.one(COLLECTIVES)
    if draw_collective in (reduce_scatter, all_to_all):
        sizes[axis] *= count
    operand = body.parameter(draw.small_values(element_type, sizes))
    text = draw_collective(body, Operand(operand, element_type, sizes, axis, groups, count))
    root = body.let(text)
    kind = text.split("(")[0].split(" ")[-1]
    others = [draw.small_values(element_type, sizes) for _ in range(REPLICAS - 1)]
    body.arguments += others
    return body.case(f"{kind} {element_type}", root, replicas=REPLICAS)
