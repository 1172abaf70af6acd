"""Cache of compiled programs on disk.

Each entry is a file named by its key, a digest of everything that determines the code. The file holds a magic
string, a digest of the rest, the key, and the content, so that a damaged file, or one that belongs to another
key, is a miss. Files are written under a temporary name and renamed, so that other processes see a complete
entry or none. The least recently used entries are evicted when the size limit is exceeded.

Entries hold machine code. They are therefore accepted only if the file and its directory belong to the
effective user and nobody else may write them; symbolic links are not followed.

Environment: ``HLOOM_CACHE=0`` disables the cache, ``HLOOM_CACHE_DIR`` sets its directory (default
``$XDG_CACHE_HOME/hloom``), ``HLOOM_CACHE_LIMIT`` its size limit in MiB (default 512).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import sys
import time
import warnings
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

from hloom.errors import HloError
from hloom.records import dataclass
from hloom.regex import regex

_MAGIC: Final = b"hloom-code-2\n"
_ANY_MAGIC: Final = b"hloom-code-"
"""Prefix of the magic strings of all versions of the format."""
_SUFFIX: Final = ".hloomcode"
_DIGEST: Final = hashlib.sha256
_KEY_DIGITS: Final = 40
_ENTRY_NAME: Final = regex(rf"[0-9a-f]{{{_KEY_DIGITS}}}\.hloomcode")
_TEMPORARY_NAME: Final = regex(rf"\.[0-9a-f]{{{_KEY_DIGITS}}}-[0-9a-f]{{16}}\.hloomcode")
_TEMPORARY_SECONDS: Final = 3600.0
"""Age from which a temporary file is taken to be left behind by a process that died."""
_LENGTH: Final = struct.Struct("<Q")
_DEFAULT_LIMIT_MIB: Final = 512
PACKAGES_OUTSIDE_KEY: Final = frozenset(("debug", "fuzzing", "jax", "jaxlib", "proofs", "sharding", "tools"))
"""Packages that the compiler does not import; their sources are not part of the key of its programs."""
_PACKAGE: Final = str(Path(__file__).parents[2])
"""The folder of the package hloom."""
_KEPT_PART: Final = 0.75
"""Fraction of the size limit that eviction leaves."""
_OPEN: Final = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"))
"""Flags of every open: no symbolic links, no inheritance, no blocking on a FIFO. Windows has none of them."""
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectory(OSError):
    """Raised for a cache directory that belongs to another user, or that other users may write to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled program as the cache stores it.

    Attributes:
        facts: properties of the program as JSON values; see `ProgramFacts`.
        parts: the object files, then the contents of the constants in the order of the fact ``data``.
    """

    facts: Mapping[str, object]
    parts: Sequence[bytes]

    def to_bytes(self, key: str) -> bytes:
        """Return the content of the cache file that stores this entry under ``key``."""
        facts = json.dumps(self.facts, separators=(",", ":")).encode()
        pieces = [key.encode(), facts, *self.parts]
        header = b"".join(map(_LENGTH.pack, [len(pieces), *map(len, pieces)]))
        body = b"".join((header, *pieces))
        return _MAGIC + _DIGEST(body).digest() + body

    @staticmethod
    def from_bytes(data: bytes, key: str) -> Entry | None:
        """Parse the content of a cache file.

        Returns None if it is damaged, malformed, or the entry of another key.
        """
        start = len(_MAGIC) + _DIGEST().digest_size
        body = data[start:]
        if not data.startswith(_MAGIC) or _DIGEST(body).digest() != data[len(_MAGIC) : start]:
            return None
        pieces = _pieces(body)
        if pieces is None or len(pieces) < 2 or pieces[0] != key.encode():
            return None
        try:
            facts: object = json.loads(pieces[1])
        except (ValueError, RecursionError):
            return None
        return Entry(facts, pieces[2:]) if _is_object(facts) else None


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a parsed JSON value is an object, that is, a dictionary."""
    return isinstance(value, dict)


def _pieces(body: bytes) -> list[bytes] | None:
    """Split the body of a cache file, as written by `Entry.to_bytes`, into the byte strings that it holds.

    The body consists of the number of strings, their lengths, then the strings. Returns None if the lengths
    do not add up to the body's length.
    """
    if len(body) < _LENGTH.size:
        return None
    (count,) = _LENGTH.unpack_from(body, 0)
    position = _LENGTH.size * (count + 1)
    if position > len(body):
        return None
    pieces: list[bytes] = []
    for number in range(count):
        (length,) = _LENGTH.unpack_from(body, _LENGTH.size * (number + 1))
        pieces.append(body[position : position + length])
        position += length
    return pieces if position == len(body) else None


class CodeCache:
    """A directory of compiled programs, one file for each.

    Args:
        directory: the path; the directory is created when the first entry is stored.
        limit: the total size of the entries in bytes; when it is exceeded, the least recently used ones are
            removed.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._written = 0

    def get(self, key: str) -> Entry | None:
        """Return the entry stored under ``key``; None if there is none that is intact and safe to run.

        An entry is not safe if another user may write its file. A damaged entry is removed.
        """
        name = key + _SUFFIX
        try:
            with self._opened_directory() as directory:
                descriptor = os.open(name, os.O_RDONLY | _OPEN, dir_fd=directory)
                with open(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    if not _is_safe(status, stat.S_IFREG) or status.st_size > self.limit:
                        return None
                    data = file.read()
                entry = Entry.from_bytes(data, key)
                if entry is not None:
                    _touch(name, directory)
                elif data.startswith(_ANY_MAGIC):
                    os.unlink(name, dir_fd=directory)
        except UnsafeDirectory as error:
            self._warn(error)
            return None
        except OSError:
            return None
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Store an entry under ``key``; return whether it was stored.

        Returns False if the entry exceeds the size limit, or the disk is full or read-only.
        """
        data = entry.to_bytes(key)
        if len(data) > self.limit:
            return False
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened_directory() as directory:
                _write(data, key, directory)
                self._written += len(data)
                # Eviction lists the whole directory, which takes long if it is full: not for each entry.
                if self._written > self.limit >> 6 or key.endswith("0"):
                    self._written = 0
                    self._evict(directory)
        except UnsafeDirectory as error:
            self._warn(error)
            return False
        except OSError as error:
            if os.environ.get("HLOOM_CACHE_DIR"):
                self._warn(error)
            return False
        return True

    @contextmanager
    def _opened_directory(self) -> Generator[int]:
        """Open the cache directory for a ``with`` block; yield its file descriptor.

        Raises UnsafeDirectory if the directory belongs to another user or other users may write to it.
        """
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _is_safe(os.fstat(descriptor), stat.S_IFDIR):
                raise UnsafeDirectory(
                    "other users own it or may write to it, and could place machine code in it; "
                    f"set HLOOM_CACHE_DIR to a directory of your own, or run: chmod go-w {self.directory}"
                )
            yield descriptor
        finally:
            os.close(descriptor)

    def _warn(self, error: OSError) -> None:
        _warn_once(f"compiled programs are not kept in {self.directory}: {error}")

    def _evict(self, directory: int) -> None:
        """Remove the least recently used entries if the total size of all entries exceeds the limit.

        Only files that a cache has written are removed, recognized by their names and the magic string at
        their beginning; old temporary files are among them. ``directory`` is a file descriptor.
        """
        entries: list[tuple[float, int, str]] = []
        abandoned = time.time() - _TEMPORARY_SECONDS
        with os.scandir(directory) as files:
            for file in files:
                temporary = _TEMPORARY_NAME.fullmatch(file.name) is not None
                if temporary or _ENTRY_NAME.fullmatch(file.name):
                    try:
                        status = file.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode) and not (temporary and status.st_mtime > abandoned):
                        entries.append((status.st_mtime, status.st_size, file.name))
        if sum(size for _, size, _ in entries) <= self.limit:
            return
        evictable = sorted(item for item in entries if _begins_with_magic(item[2], directory))
        total = sum(size for _, size, _ in evictable)
        for _, size, name in evictable if total > self.limit else ():
            try:
                os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            total -= size
            if total <= self.limit * _KEPT_PART:
                return


def _is_safe(status: os.stat_result, kind: int) -> bool:
    """Return whether a file has the type ``kind``, belongs to the effective user, and only they can write it.

    ``kind`` is a file type such as `stat.S_IFREG`, ``status`` the result of `os.fstat`.
    """
    mode = status.st_mode
    return stat.S_IFMT(mode) == kind and status.st_uid == os.geteuid() and not mode & _OTHERS_WRITE


def _write(data: bytes, key: str, directory: int) -> None:
    """Write ``data`` to the cache file of ``key``, under a temporary name first, then rename the file.

    ``directory`` is the file descriptor of the cache directory. Raises OSError.
    """
    temporary = f".{key}-{os.urandom(8).hex()}{_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(data)
        os.replace(temporary, key + _SUFFIX, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _touch(name: str, directory: int) -> None:
    """Set the modification time of the cache file ``name`` to now; for eviction it is the time of last use.

    Errors are ignored: another process may have removed the file, or the disk may be read-only. ``directory``
    is the file descriptor of the cache directory.
    """
    with suppress(OSError):
        os.utime(name, dir_fd=directory, follow_symlinks=False)


def _begins_with_magic(name: str, directory: int) -> bool:
    try:
        with open(os.open(name, os.O_RDONLY | _OPEN, dir_fd=directory), "rb") as file:
            return file.read(len(_ANY_MAGIC)) == _ANY_MAGIC
    except OSError:
        return False


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def configured_cache() -> CodeCache | None:
    """Return the cache that environment variables configure; None if ``HLOOM_CACHE`` disables the cache.

    Raises HloError (rule ``cpu.cache-limit``) for a size limit that is not a number.
    """
    if os.environ.get("HLOOM_CACHE", "1").lower() in ("0", "off", "no", "false"):
        return None
    limit_text = os.environ.get("HLOOM_CACHE_LIMIT", str(_DEFAULT_LIMIT_MIB))
    if not limit_text.isdecimal():
        message = f"HLOOM_CACHE_LIMIT is {limit_text!r}; a number of MiB is wanted"
        raise HloError(message, rule="cpu.cache-limit")
    directory = os.environ.get("HLOOM_CACHE_DIR")
    if directory:
        return _cache_in(directory, int(limit_text))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return _cache_in(os.path.join(base, "hloom"), int(limit_text))


@cache
def _cache_in(directory: str, mebibytes: int) -> CodeCache:
    return CodeCache(Path(directory), mebibytes << 20)


def key_of(*parts: str | bytes) -> str:
    """Return the cache key of a program: the hexadecimal digits of a digest.

    It digests ``parts``, which are all inputs of the compilation, and the `compiler_identity`.
    """
    digest = _DIGEST(compiler_identity().encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return digest.hexdigest()[:_KEY_DIGITS]


@cache
def compiler_identity() -> str:
    """Return a digest of the sizes and modification times of the compiler's source files.

    The folders of the packages on which the compiler depends, such as numpy's, count as source files. All
    cache keys include the digest, so that programs are compiled again after any of these files changes.
    """
    described = _sources(_PACKAGE, PACKAGES_OUTSIDE_KEY)
    for dependency in ("llvmlite", "numpy", "scipy", "ml_dtypes", "jaxlib"):
        for folder in sys.path:
            path = os.path.join(folder, dependency)
            with suppress(OSError):
                described.append(_described(path, os.stat(path)))
                break
    return _digest(described)


@cache
def identity_of(*packages: str) -> str:
    """Return a digest of the sizes and modification times of the source files of subpackages of hloom.

    It is for packages that `compiler_identity` leaves out since the compiler does not import them: a caller
    that uses them in a compilation adds this digest to the cache key of the program.
    """
    return _digest([line for package in packages for line in _sources(f"{_PACKAGE}/{package}")])


def _sources(package: str, excluded: Collection[str] = ()) -> list[str]:
    """Return, for each Python file in a package and its subpackages, a line with its path, size and time.

    ``package`` is the folder of the package. Subfolders whose names are in ``excluded`` are left out.
    """
    lines: list[str] = []
    skipped = {"__pycache__", *excluded}
    folders = [package]
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)  # in an open folder, files take a sixth less time
        try:
            with os.scandir(descriptor) as files:
                for file in files:
                    if file.name.endswith(".py"):
                        lines.append(_described(f"{folder}/{file.name}", file.stat()))
                    elif file.name not in skipped and file.is_dir(follow_symlinks=False):
                        folders.append(f"{folder}/{file.name}")
        finally:
            os.close(descriptor)
    return lines


def _digest(lines: list[str]) -> str:
    return _DIGEST("\n".join(sorted(lines)).encode()).hexdigest()


def _described(path: str, status: os.stat_result) -> str:
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"
