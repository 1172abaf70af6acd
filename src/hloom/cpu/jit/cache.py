"""Compiled programs on disk, so that nothing is compiled twice.

Every program is a file of its own, named by a digest of all that went into it; it begins with a digest of
what follows, so that a damaged file is noticed and compiled again. Files are written aside and renamed into
place, which other processes see all at once or not at all. The files used longest ago go when there are too
many.

Environment: ``HLOOM_CACHE=0`` switches the cache off, ``HLOOM_CACHE_DIR`` says where it is (by default
``$XDG_CACHE_HOME/hloom``), ``HLOOM_CACHE_LIMIT`` how many MiB it may hold (512).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from hloom.errors import HloError

_MAGIC: Final = b"hloom-code-1\n"
_SUFFIX: Final = ".hloomcode"
_DIGEST: Final = hashlib.sha256
_LENGTH: Final = struct.Struct("<Q")
_DEFAULT_LIMIT_MIB: Final = 512
_ROOMS: Final = (
    "shape",
    "ir",
    "operations",
    "evaluate",
    "analysis",
    "passes",
    "plan",
    "codegen",
    "buffers",
    "cpu",
)
"""The parts of hloom that compiled code depends on."""
_KEPT_PART: Final = 0.75
"""The part of the limit that is left after old files were removed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled program.

    Attributes:
        facts: what a caller must know of it, as JSON can say it.
        parts: object files, then whatever bytes the facts speak of.
    """

    facts: Mapping[str, Any]
    parts: Sequence[bytes]

    def to_bytes(self) -> bytes:
        """The content of the file."""
        facts = json.dumps(self.facts, separators=(",", ":")).encode()
        lengths = [len(facts), *map(len, self.parts)]
        header = b"".join(map(_LENGTH.pack, [len(lengths), *lengths]))
        body = b"".join((header, facts, *self.parts))
        return _MAGIC + _DIGEST(body).digest() + body

    @staticmethod
    def from_bytes(data: bytes) -> Entry | None:
        """The entry in a file; None if the file is damaged."""
        start = len(_MAGIC) + _DIGEST().digest_size
        body = data[start:]
        if not data.startswith(_MAGIC) or _DIGEST(body).digest() != data[len(_MAGIC) : start]:
            return None
        (count,) = _LENGTH.unpack_from(body, 0)
        position = _LENGTH.size * (count + 1)
        pieces: list[bytes] = []
        for number in range(count):
            (length,) = _LENGTH.unpack_from(body, _LENGTH.size * (number + 1))
            pieces.append(body[position : position + length])
            position += length
        return Entry(json.loads(pieces[0]), pieces[1:])


class CodeCache:
    """A directory of compiled programs.

    Args:
        directory: made when something is stored.
        limit: bytes that the files may take together.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._written = 0

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None if there is none, or if it is damaged (then it is removed)."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None  # machine code is only taken from its owner
                data = file.read()
        except OSError:
            return None
        entry = Entry.from_bytes(data)
        try:
            if entry is None:
                path.unlink()
            else:
                os.utime(path)
        except OSError:
            pass  # another process was faster, or the directory is read-only
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Store an entry; returns whether that worked: a full or read-only disk is no error."""
        data = entry.to_bytes()
        if len(data) > self.limit:
            return False
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside = self.directory / f".{os.getpid()}-{threading.get_ident()}-{key}"
            try:
                aside.write_bytes(data)
                aside.replace(self._path(key))
            except OSError:
                aside.unlink(missing_ok=True)
                raise
            self._written += len(data)
            # looking at every file takes long in a full cache: not for each entry, but by and by
            if self._written > self.limit >> 6 or key.endswith("0"):
                self._written = 0
                self._evict()
        except OSError as error:
            if os.environ.get("HLOOM_CACHE_DIR"):
                message = f"compiled programs are not kept in {self.directory}: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            return False
        return True

    def _path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def _evict(self) -> None:
        """Remove the files used longest ago, if all together are too many bytes."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(self.directory) as files:
            for file in files:
                if file.name.endswith(_SUFFIX) or file.name.startswith("."):
                    try:
                        status = file.stat()
                    except FileNotFoundError:
                        continue
                    found.append((status.st_mtime, status.st_size, file.path))
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return
        for _, size, path in sorted(found):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            total -= size
            if total <= self.limit * _KEPT_PART:
                return


def configured_cache() -> CodeCache | None:
    """The cache that the environment asks for; None if it is off. Raises HloError for a bad limit."""
    if os.environ.get("HLOOM_CACHE", "1").lower() in ("0", "off", "no", "false"):
        return None
    given = os.environ.get("HLOOM_CACHE_LIMIT", str(_DEFAULT_LIMIT_MIB))
    if not given.isdecimal():
        message = f"HLOOM_CACHE_LIMIT is {given!r}; a number of MiB is wanted"
        raise HloError(message, rule="cpu.cache-limit")
    chosen = os.environ.get("HLOOM_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return CodeCache(Path(chosen) if chosen else Path(base) / "hloom", int(given) << 20)


def key_of(*parts: str | bytes) -> str:
    """A name for what some parts, and the compiler itself, make."""
    digest = _DIGEST(compiler_identity().encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return digest.hexdigest()[:40]


@cache
def compiler_identity() -> str:
    """Equal as long as the same files compile: sizes and times of hloom's own, of numpy's and of LLVM's."""
    package = Path(__file__).parents[2]
    described: list[str] = []
    folders = [str(package / room) for room in _ROOMS]
    while folders:
        with os.scandir(folders.pop()) as files:
            for file in files:
                if file.name.endswith((".py", ".ll")):
                    described.append(_described(file.path, file.stat()))
                elif file.name != "__pycache__" and file.is_dir(follow_symlinks=False):
                    folders.append(file.path)
    for dependency in ("llvmlite", "numpy", "scipy", "ml_dtypes"):
        for folder in sys.path:
            path = os.path.join(folder, dependency)
            if os.path.isdir(path):
                described.append(_described(path, os.stat(path)))
                break
    return _DIGEST("\n".join(sorted(described)).encode()).hexdigest()


def _described(path: str, status: os.stat_result) -> str:
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"
