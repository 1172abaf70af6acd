"""Conversion of manual regions with named shardings, as XLA writes them since jaxlib 0.12.

::

    s = f32[8,8] custom-call(x), custom_call_target="Sharding", sharding={mesh['x'=2,'y'=2], [{'y'}, {?}]}
    t = f32[4,8] custom-call(s), custom_call_target="xla.sdy.GlobalToLocalShape",
      sharding={mesh['x'=2,'y'=2], [{?}, {?}], manual={'y'}}

Older versions write frontend attributes, the form that the rest of the partitioner reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.errors import HloError
from hloom.ir.device_groups import AxisRef, Mesh
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.named_sharding import NamedSharding
from hloom.ir.sharding import Sharding
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL, CustomCall
from hloom.operations.structure import GetTupleElement

_MANUAL_AXES: Final = "xla.sdy.manual_axes"
_MESHES: Final = "xla.sdy.meshes"


def normalize_regions(module: HloModule) -> None:
    """Convert named shardings at the borders of manual regions to Shardy's frontend attributes, in place.

    A border is a custom call that converts between global and local shapes, as at a ``shard_map``. Must run
    before call inlining, which drops annotations of operands that name the manual axes. Raises HloError (rule
    ``sharding.manual-axes``) for a border with neither attributes nor named shardings.
    """
    meshes: dict[Mesh, str] = {}
    for i in [i for computation in module.computations for i in computation.instructions]:
        if not isinstance(i.operation, CustomCall) or _MANUAL_AXES in (i.frontend_attributes or {}):
            continue
        if i.operation.custom_call_target == TO_LOCAL:
            operands = [sharding for operand in i.operands for sharding in _named(i, operand)]
            _write_attributes(i, "xla.sdy.in_shardings", operands, _named(i, i), meshes)
            i.sharding = None  # shardings over other axes propagate across the border
        elif i.operation.custom_call_target == TO_GLOBAL:
            operands = [sharding for operand in i.operands for sharding in _named(i, operand)]
            _write_attributes(i, "xla.sdy.out_shardings", _named(i, i), operands, meshes)
    if meshes:
        attributes = module.config.frontend_attributes
        existing = attributes.get(_MESHES, "{}").strip().removeprefix("{").removesuffix("}")
        texts = [*([existing] if existing else []), *(_mesh(mesh, name) for mesh, name in meshes.items())]
        module.config.frontend_attributes = {**attributes, _MESHES: "{" + ", ".join(texts) + "}"}


def _write_attributes(
    border: HloInstruction,
    key: str,
    outside: Sequence[NamedSharding],
    inside: Sequence[NamedSharding],
    meshes: dict[Mesh, str],
) -> None:
    """Set the frontend attributes of a call at the border of a manual region, in Shardy's notation.

    Args:
        border: the call.
        key: the name of the attribute for the shardings outside the region.
        outside, inside: the named shardings of the values outside and inside the region; those inside state
            the manual axes.
        meshes: the names of meshes, to which a name is added for each mesh that has none.
    """
    axes = {named.mesh.axes[axis.axis][0]: None for named in inside for axis in named.manual_axes}
    shardings = ", ".join(_sharding(named, meshes) for named in outside)
    border.frontend_attributes = {
        **(border.frontend_attributes or {}),
        key: f"#sdy.sharding_per_value<[{shardings}]>",
        _MANUAL_AXES: "#sdy<manual_axes{" + ", ".join(f'"{axis}"' for axis in axes) + "}>",
    }


def _named(border: HloInstruction, value: HloInstruction) -> list[NamedSharding]:
    """Return the named sharding of each leaf of ``value``, an operand or the result of the call ``border``.

    ``border`` is a call at the border of a manual region. Raises HloError (rule
    ``sharding.manual-axes``) if a leaf has no named sharding.
    """
    sharding = value.sharding
    if sharding is None and isinstance(value.operation, GetTupleElement):
        (source,) = value.operands
        elements = source.sharding.elements if source.sharding is not None else ()
        sharding = (
            elements[value.operation.index] if len(elements) == len(source.shape.tuple_shapes) else None
        )
    parts: Sequence[Sharding | None] = [sharding]
    if sharding is not None and sharding.kind == "tuple":
        parts = sharding.elements
    named = [part.named for part in parts if part is not None and part.named is not None]
    if len(named) != sum(1 for _ in value.shape.leaves()):
        message = f"%{value.name} has no sharding over a mesh at the border %{border.name} of a manual region"
        raise HloError(message, rule="sharding.manual-axes", instruction=border.name)
    return named


# -- Shardy's notation


def _sharding(named: NamedSharding, meshes: dict[Mesh, str]) -> str:
    name = meshes.setdefault(named.mesh, f"named_mesh_{len(meshes)}")
    dimensions = (
        "{"
        + ", ".join([*(_axis(axis, named.mesh) for axis in d.axes), *([] if d.is_closed else ["?"])])
        + "}"
        for d in named.dimensions
    )
    reduced = ", ".join(_axis(axis, named.mesh) for axis in named.unreduced_axes)
    unreduced = f", unreduced={named.reduction.lower()}{{{reduced}}}" if reduced else ""
    return f"<@{name}, [{', '.join(dimensions)}]{unreduced}>"


def _axis(reference: AxisRef, mesh: Mesh) -> str:
    name = f'"{mesh.axes[reference.axis][0]}"'
    return name if reference.sub_axis is None else name + ":({}){}".format(*reference.sub_axis)


def _mesh(mesh: Mesh, name: str) -> str:
    axes = ", ".join(f'"{axis}"={size}' for axis, size in mesh.axes)
    return f"{name} = #sdy.mesh<[{axes}], device_ids=[{', '.join(map(str, mesh.numbers))}]>"
