"""Annotations that mean nothing."""

from __future__ import annotations

import pytest

from hloom.errors import HloError
from hloom.ir.cursor import Cursor
from hloom.ir.metadata import OpMetadata, OriginalValue
from hloom.ir.sharding import Sharding
from hloom.proto.schema.xla_data_pb2 import OpSharding, OriginalValueProto


def test_profile_types_have_four_values() -> None:
    """As in XLA's enumeration."""
    with pytest.raises(HloError) as caught:
        OpMetadata.parse(Cursor("{profile_type={9}}"))
    assert caught.value.rule == "metadata.profile-type"


def test_tiles_are_counted() -> None:
    """A sharding without a number of tiles."""
    with pytest.raises(HloError) as caught:
        Sharding.parse(Cursor("{devices=[]0}"))
    assert caught.value.rule == "sharding.tile-dimensions"


def test_a_sharding_of_no_kind() -> None:
    """A number that no kind has."""
    message = OpSharding()
    message.ParseFromString(bytes([8, 77]))
    with pytest.raises(HloError) as caught:
        Sharding.read(message)
    assert caught.value.rule == "sharding.type"


def test_original_values_have_bounds() -> None:
    """Trees that are too deep, or have too many parts, are not printed."""
    deep, wide = OriginalValueProto(), OriginalValueProto()
    deep.elements.add(shape_index=[0] * 5000)
    wide.elements.add(shape_index=[1 << 40])
    for message, rule in ((deep, "origin.depth"), (wide, "origin.index")):
        with pytest.raises(HloError) as caught:
            OriginalValue.read(message).text()
        assert caught.value.rule == rule
