"""Native code of the run time that the package contains, compiled for each architecture when it was built.

It belongs to the sources that it was compiled from: after a change of one of them, a program compiles the
code again; see `hloom.cpu.runtime.support.load_code`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from hloom.cpu.jit.cache import Entry

_PACKAGE: Final = Path(__file__).parents[2]
_FOLDER: Final = Path(__file__).with_name("built")
SOURCES: Final = ("codegen/llvm", "codegen/structs.py", "codegen/target.py", "cpu/runtime", "jax/pjrt")
"""Files and folders of the package that determine the code."""


def read_code(kind: str, architecture: str) -> Sequence[bytes] | None:
    """Return the object files of a kind of code; None if none were built, or from other sources.

    Args:
        kind: the first word of the kind; see `hloom.cpu.runtime.support.load_code`.
        architecture: that of the processor; see `hloom.codegen.target.Target`.
    """
    try:
        data = _path(kind, architecture).read_bytes()
    except OSError:
        return None
    entry = Entry.from_bytes(data, _key())
    return None if entry is None else entry.parts


def write_code(kind: str, architecture: str, objects: Sequence[bytes]) -> None:
    """Write the object files of a kind of code, compiled from the sources as they are now."""
    _FOLDER.mkdir(exist_ok=True)
    _path(kind, architecture).write_bytes(Entry({}, objects).to_bytes(_key()))


def _path(kind: str, architecture: str) -> Path:
    return _FOLDER / f"{kind}-{architecture}.hloomcode"


@cache
def _key() -> str:
    """Return a digest of the contents of the sources."""
    digest = hashlib.sha256()
    for source in SOURCES:
        path = _PACKAGE / source
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            data = file.read_bytes()
            digest.update(f"{file.relative_to(_PACKAGE).as_posix()} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()
