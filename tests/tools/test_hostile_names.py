"""Names from protos may hold any character; terminals, drawings and pages get none that does anything."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom import HloError, HloModule
from hloom.proto.schema import hlo_pb2
from hloom.tools.cli import main
from hloom.visible import visible, visible_line

NAMES = {
    "a title of the terminal": "\x1b]0;title\x07",
    "colors": "\x1b[31mred",
    "a direction": "\u202eevil",
    "controls of 8 bits": "\x9b31m",
    "an end of a script": "</script><script>alert(1)</script>",
    "an end of XML": "]]><svg onload=alert(1)>",
    "line ends": "a\nerror: b\r\nc",
}
PROGRAM = """HloModule m
ENTRY e { x = f32[4] parameter(0)
 y = f32[4] add(x, x), metadata={op_name="jit(f)/add" source_file="a.py" source_line=3}
 ROOT z = f32[4] multiply(y, x) }"""


@pytest.fixture(params=NAMES.values(), ids=list(NAMES))
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A program whose names are hostile."""
    proto = hlo_pb2.HloModuleProto.FromString(HloModule.from_text(PROGRAM).to_proto())
    proto.name = request.param
    for computation in proto.computations:
        for i in computation.instructions:
            if i.opcode == "add":
                i.name = i.metadata.op_name = i.metadata.source_file = request.param
    path = tmp_path / "program.pb"
    path.write_bytes(proto.SerializeToString())
    return path


def is_plain(text: str) -> bool:
    return visible(text) == text and "\r" not in text


@pytest.mark.parametrize(
    "command", ["verify", "stats", "print", "run --random 0", "trace", "trace --first-nan", "check", "diff"]
)
def test_terminals_get_no_control_characters(command: str, program: Path) -> None:
    name, *options = command.split()
    files = [program, program] if name == "diff" else [program]
    result = CliRunner().invoke(main, [name, *map(str, files), *options], color=False)
    assert result.exit_code == 0, result.output
    assert is_plain(result.output)


def test_a_name_does_not_look_like_an_error(program: Path) -> None:
    assert "\nerror:" not in CliRunner().invoke(main, ["verify", str(program)]).output


@pytest.mark.parametrize("form", ["svg", "dot"])
def test_drawings_are_well_formed(form: str, program: Path, tmp_path: Path) -> None:
    picture = tmp_path / f"picture.{form}"
    assert CliRunner().invoke(main, ["draw", str(program), "--out", str(picture)]).exit_code == 0
    text = picture.read_text()
    assert is_plain(text)
    if form == "svg":
        assert not list(ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}script"))


def test_a_page_has_no_script_of_a_name(program: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["view", str(program), "--no-compile", "-o", str(page)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert "alert(1)" not in page.read_text().replace("&gt;alert(1)&lt;", "").replace("=alert(1)&gt;", "")


def test_errors_show_what_they_hold() -> None:
    assert str(HloError("no \x1b[31m", rule="a.b", instruction="\u202e")) == (
        "no \\x1b[31m\n  in instruction %\\u202e [a.b]"
    )


def test_text_that_can_be_seen_stays_as_it_is() -> None:
    assert visible("é λ 中 😀\t\n") == "é λ 中 😀\t\n"
    assert visible_line("a\tb\nc") == "a\\tb\\nc"
