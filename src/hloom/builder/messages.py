"""Arguments given as messages of xla_data.proto: PaddingConfig, dimension numbers, groups, handles.

A message is anything with the proto's fields: a protobuf message, another object, or a mapping. hloom's own
spellings of the fields (`..._dims` for `..._dimensions`) are read from mappings and objects too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Final, TypeAlias, cast

from hloom.builder.operands import integers
from hloom.errors import HloError
from hloom.ir.operation import REGISTRY
from hloom.ir.window import ConvolutionDimensionNumbers, DimLabelsCodec, PaddingDimension

Message: TypeAlias = Any
"""A protobuf message, an object with its fields, or a mapping of them."""


def _declared(opcode: str, message: str) -> tuple[str, ...]:
    """Return the fields of a message of HloInstructionProto that an operation declares."""
    paths = [a.proto.split(".") for a in REGISTRY[opcode].attributes]
    return tuple(path[-1] for path in paths if message in path)


_DOT: Final = _declared("dot", "dot_dimension_numbers")
_RAGGED_DOT: Final = _declared("ragged-dot", "ragged_dot_dimension_numbers")
GATHER: Final = _declared("gather", "gather_dimension_numbers")
SCATTER: Final = _declared("scatter", "scatter_dimension_numbers")
_CONVOLUTION: Final = tuple(field.name for field in dataclasses.fields(ConvolutionDimensionNumbers))
_EDGES: Final = ("edge_padding_low", "edge_padding_high", "interior_padding")


def is_message(value: object, names: Sequence[str]) -> bool:
    """Return whether a value has at least one of the fields."""
    if isinstance(value, Mapping):
        return True
    return any(hasattr(value, name) for name in names)


def fields(message: Message, names: Sequence[str], what: str) -> dict[str, Any]:
    """Return the fields of a message; a mapping's unknown ones are kept for the operation to refuse.

    Raises HloError for a value that has none of the fields.
    """
    if isinstance(message, Mapping):
        return dict(cast("Mapping[str, Any]", message))
    values = {name: getattr(message, name) for name in names if hasattr(message, name)}
    if not values:
        description = f"a mapping, or a message with {', '.join(names)}"
        raise HloError(f"{what} is {description}, got {message!r}", rule="builder.message")
    return values


def dot_numbers(message: Message, *, ragged: bool = False) -> dict[str, tuple[int, ...]]:
    """Return a DotDimensionNumbers (or RaggedDotDimensionNumbers) as attributes of the operation."""
    names = _RAGGED_DOT if ragged else _DOT
    short = tuple(name.replace("_dimensions", "_dims") for name in names)
    numbers = fields(
        message, (*names, *short, *(["dot_dimension_numbers"] if ragged else [])), "dimension_numbers"
    )
    inner = numbers.pop("dot_dimension_numbers", None)
    if inner is not None:
        numbers = {**fields(inner, _DOT, "dot_dimension_numbers"), **numbers}
    plain = {key.replace("_dimensions", "_dims"): integers(value, key) for key, value in numbers.items()}
    return {key: value for key, value in plain.items() if value or "contracting" in key}


def convolution_numbers(wanted: Any) -> ConvolutionDimensionNumbers:
    """Return the numbers of labels such as ``b01f_01io->b01f`` or of a message's fields."""
    if isinstance(wanted, ConvolutionDimensionNumbers):
        return wanted
    if isinstance(wanted, str):
        from hloom.ir.cursor import Cursor

        return DimLabelsCodec().parse(Cursor(wanted))
    given = fields(wanted, _CONVOLUTION, "dimension_numbers")
    unknown, missing = given.keys() - set(_CONVOLUTION), set(_CONVOLUTION) - given.keys()
    if unknown or missing:
        words = f"lacks {sorted(missing)[0]}" if missing else f"has no field {sorted(unknown)[0]}"
        raise HloError(f"ConvolutionDimensionNumbers {words}", rule="builder.message")
    numbers: dict[str, Any] = {
        name: integers(given[name], name) if name.endswith("s") else integers([given[name]], name)[0]
        for name in _CONVOLUTION
    }
    return ConvolutionDimensionNumbers(**numbers)


def padding_dimensions(config: Any) -> tuple[PaddingDimension, ...]:
    """Return a PaddingConfig's dimensions; also from a sequence of (low, high[, interior]) or of messages."""
    if isinstance(config, Mapping) or hasattr(config, "dimensions"):
        config = fields(config, ("dimensions",), "padding_config").get("dimensions", ())
    return tuple(map(_padding_dimension, config))


def _padding_dimension(given: object) -> PaddingDimension:
    if isinstance(given, PaddingDimension):
        return given
    if not is_message(given, _EDGES):
        return PaddingDimension(*integers(given, "a dimension of padding_config"))
    edges = fields(given, _EDGES, "padding_config")
    if unknown := edges.keys() - set(_EDGES):
        raise HloError(f"PaddingConfigDimension has no field {sorted(unknown)[0]}", rule="builder.message")
    return PaddingDimension(*integers([edges.get(name, 0) for name in _EDGES], "padding_config"))


def listed_groups(groups: Any) -> tuple[tuple[int, ...], ...]:
    """Return replica groups as tuples; each is a sequence of numbers or a ReplicaGroup message."""
    found: list[tuple[int, ...]] = []
    for group in groups or ():
        numbers = group
        if is_message(group, ("replica_ids",)):
            numbers = fields(group, ("replica_ids",), "a replica group").get("replica_ids", ())
        found.append(tuple(map(index, numbers)))
    return tuple(found)


def source_target_pairs(pairs: Any) -> tuple[tuple[int, int], ...]:
    """Return pairs of device numbers; each is a sequence of two or a SourceTarget message."""
    found: list[tuple[int, int]] = []
    for pair in pairs:
        ends = pair
        if is_message(pair, ("source", "target")):
            named = fields(pair, ("source", "target"), "a pair")
            ends = (named["source"], named["target"])
        source, target = ends
        found.append((index(source), index(target)))
    return tuple(found)
