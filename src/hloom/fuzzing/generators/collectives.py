"""Operations of four replicas: collectives in all groups, replica ids.

XLA:CPU has no collective-broadcast.
"""

from __future__ import annotations

from hloom.fuzzing.generators.case import Body, Case, Generator
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Draw

REPLICAS = 4
GROUPS = ("{}", "{{0,1,2,3}}", "{{0,1},{2,3}}", "{{3,1},{0,2}}", "{{0},{1},{2},{3}}", "{{2,0,3,1}}")
TYPES = ("s32", "f32", "u8", "f64", "s64", "f16", "bf16", "c64", "u32")


def group_size(groups: str) -> int:
    """Return the number of replicas in a group."""
    return REPLICAS if groups == "{}" else len(groups[2:].split("}")[0].split(","))


def collective(draw: Draw) -> Case:
    """Draw a collective of four replicas with separate arguments."""
    body = Body(draw)
    element_type, groups = draw.one(TYPES), draw.one(GROUPS)
    count = group_size(groups)
    sizes = [max(1, size) for size in draw.sizes(low=1, high=3, largest=4)]
    axis = draw.integer(0, len(sizes) - 1)
    kind = draw.one([
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "replica-id",
    ])  # fmt: skip
    if kind in ("reduce-scatter", "all-to-all"):
        sizes[axis] *= count
    operand = body.parameter(draw.small_values(element_type, sizes))
    if kind == "all-to-all" and groups == "{}":
        groups = GROUPS[1]
    where = f"replica_groups={groups}"
    shape = shape_of(element_type, sizes)
    match kind:
        case "all-reduce":
            reducers = (
                ["add", "multiply"] if element_type[0] == "c" else ["add", "maximum", "minimum", "multiply"]
            )
            function = body.binary(element_type, draw.one(reducers))
            root = body.let(f"{shape} all-reduce({operand}), {where}, to_apply={function}")
        case "all-gather":
            result = [size * count if d == axis else size for d, size in enumerate(sizes)]
            root = body.let(
                f"{shape_of(element_type, result)} all-gather({operand}), {where}, dimensions={{{axis}}}"
            )
        case "reduce-scatter":
            result = [size // count if d == axis else size for d, size in enumerate(sizes)]
            function = body.binary(element_type, "add")
            root = body.let(
                f"{shape_of(element_type, result)} reduce-scatter({operand}), {where}, "
                f"dimensions={{{axis}}}, to_apply={function}"
            )
        case "all-to-all":
            root = body.let(f"{shape} all-to-all({operand}), {where}, dimensions={{{axis}}}")
        case "collective-permute":
            targets = draw.permutation(REPLICAS)
            sources = sorted(draw.subset(range(REPLICAS), draw.integer(1, REPLICAS)))
            pairs = ",".join(f"{{{s},{targets[s]}}}" for s in sources)
            root = body.let(f"{shape} collective-permute({operand}), source_target_pairs={{{pairs}}}")
        case _:
            root = body.let("u32[] replica-id()")
    others = [draw.small_values(element_type, sizes) for _ in range(REPLICAS - 1)]
    body.arguments += others
    return body.case(f"{kind} {element_type}", root, replicas=REPLICAS)


FAMILIES: dict[str, Generator] = {"collectives": collective}
