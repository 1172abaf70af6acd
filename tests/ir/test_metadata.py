"""Metadata, statistics, original values, stack frames and names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import ParseError
from hloom.ir.cursor import Cursor, escape, is_json_dictionary, unescape
from hloom.ir.metadata import (
    OpMetadata,
    OriginalValue,
    ViewerStatistics,
    frontend_attributes_text,
    parse_frontend_attributes,
)
from hloom.ir.naming import NameUniquer, sanitized
from hloom.ir.stack_frames import FileLocation, StackFrame, StackFrames
from hloom.ir.xla_version import OLDEST

FULL = OpMetadata(
    op_type="t", op_name='n"é', source_file="f", source_line=1, source_end_line=2, source_column=3,
    source_end_column=4, stack_frame_id=5, profile_type=(1, 2), deduplicated_name="d", scheduling_name="s",
    metadata_payload="p", size_of_generated_code_in_bytes=6,
)  # fmt: skip


def test_metadata_text_shows_what_is_set() -> None:
    assert FULL.text(7) == (
        '{op_type="t" op_name="n\\"\\303\\251" source_file="f" source_line=1 source_end_line=2 '
        'source_column=3 source_end_column=4 profile_type={1,2} deduplicated_name="d" scheduling_name="s" '
        'stack_frame_id=7 metadata_payload="p"}'
    )
    assert OpMetadata().text() == "{}"


@pytest.mark.parametrize(
    "text", ['{op_name="a" source_line=3}', '{ op_name="a", source_line=3 }', "{op_name='a' source_line=3}"]
)
def test_metadata_in_any_spelling(text: str) -> None:
    assert OpMetadata.parse(Cursor(text)) == OpMetadata(op_name="a", source_line=3)


def test_metadata_through_its_message() -> None:
    from hloom.proto.schema.xla_data_pb2 import OpMetadata as Message

    message = Message()
    FULL.write(message)
    assert OpMetadata.read(Message.FromString(message.SerializeToString())) == FULL
    with pytest.raises(ParseError) as caught:
        OpMetadata.read(Message(metadata_payload={"id": 1}), [b"only"])
    assert caught.value.rule == "metadata.payload"


def test_frontend_attributes() -> None:
    values = parse_frontend_attributes(Cursor('{b="1",a={"x":[1]},b="2", c.d-e="{"}'))
    assert values == {"a": '{"x":[1]}', "b": "2", "c.d-e": "{"}
    assert frontend_attributes_text(values) == '{a={"x":[1]},b="2",c.d-e="{"}'


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("{}", True),
        ('{"a":"}"}', True),
        ("{a}", True),
        ("{", False),
        ("{}x", False),
        ('{"}', False),
        ("x", False),
    ],
)
def test_json_dictionaries_need_no_quotes(text: str, is_one: bool) -> None:
    assert is_json_dictionary(text) is is_one


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escapes_can_be_undone(text: str) -> None:
    assert unescape(escape(text)) == text
    assert escape(text).isascii()


@pytest.mark.parametrize(("text", "plain"), [
    (r"\x4f\x7A", "Oz"), (r"\117\172", "Oz"), (r"\xc3\xa9", "é"), (r"\n\t\\", "\n\t\\"), (r"\x0f", "\x0f"),
])  # fmt: skip
def test_escapes_of_c(text: str, plain: str) -> None:
    assert unescape(text) == plain


@pytest.mark.parametrize("text", ["{visualizing_index=1,a=3,b=4.5}", "{visualizing_index=-1,a=1e-10}"])
def test_statistics(text: str) -> None:
    from hloom.proto.schema.xla_data_pb2 import StatisticsViz

    statistics = ViewerStatistics.parse(Cursor(text))
    message = StatisticsViz()
    statistics.write(message)
    assert statistics.text() == text
    assert ViewerStatistics.read(message) == statistics


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{{"a"}}', ""),
        ('{{"a" {0,1}}}', ""),
        ('{(({"v1"}), ({}, {"v3" {2}}))}', ""),
        ("{[synthetic_call]}", '{(),[""]}'),
        ('{(),[""]}', ""),
        ('{{"a" {1}},["outer/inner"]}', ""),
        ("{}", "{()}"),
        ('{((), ({"a"}))}', ""),
        ('{{"a"} {"b"}}', '{{"b"}}'),
    ],
)
def test_original_values(text: str, printed: str) -> None:
    from hloom.proto.schema.xla_data_pb2 import OriginalValueProto

    value = OriginalValue.parse(Cursor(text))
    message = OriginalValueProto()
    value.write(message)
    assert value.text() == (printed or text)
    assert OriginalValue.read(message) == value


def test_original_values_before_0_11_have_no_calls() -> None:
    written = {'{(),[""]}': "{[synthetic_call]}", '{{"a"},["outer"]}': '{{"a"}}'}
    for text, printed in written.items():
        assert OriginalValue.parse(Cursor(text)).text(OLDEST) == printed


def test_stack_frames_keep_what_is_used_callers_first() -> None:
    locations = tuple(FileLocation(i, 1, i, i, i, i) for i in (1, 2, 3))
    frames = StackFrames(("a", "b", "c"), ("f",), locations, (StackFrame(1), StackFrame(3, 1), StackFrame(2)))
    used, numbers = frames.used([2, 9, 2])
    assert numbers == {1: 1, 2: 2}
    assert used.file_names == ("a", "c")
    assert used.frames == (StackFrame(1), StackFrame(2, 1))


def test_stack_frames_that_call_themselves_do_not_exist() -> None:
    frames = StackFrames((), (), (FileLocation(0, 0, 0, 0, 0, 0),), (StackFrame(1, 2), StackFrame(1, 1)))
    assert frames.chain(1) == []


def test_unique_names() -> None:
    uniquer = NameUniquer()
    names = ["x", "x.1", "x.3", "x", "x.1", "x.3", "x.5", "y.007", "y.7", "z.b", "z.", "x.0"]
    wanted = ["x", "x.1", "x.3", "x.2", "x.4", "x.5", "x.6", "y.7", "y.0", "z.b", "z.", "x.7"]
    assert [uniquer.unique(name) for name in names] == wanted


def test_sanitized_names() -> None:
    assert [sanitized(n) for n in ("1a", "a b", "f32", "tuple", "__a", "__xla_a", "")] == [
        "_a", "a_b", "f32_", "tuple", "a_a", "__xla_a", "",
    ]  # fmt: skip
