"""Programs in files: every form, recognized by content."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from hloom import HloError, HloModule, Literal, load, save
from hloom.files import Snapshot, encoded, load_all, load_snapshot, save_snapshot
from hloom.proto.container import parse_container
from tests.arrays import f32

TEXT = """HloModule m

ENTRY e {
  p = f32[2] parameter(0)
  c = f32[2] constant({1, 2})
  ROOT s = f32[2] add(p, c)
}
"""


@pytest.fixture
def module() -> HloModule:
    return HloModule.from_text(TEXT)


@pytest.mark.parametrize(
    "suffix", [".hlo", ".txt", ".pb", ".pbtxt", ".json", ".hlo.gz", ".pb.gz", ".json.gz"]
)
def test_what_is_saved_is_loaded(tmp_path: Path, module: HloModule, suffix: str) -> None:
    path = tmp_path / f"program{suffix}"
    save(module, path)
    assert load(path).to_text() == module.to_text()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{",
        '{"hlo_module": 3}',
        '{"hlo_module": {"nme": "m"}}',
        '{"hlo_module": {"name": "m"}}',
        "{" * 9999,
    ],
)
def test_json_that_is_no_program(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(HloError) as caught:
        load(tmp_path / "m.json")
    assert caught.value.rule == ("proto.no-module" if '"name"' in text else "proto.json")


@pytest.mark.parametrize("suffix", [".hlo", ".pb", ".pbtxt", ".pb.gz"])
def test_names_of_files_do_not_matter(tmp_path: Path, module: HloModule, suffix: str) -> None:
    path = tmp_path / f"program{suffix}"
    save(module, path)
    other = tmp_path / "program.hlo.unknown"
    path.rename(other)
    assert load(other).to_text() == module.to_text()


def test_protos_of_every_kind(tmp_path: Path, module: HloModule) -> None:
    from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot

    message = HloModuleProto.FromString(module.to_proto())
    for number, container in enumerate(
        (message, HloProto(hlo_module=message), HloSnapshot(hlo=HloProto(hlo_module=message)))
    ):
        path = tmp_path / str(number)
        path.write_bytes(container.SerializeToString())
        assert load(path).to_text() == module.to_text()
        (tmp_path / "text").write_text(str(container))
        assert load(tmp_path / "text").to_text() == module.to_text()


def test_a_snapshot_has_arguments_and_a_result(tmp_path: Path, module: HloModule) -> None:
    from hloom.proto.literal import write_literal
    from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot

    message = HloProto(hlo_module=HloModuleProto.FromString(module.to_proto()))
    snapshot = HloSnapshot(hlo=message)
    write_literal(Literal(f32([3, 4])), snapshot.arguments.add())
    write_literal(Literal(f32([4, 6])), snapshot.result)
    (tmp_path / "snapshot").write_bytes(snapshot.SerializeToString())
    loaded = load_snapshot(tmp_path / "snapshot")
    assert [[a.numpy().tolist() for a in run] for run in loaded.runs] == [[[3, 4]]]
    assert loaded.result is not None
    assert loaded.result.numpy().tolist() == [4, 6]


ONE, TWO = Literal(f32([1, np.nan])), Literal(f32([-0.0, 2]))


@pytest.mark.parametrize("suffix", [".pb", ".pbtxt", ".pb.gz"])
@pytest.mark.parametrize("runs", [(), ((ONE, TWO),), ((ONE,), (TWO,))], ids=["none", "one", "several"])
@pytest.mark.parametrize("result", [None, TWO], ids=["no result", "result"])
def test_snapshots_are_written(
    tmp_path: Path,
    module: HloModule,
    suffix: str,
    runs: tuple[tuple[Literal, ...], ...],
    result: Literal | None,
) -> None:
    path = tmp_path / f"snapshot{suffix}"
    if len(runs) > 1 and result is not None:
        with pytest.raises(HloError) as caught:
            save_snapshot(Snapshot(module, runs, result), path)
        assert caught.value.rule == "snapshot.result"
        return
    save_snapshot(Snapshot(module, runs, result), path)
    found = load_snapshot(path)
    assert found.module.to_text() == load(path).to_text() == module.to_text()
    assert found.runs == (runs or (((),) if result is not None else ()))
    assert found.result == result


def test_snapshots_have_no_text(tmp_path: Path, module: HloModule) -> None:
    with pytest.raises(HloError) as caught:
        save_snapshot(Snapshot(module, (), None), tmp_path / "snapshot.hlo")
    assert caught.value.rule == "file.suffix"


def test_a_small_file_does_not_become_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.files._MOST_BYTES", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(HloError) as caught:
        load(path)
    assert caught.value.rule == "file.size"


def test_a_program_without_arguments_is_a_snapshot_without_runs(tmp_path: Path, module: HloModule) -> None:
    for suffix in (".hlo", ".pb"):
        save(module, tmp_path / f"m{suffix}")
        found = load_snapshot(tmp_path / f"m{suffix}")
        assert (found.runs, found.result) == ((), None)


def test_several_programs_in_one_text(tmp_path: Path) -> None:
    path = tmp_path / "two.hlo"
    path.write_text(TEXT + "\n// -----\n\n" + TEXT.replace("HloModule m", "HloModule n"))
    assert [m.name for m in load_all(path)] == ["m", "n"]
    assert load(path).name == "m"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "file.empty"),
        (b"\n// nothing but a comment\n", "file.empty"),
        (b"\x1f\x8bdamaged", "file.gzip"),
        (b"\x00\x01\x02", "proto.no-module"),
        (b"hlo_module { nonsense: 1 }", "proto.text-form"),
        (b"hlo_module { name: 'x' }", "proto.no-module"),
        (gzip.compress(b"\x00\x01\x02", mtime=0), "proto.no-module"),
        (b"HloModule m\n\nENTRY e {\n  ROOT p = f32[2] frobnicate()\n}\n", "text.opcode"),
    ],
)
def test_what_is_no_program(tmp_path: Path, data: bytes, rule: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(HloError) as caught:
        load(path)
    assert caught.value.rule == rule


def test_an_error_in_proto_text_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / "file.pbtxt"
    path.write_text("hlo_module {\n  name: 'x'\n  nonsense: 1\n}\n")
    with pytest.raises(HloError) as caught:
        load(path)
    assert caught.value.line == 3


def test_unknown_suffixes_are_not_written(tmp_path: Path, module: HloModule) -> None:
    with pytest.raises(HloError) as caught:
        save(module, tmp_path / "program.onnx")
    assert caught.value.rule == "file.suffix"
    with pytest.raises(HloError):
        save(module, tmp_path / "program")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-32-be", "utf-16-le"])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("suffix", [".hlo", ".pbtxt"])
def test_text_with_a_byte_order_mark(
    tmp_path: Path, module: HloModule, encoding: str, compressed: bool, suffix: str
) -> None:
    text = encoded(module, suffix).decode().replace("\n", "\r\n")
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    data = (mark + text).encode(encoding)
    path = tmp_path / "program"
    path.write_bytes(gzip.compress(data) if compressed else data)
    assert load(path).to_text() == module.to_text()


def test_bytes_that_only_begin_like_a_mark_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HloError) as caught:
        load(path)
    assert caught.value.rule == "proto.no-module"


def test_a_proto_that_is_cut(tmp_path: Path, module: HloModule) -> None:
    """Wherever the one field of an HloProto ends early, the message says so."""
    data = encoded(module, ".pb")
    for size in range(1, len(data)):
        with pytest.raises(HloError) as caught:
            parse_container(data[:size])
        assert caught.value.rule == "proto.cut"
    path = tmp_path / "cut.pb"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(HloError, match=f"ends within a field, after {len(data) // 2:,} bytes; copy or write"):
        load(path)


@pytest.mark.parametrize(
    "data",
    [b"\x08\x80\x01", b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x12\x02ab", b"\x00\x01", b"\x0b\xff"],
    ids=["varint", "8 bytes", "4 bytes", "string", "no field", "group"],
)
def test_whole_fields_of_no_program_are_not_cut(data: bytes) -> None:
    with pytest.raises(HloError) as caught:
        parse_container(data)
    assert caught.value.rule == "proto.no-module"
