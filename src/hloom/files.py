"""Programs in files: text and protos, compressed or not, recognized by what is in them, not by names.

`load` reads HLO text (`.hlo`, `.txt`), serialized protos (`.pb`: HloModuleProto, HloProto, HloSnapshot and
HloUnoptimizedSnapshot), their text form (`.pbtxt`), and any of these in gzip; `save` writes them.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloom.errors import HloError, ParseError
from hloom.ir.module import HloModule
from hloom.shape.literal import Literal

if TYPE_CHECKING:
    from hloom.proto.container import Container

_GZIP: Final = b"\x1f\x8b"
_NEVER_IN_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_PROTO_TEXT: Final = re.compile(r"(?:\s|#[^\n]*)*[a-z_]+\s*(?:\{|<|:\s*[\"'\d\-tf{<])")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A program with the values of one run: what XLA stores in an HloSnapshot.

    Attributes:
        module: the program.
        runs: the arguments of each recorded run; empty if none is stored.
        result: what the run gave, if that is stored.
    """

    module: HloModule
    runs: tuple[tuple[Literal, ...], ...]
    result: Literal | None


def load(path: str | Path) -> HloModule:
    """The program in a file; of several, the first.

    Raises ParseError (with line and column for text) for what is no program, OSError for what is no file.
    """
    return load_all(path)[0]


def load_all(path: str | Path) -> list[HloModule]:
    """Every program in a file; text may hold several, divided by lines `// -----`. Raises as `load` does."""
    data = contents(path)
    kind = kind_of(data)
    if kind == "text":
        from hloom.text.parser import parse_modules

        modules = parse_modules(data.decode("utf-8", "surrogateescape"))
        if not modules:
            raise ParseError(f"{path} holds no program", rule="file.empty")
        return modules
    from hloom.proto.container import held_module
    from hloom.proto.reader import read_module

    return [read_module(held_module(_container(data, kind)))]


def load_snapshot(path: str | Path) -> Snapshot:
    """The program in a file together with the arguments and the result that are stored beside it."""
    data = contents(path)
    kind = kind_of(data)
    if kind == "text":
        return Snapshot(load(path), (), None)
    from hloom.proto.container import held_module
    from hloom.proto.literal import read_literal
    from hloom.proto.reader import read_module

    container: Any = _container(data, kind)
    module = read_module(held_module(container))
    name = type(container).__name__
    if name == "HloSnapshot":
        arguments = tuple(read_literal(a) for a in container.arguments)
        result = read_literal(container.result) if container.HasField("result") else None
        return Snapshot(module, (arguments,) if arguments else (), result)
    if name == "HloUnoptimizedSnapshot":
        runs = (tuple(read_literal(a) for a in partition.arguments) for partition in container.partitions)
        return Snapshot(module, tuple(runs), None)
    return Snapshot(module, (), None)


def contents(path: str | Path) -> bytes:
    """The bytes of a file, decompressed as long as they are gzip."""
    data = Path(path).read_bytes()
    while data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ParseError(f"{path} is damaged gzip: {error}", rule="file.gzip") from None
    return data


def kind_of(data: bytes) -> str:
    """What some bytes are: "text" (HLO), "pbtxt" or "pb"."""
    if _NEVER_IN_TEXT.search(data):
        return "pb"
    text = data.decode("utf-8", "replace")
    if _PROTO_TEXT.match(text) and not re.match(r"\s*(?:ENTRY\b|[\w.\-]+\s*\{\s*\n.*=)", text):
        return "pbtxt"
    return "text"


def _container(data: bytes, kind: str) -> Container:
    if kind == "pb":
        from hloom.proto.container import parse_container

        return parse_container(data)
    from hloom.proto.text_form import container_from_text

    return container_from_text(data.decode("utf-8"))


def save(module: HloModule, path: str | Path) -> None:
    """Write a program in the form that the name asks for: `.hlo` or `.txt`, `.pb`, `.pbtxt`, each also `.gz`.

    Text is written with all constants in full; `.pb` and `.pbtxt` hold an HloProto, as XLA's dumps do. Raises
    HloError for another suffix.
    """
    path = Path(path)
    suffixes = path.suffixes
    compress = bool(suffixes) and suffixes[-1] == ".gz"
    data = encoded(module, (suffixes[-2:-1] if compress else suffixes[-1:] or [""])[0] if suffixes else "")
    path.write_bytes(gzip.compress(data, mtime=0) if compress else data)


def encoded(module: HloModule, suffix: str) -> bytes:
    """A program in the form of a suffix: `.hlo`, `.txt`, `.pb` or `.pbtxt`."""
    if suffix in (".hlo", ".txt"):
        from hloom.text.options import PrintOptions

        return module.to_text(PrintOptions(print_large_constants=True)).encode("utf-8", "surrogateescape")
    if suffix in (".pb", ".pbtxt"):
        from hloom.proto.text_form import container_bytes, container_text

        return container_bytes(module) if suffix == ".pb" else container_text(module).encode()
    raise HloError(f"programs are written as .hlo, .txt, .pb or .pbtxt, not {suffix!r}", rule="file.suffix")
