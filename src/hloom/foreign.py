"""Name the format of a file that is not a program (HTML, JSON, images, source code …) for error messages."""

from __future__ import annotations

import re
from typing import Final

from hloom.errors import plural
from hloom.regex import regex

HINT: Final = "programs are what XLA_FLAGS=--xla_dump_to=FOLDER and jax.jit(f).lower(x).as_text('hlo') write"

_BINARIES: Final = (
    (b"\x7fELF", "an ELF object file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive (.npz, .whl, .keras …)"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"BC\xc0\xde", "LLVM bitcode"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"BZh", "a bzip2 archive"),
    (b"(\xb5/\xfd", "a zstd archive"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"SQLite format", "an SQLite database"),
    (b"MZ", "a Windows program"),
)
_MLIR: Final = regex(r"^\s*(?:module\b.*\{|func\.func\b|\"?[a-z]\w*\.\w+\"?\(|%\w+ = [a-z]\w*\.\w)", re.M)
_PYTHON: Final = regex(r"^(?:import \w|from [\w.]+ import |def \w+\(.*:|class \w+.*:|@\w+|async def )", re.M)
_C: Final = regex(r"^\s*(?:#include\b|#pragma\b|(?:int|void|template|namespace|using)\b.*[;{<])", re.M)
_TEXTS: Final = (
    (regex(r"\A\s*<(?:!doctype|html|head|body|\?xml|svg)\b", re.I), "an HTML or XML document"),
    (regex(r"\A\s*[{\[]\s*[\"\]}\[{]"), "JSON"),
    (regex(r"\A#!"), "a script"),
    (regex(r"^(?:; ModuleID\b|define\s.*@|target (?:triple|datalayout)\b)", re.M), "LLVM IR"),
    (_MLIR, "MLIR of other dialects than StableHLO"),
    (_PYTHON, "Python source code"),
    (_C, "C or C++ source code"),
    (regex(r"\A\s*(?:#+ \S|```|---\n)"), "Markdown"),
)
_HLO: Final = regex(
    r"\bHloModule\b|\bENTRY\b|\bROOT\b"
    r"|(?<![\w.])(?:pred|token|opaque|bf16|[suf]\d{1,3}|f\d{1,2}e\d\w*|c64|c128)\["
    r"|%[A-Za-z_][\w.\-]*\s*="
)
_SHOWN: Final = 40


def is_like_hlo(text: str) -> bool:
    """Return whether a text has a word, a type or a name of HLO, so that its own errors tell more."""
    return _HLO.search(text) is not None


def text_refusal(text: str) -> str:
    """Return the message for a text that is no HLO: what it looks like, and where programs come from."""
    if not text.strip():
        return f"the text is empty; {HINT}"
    seen = next((name for pattern, name in _TEXTS if pattern.search(text)), "")
    if not seen:
        first = text.strip().split("\n")[0]
        seen = f"text that begins with {first[:_SHOWN]!r}"
    return f"this is no HLO text, proto or StableHLO, but {seen}; {HINT}"


def _binary(data: bytes) -> str:
    """Return what kind of file begins so; empty if it is not known."""
    return next((name for mark, name in _BINARIES if data.startswith(mark)), "")


def is_known_binary(data: bytes) -> bool:
    """Return whether bytes begin as files of another known format."""
    return bool(_binary(data))


def bytes_refusal(data: bytes) -> str:
    """Return the message for bytes in which there is no program."""
    seen = _binary(data) or f"{plural(len(data), 'byte')} beginning with {data[:8].hex(' ')}"
    return f"this is no HLO text, StableHLO, nor a proto with a program, but {seen}; {HINT}"
