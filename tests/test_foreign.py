"""Files that hold no program are called by what they are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import hloom
from hloom.errors import HloError
from hloom.foreign import HINT
from hloom.ir.module import HloModule

TEXTS = {
    "<!DOCTYPE html>\n<html></html>": "an HTML or XML document",
    "  <?xml version='1.0'?><a/>": "an HTML or XML document",
    "[{}, 1]": "JSON",
    "#!/bin/sh\necho": "a script",
    "; ModuleID = 'm'\ndefine void @f() {\n ret void\n}": "LLVM IR",
    "module {\n  %0 = arith.constant 1 : i32\n}": "MLIR of other dialects than StableHLO",
    "import os\n\nx = 3\n": "Python source code",
    "def f(x):\n    return x\n": "Python source code",
    "#include <stdio.h>\nint main() {}": "C or C++ source code",
    "# Title\n\nProse.": "Markdown",
    "Good morning, world": "text that begins with 'Good morning, world'",
    "a,b\n1,2\n": "text that begins with 'a,b'",
}
BYTES = {
    b"\x7fELF\x02\x01\x01\x00": "an ELF object file",
    b"\x89PNG\r\n\x1a\n\x00": "a PNG picture",
    b"PK\x03\x04\x00\x00": "a zip archive",
    b"\x80\x04\x95\x00\x00": "a Python pickle",
    b"\x00\x01\x02": "3 bytes beginning with 00 01 02",
}


def refusal(tmp_path: Path, data: bytes) -> HloError:
    path = tmp_path / "file.hlo"
    path.write_bytes(data)
    with pytest.raises(HloError) as caught:
        hloom.load(path)
    return caught.value


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("pack", [bytes, lambda data: gzip.compress(data, mtime=0)], ids=["plain", "gzip"])
def test_texts_of_other_kinds(tmp_path: Path, text: str, pack: object) -> None:
    error = refusal(tmp_path, pack(text.encode()))  # type: ignore[operator]
    assert error.rule in ("text.no-hlo", "proto.json")
    assert error.message.startswith("this is no HLO text, proto or StableHLO, but ")
    assert TEXTS[text] in error.message
    assert error.message.endswith(HINT)


@pytest.mark.parametrize("data", BYTES)
def test_bytes_of_other_kinds(tmp_path: Path, data: bytes) -> None:
    error = refusal(tmp_path, data)
    assert error.rule == "proto.no-module"
    assert BYTES[data] in error.message


def test_an_empty_text() -> None:
    for text in ("", " \n\n"):
        with pytest.raises(HloError) as caught:
            HloModule.from_text(text)
        assert caught.value.message == f"the text is empty; {HINT}"


@pytest.mark.parametrize(
    "text", ["ENTRY e { x }", "x = f32[2] frobnicate(y)", "HloModule", "%x = add(a, b)", "e { ROOT x = }"]
)
def test_hlo_with_errors_has_errors_of_hlo(text: str) -> None:
    with pytest.raises(HloError) as caught:
        HloModule.from_text(text)
    assert caught.value.rule != "text.no-hlo"


def test_errors_of_mlir_have_their_place_in_the_file(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    text = (
        "module @m {\n  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "    %0 = stablehlo.add %a, %b : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n}\n"
    )
    error = refusal(tmp_path, text.encode())
    assert error.rule == "stablehlo.conversion"
    assert error.line == 3
    assert error.column == text.split("\n")[2].index("%b") + 1
    assert "use of undeclared SSA value name" in error.message
    assert "-:" not in error.message
