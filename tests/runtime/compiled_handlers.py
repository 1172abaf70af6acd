"""The compiled handlers of ``typed_ffi_handler.c``."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("typed_ffi_handler.c")


def compiled_handlers(folder: Path) -> ctypes.CDLL:
    """Return the library, compiled into a folder; skip the test without a C compiler or XLA's headers."""
    jaxlib, compiler = importlib.util.find_spec("jaxlib"), shutil.which("cc")
    if jaxlib is None or jaxlib.origin is None or compiler is None:
        pytest.skip("needs a C compiler and the headers in jaxlib")
    made = folder / "handler.so"
    include = Path(jaxlib.origin).parent / "include"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", f"-I{include}", "-o", made, SOURCE], check=True)
    return ctypes.CDLL(str(made))
