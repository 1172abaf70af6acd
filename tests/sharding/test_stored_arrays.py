"""Arrays in files: what devices store, other devices read, however both are cut."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloom.sharding
from hloom import HloModule, Shape
from hloom.errors import HloError
from hloom.sharding.tiling.tiling import Tiling
from tests import agreement
from tests.arrays import f32, s32

TYPES = ("pred", "s4", "u8", "s64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f32", "f64", "c64", "c128")


def tiled(*tiles: int, copies: int = 1) -> Tiling:
    """Return the tiling in which devices have the tiles in row-major order, each tile on some devices."""
    places = [np.unravel_index(n // copies, tiles) for n in range(math.prod(tiles) * copies)]
    return Tiling.from_tile_indices(tiles, [[int(p) for p in place] for place in places])


def array(shape: Shape, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random bits that are numbers of the type."""
    return np.asarray(hloom.debug.random_arguments(identity(shape), seed)[0])


def identity(shape: Shape) -> HloModule:
    return HloModule.from_text(f"HloModule m\nENTRY e {{\n ROOT x = {shape} parameter(0)\n}}")


def store(folder: Path, value: Any, shape: Shape, tilings: Sequence[Tiling]) -> list[str]:
    """Store the tiles of all devices."""
    devices = range(tilings[0].devices)
    tiles = [hloom.sharding.cut(value, tilings, device) for device in devices]
    return hloom.sharding.store(folder, tiles, devices, shape, tilings)


@pytest.mark.parametrize("kind", TYPES)
def test_every_element_type(tmp_path: Path, kind: str) -> None:
    shape = Shape.parse(f"{kind}[5,6]")
    value = array(shape)
    assert store(tmp_path / "state", value, shape, [tiled(2, 2)]) == ["result"]
    found = hloom.sharding.stored(tmp_path / "state")["result"]
    assert (found.shape, found.chunks, found.dtype) == ((5, 6), (3, 3), value.dtype)
    agreement.equal(np.asarray(found), value)


@settings(max_examples=40)
@given(st.data())
def test_what_devices_store_others_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Uneven tiles, tiles beyond the end, copies, scalars and empty arrays."""
    folder = tmp_path_factory.mktemp("stored")
    sizes = data.draw(st.lists(st.integers(0, 9), max_size=3))
    counts = st.lists(st.integers(1, 4), min_size=len(sizes), max_size=len(sizes))
    before = tiled(*data.draw(counts), copies=data.draw(st.integers(1, 2)))
    after = tiled(*data.draw(counts), copies=data.draw(st.integers(1, 2)))
    shape = Shape.array("s32", sizes)
    value = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    store(folder / "state", value, shape, [before])
    found = hloom.sharding.stored(folder / "state")["result"]
    for device in range(after.devices):
        agreement.equal(
            hloom.sharding.cut(found, [after], device), hloom.sharding.cut(value, [after], device)
        )
    tiles = [hloom.sharding.cut(found, [after], device) for device in range(after.devices)]
    agreement.equal(hloom.sharding.joined(tiles, [after], shape), value)


def test_tuples_have_a_directory_for_each_array(tmp_path: Path) -> None:
    shape = Shape.parse("(f32[4], (bf16[2], token[]), s32[])")
    value = (np.arange(4, dtype=np.float32), (np.ones(2, ml_dtypes.bfloat16), None), np.int32(7))
    tilings = [tiled(4), tiled(2, copies=2), Tiling.replicated(0, 4), Tiling.replicated(0, 4)]
    store(tmp_path / "state", value, shape, tilings)
    found = hloom.sharding.stored(tmp_path / "state")
    assert list(found) == ["result.0", "result.1.0", "result.2"]
    assert sorted(each.name for each in (tmp_path / "state" / "result.1.0").iterdir()) == [
        ".zarray",
        "0",
        "1",
    ]
    assert "result.0: float32[4] in files of [1]" in repr(found["result.0"])
    agreement.equal(np.asarray(found["result.2"], np.int64), np.int64(7))


def test_names_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    shape = Shape.tuple_([Shape.parse("s32[]")] * 11)
    store(tmp_path / "state", tuple(map(np.int32, range(11))), shape, [Tiling.replicated(0, 1)] * 11)
    assert [int(np.asarray(each)) for each in hloom.sharding.stored(tmp_path / "state").values()] == list(
        range(11)
    )


def test_padding_is_not_stored(tmp_path: Path) -> None:
    tiles = [f32([1, 2]), f32([3, np.nan])]
    hloom.sharding.store(tmp_path / "state", tiles, range(2), Shape.parse("f32[3]"), [tiled(2)])
    assert (tmp_path / "state/result/1").read_bytes() == f32([3, 0]).tobytes()


def test_a_directory_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    shape, state = Shape.parse("f32[2]"), tmp_path / "state"
    store(state, f32([1, 2]), shape, [tiled(2)])
    with pytest.raises(HloError) as caught:
        hloom.sharding.store(state, [], [], shape, [tiled(2)], processes=FailingPeer())
    assert caught.value.rule == "stored.failed" and "process 1: no space" in str(caught.value)
    agreement.equal(np.asarray(hloom.sharding.stored(state)["result"]), f32([1, 2]))
    store(state, f32([3]), Shape.parse("f32[1]"), [tiled(1)])
    agreement.equal(np.asarray(hloom.sharding.stored(state)["result"]), f32([3]))
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


class FailingPeer:
    """Process 0 of two, of which the other one cannot write."""

    rank = 0

    def all_gather(self, value: Any) -> list[Any]:
        return [value, "no space"]


# -- files of others


def described(folder: Path, **changes: Any) -> Path:
    """Write the description of an array of 3 numbers in tiles of 2, as TensorStore does; no tiles."""
    metadata = {
        "chunks": [2], "compressor": None, "dimension_separator": "/", "dtype": "<i4", "fill_value": None,
        "filters": None, "order": "C", "shape": [3], "zarr_format": 2,
    }  # fmt: skip
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps({**metadata, **changes}))
    return folder


def test_a_single_array_of_another_program(tmp_path: Path) -> None:
    folder = described(tmp_path / "a", dtype=">i4", fill_value=-1)
    (folder / "0").write_bytes(np.array([5, 6], ">i4").tobytes())
    (found,) = hloom.sharding.stored(folder).values()
    agreement.equal(np.asarray(found), s32([5, 6, -1]))
    assert found.dtype == np.int32


def test_tensorstore_reads_and_writes_the_format(tmp_path: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    shape = Shape.parse("bf16[5,3]")
    value = array(shape)
    store(tmp_path / "ours", value, shape, [tiled(2, 2)])
    place = {"driver": "file", "path": str(tmp_path / "ours/result")}
    theirs = tensorstore.open({"driver": "zarr", "kvstore": place}).result()
    agreement.equal(np.asarray(theirs.read().result()), value)
    place = {"driver": "file", "path": str(tmp_path / "theirs")}
    metadata = {"shape": [5, 3], "chunks": [2, 2], "dtype": "bfloat16", "compressor": None}
    made = {"driver": "zarr", "kvstore": place, "metadata": metadata, "create": True}
    tensorstore.open(made).result().write(value).result()
    agreement.equal(np.asarray(hloom.sharding.stored(tmp_path / "theirs")[""]), value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compressor": {"id": "zstd", "level": 1}}, "without compressor"),
        ({"filters": [{"id": "delta"}]}, "without compressor or filters"),
        ({"order": "F"}, "in order C"),
        ({"zarr_format": 3}, "only arrays of version 2"),
        ({"chunks": [2, 2]}, "only arrays"),
        ({"chunks": [0]}, "only arrays"),
        ({"chunks": None}, "chunks is None, wanted is a list of integers"),
        ({"chunks": ["two"]}, "chunks is .'two'., wanted is a list of integers"),
        ({"zarr_format": True}, "zarr_format is True, wanted is an integer"),
        ({"dtype": "|O"}, "dtype is '|O', wanted is a number type"),
        ({"dtype": "nothing"}, "dtype is 'nothing', wanted is a number type"),
        ({"dtype": [["a", "<f4"]]}, "dtype is .*, wanted is a string"),
    ],
)
def test_what_is_not_read(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HloError, match=words.replace("|", "[|]")) as caught:
        hloom.sharding.stored(described(tmp_path / "a", **changes))
    assert caught.value.rule == "stored.metadata"


def test_damaged_files(tmp_path: Path) -> None:
    def rule_of(folder: Path) -> str:
        with pytest.raises(HloError) as caught:
            np.asarray(hloom.sharding.stored(folder)[""])
        return caught.value.rule

    folder = described(tmp_path / "a")
    assert rule_of(folder) == "stored.tile"
    (folder / "0").write_bytes(b"1234")
    assert rule_of(folder) == "stored.tile"
    (folder / ".zarray").write_text("{")
    assert rule_of(folder) == "stored.metadata"
    (folder / ".zarray").unlink()
    assert rule_of(folder) == "stored.not-found"
    assert rule_of(tmp_path / "nowhere") == "stored.not-found"


def test_partial_sums_are_not_stored(tmp_path: Path) -> None:
    tiling = Tiling.from_tile_indices((1,), [(0,), (0,)], unreduced=(0, 1))
    with pytest.raises(HloError) as caught:
        store(tmp_path / "state", np.zeros(2, np.float32), Shape.parse("f32[2]"), [tiling])
    assert caught.value.rule == "stored.unreduced"
