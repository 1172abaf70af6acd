"""Program files: text and protos, compressed or not, recognized by content, not by name.

`load` reads HLO text (`.hlo`, `.txt`), serialized protos (`.pb`: HloModuleProto, HloProto, HloSnapshot and
HloUnoptimizedSnapshot), their text form (`.pbtxt`) and JSON (`.json`), and any of these in gzip; `save`
writes them. Through jaxlib `load` also reads StableHLO: MLIR text, bytecode, and exports of `jax.export`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hloom.errors import HloError, ParseError, expect, plural
from hloom.foreign import HINT
from hloom.ir.module import HloModule
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.literal import Literal
from hloom.stablehlo import holds_stablehlo

if TYPE_CHECKING:
    from hloom.proto.container import Container

_GZIP: Final = b"\x1f\x8b"
_MOST_BYTES: Final = (1 << 31) - 1
"""Maximum size of a proto, and of a decompressed file."""
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""UTF-32's marks come first: the little-endian one begins with UTF-16's."""
_NEVER_IN_TEXT: Final = regex(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_PROTO_TEXT: Final = regex(r"(?:\s|#[^\n]*)*+[a-z_]+\s*(?:\{|<|:\s*[\"'\d\-tf{<])")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A program with the values of one run: the contents of an HloSnapshot.

    Attributes:
        module: the program.
        runs: the arguments of each recorded run; empty if none is stored.
        result: the result of the run, if stored.
    """

    module: HloModule
    runs: tuple[tuple[Literal, ...], ...]
    result: Literal | None


def load(path: str | Path) -> HloModule:
    """Return the program in a file; of several, the first.

    Raises ParseError (with line and column for text) for malformed contents, OSError for unreadable files.
    """
    return load_all(path)[0]


def load_all(path: str | Path) -> list[HloModule]:
    """Return every program in a file; text separates several by `// -----`. Raises as `load` does."""
    data = contents(path)
    kind = kind_of(data)
    if kind in _LANGUAGES:
        return _LANGUAGES[kind](path, data)
    from hloom.proto.container import held_module
    from hloom.proto.reader import read_module

    return [read_module(held_module(_container(data, kind)))]


def _from_text(path: str | Path, data: bytes) -> list[HloModule]:
    from hloom.text.parser import parse_modules

    modules = parse_modules(data.decode("utf-8", "surrogateescape"))
    if not modules:
        raise ParseError(f"{path} holds no program: it is empty; {HINT}", rule="file.empty")
    return modules


def _from_stablehlo(path: str | Path, data: bytes) -> list[HloModule]:
    from hloom.stablehlo import module_from_stablehlo

    return [module_from_stablehlo(data)]


_LANGUAGES: Final = {"text": _from_text, "stablehlo": _from_stablehlo}
"""Readers of the forms that hold programs alone."""


def load_snapshot(path: str | Path) -> Snapshot:
    """Return the program in a file with the arguments and the result stored beside it.

    Raises as `load` does, and ParseError for a text of several programs.
    """
    data = contents(path)
    kind = kind_of(data)
    if kind in _LANGUAGES:
        modules = _LANGUAGES[kind](path, data)
        if len(modules) > 1:
            message = f"{path} holds {plural(len(modules), 'program')}; a run has one"
            raise ParseError(message, rule="file.one-program")
        return Snapshot(modules[0], (), None)
    from hloom.proto.container import held_module
    from hloom.proto.reader import read_module
    from hloom.proto.snapshot import recorded_values

    container = _container(data, kind)
    return Snapshot(read_module(held_module(container)), *recorded_values(container))


def contents(path: str | Path) -> bytes:
    """Return a file's bytes, gunzipped if needed; ParseError for damaged gzip or more than 2 GiB."""
    expect(path, (str, PathLike), "the path of a file")
    data = Path(path).read_bytes()
    if not data.startswith(_GZIP):
        return _in_utf8(data)
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            plain = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ParseError(f"{path} is damaged gzip: {error}", rule="file.gzip") from None
    if len(plain) > _MOST_BYTES:
        raise ParseError(f"{path} holds more than {_MOST_BYTES} bytes", rule="file.size")
    return _in_utf8(plain)


def _in_utf8(data: bytes) -> bytes:
    """Return text with a byte order mark as UTF-8 without one; other bytes unchanged.

    Only bytes that begin with a mark and decode in its encoding count as text.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding).encode("utf-8")
            except UnicodeError:
                return data
    return data


def kind_of(data: bytes) -> str:
    """Return the form of some bytes: "text" (HLO), "stablehlo", "pbtxt", "json" or "pb"."""
    if holds_stablehlo(data):
        return "stablehlo"
    if _NEVER_IN_TEXT.search(data):
        return "pb"
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        return "json"
    if _PROTO_TEXT.match(text) and not re.match(r"\s*(?:ENTRY\b|[\w.\-]+\s*\{\s*\n[^\"\n]*=)", text):
        return "pbtxt"
    return "text"


def _container(data: bytes, kind: str) -> Container:
    if kind == "pb":
        from hloom.proto.container import parse_container

        return parse_container(data)
    from hloom.proto.text_form import container_from_json, container_from_text

    read = container_from_json if kind == "json" else container_from_text
    return read(data.decode("utf-8", "surrogateescape"))


def save(module: HloModule, path: str | Path) -> None:
    """Write a program in the form of the suffix: `.hlo` or `.txt`, `.pb`, `.pbtxt`, `.json`, each also `.gz`.

    Text is written with all constants in full; the others hold an HloProto, as XLA's dumps do. Raises
    HloError for another suffix.
    """
    expect(module, HloModule, "an HloModule")
    form, compress = _form(path)
    _write(path, encoded(module, form), compress)


def save_snapshot(snapshot: Snapshot, path: str | Path) -> None:
    """Write a program and its recorded runs as HloSnapshot: `.pb` or `.pbtxt`, each also `.gz`.

    Several runs, one for each partition, become an HloUnoptimizedSnapshot. Raises HloError for another
    suffix, and for several runs with results, for which that message has no field.
    """
    from hloom.proto.snapshot import snapshot_message
    from hloom.proto.text_form import message_text

    expect(snapshot, Snapshot, "a Snapshot")
    expect(snapshot.module, HloModule, "a Snapshot of an HloModule")
    form, compress = _form(path)
    if form not in (".pb", ".pbtxt"):
        raise HloError(f"snapshots are written as .pb or .pbtxt, not {form!r}", rule="file.suffix")
    message = snapshot_message(snapshot.module, snapshot.runs, snapshot.result)
    binary = form == ".pb"
    data = message.SerializeToString(deterministic=True) if binary else message_text(message).encode()
    _write(path, data, compress)


def _form(path: str | Path) -> tuple[str, bool]:
    """Return the suffix that states the form, and whether ``.gz`` follows it."""
    expect(path, (str, PathLike), "the path of a file")
    plain = Path(path)
    compress = plain.suffix == ".gz"
    return (plain.with_suffix("") if compress else plain).suffix, compress


def _write(path: str | Path, data: bytes, compress: bool) -> None:
    Path(path).write_bytes(gzip.compress(data, mtime=0) if compress else data)


def encoded(module: HloModule, suffix: str) -> bytes:
    """Encode a program in the form of a suffix: `.hlo`, `.txt`, `.pb`, `.pbtxt` or `.json`."""
    if suffix in (".hlo", ".txt"):
        from hloom.ir.print_options import PrintOptions

        return module.to_text(PrintOptions(print_large_constants=True)).encode("utf-8", "surrogateescape")
    if suffix in (".pb", ".pbtxt", ".json"):
        from hloom.proto.text_form import container_bytes, container_json, container_text

        if suffix == ".pb":
            return container_bytes(module)
        return (container_json if suffix == ".json" else container_text)(module).encode()
    message = f"programs are written as .hlo, .txt, .pb, .pbtxt or .json, not {suffix!r}"
    raise HloError(message, rule="file.suffix")
