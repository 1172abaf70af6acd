"""LLVM behind a narrow door: text in, object code or assembly out.

llvmlite's own binding holds one lock around every call. The same shared library through plain ctypes releases
it, so that modules compile on several threads, each with a context and a target machine of its own.
"""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from hloom.errors import HloError

_SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "DisposeModule": (None, (c_void_p,)),
    "VerifyModule": (c_int, (c_void_p, c_void_p)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, c_void_p)),
    "CreateTargetMachine": (
        c_void_p,
        (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "DisposeTargetMachine": (None, (c_void_p,)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, c_void_p)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "GetProcessTriple": (None, (POINTER(c_char_p),)),
    "GetHostCPUName": (None, (POINTER(c_char_p),)),
    "GetHostCPUFeatures": (None, (POINTER(c_char_p),)),
    "SetCommandLine": (None, (c_char_p, c_char_p)),
}
_OPTIONS: Final = (b"-enable-misched=false", b"-disable-post-ra", b"-disable-lsr")
"""Passes of the code generator that cost most of its time and gained nothing on measured kernels."""


class CompilerError(HloError):
    """Code that LLVM refuses: a defect of hloom, never of the program."""


class _Library:
    """llvmlite's shared library with typed functions."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("llvmlite")
        if spec is None or not spec.submodule_search_locations:
            raise CompilerError("llvmlite is not installed", rule="cpu.llvmlite-missing")
        folder = Path(next(iter(spec.submodule_search_locations))) / "binding"
        found = [
            p
            for p in folder.iterdir()
            if p.stem.endswith("llvmlite") and p.suffix in (".so", ".dylib", ".dll")
        ]
        if not found:
            raise CompilerError(f"no shared library in {folder}", rule="cpu.llvmlite-missing")
        library = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        for name in ("InitializeAllTargetInfos", "InitializeAllTargets", "InitializeAllTargetMCs",
                     "InitializeAllAsmPrinters"):  # fmt: skip
            getattr(self, name)()
        for option in _OPTIONS:
            self.SetCommandLine(b"hloom", option)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def text_of(self, name: str) -> str:
        """The string that a getter hands out."""
        out = c_char_p()
        getattr(self, name)(byref(out))
        return (out.value or b"").decode()


@cache
def library() -> _Library:
    """The shared library, loaded on first use."""
    return _Library()


def host() -> tuple[str, str, str]:
    """Triple, CPU name and features of this machine as LLVM names them."""
    lib = library()
    return lib.text_of("GetProcessTriple"), lib.text_of("GetHostCPUName"), lib.text_of("GetHostCPUFeatures")


def generate(
    text: str, triple: str, cpu: str, features: str, *, level: int = 2, assembly: bool = False, relocation: str = "pic",
    code_model: str = "small",
) -> bytes:  # fmt: skip
    """Object code (or assembly) of a module's text; raises CompilerError where LLVM refuses it."""
    lib = library()
    error = c_char_p()
    target = lib.GetTargetFromTriple(triple.encode(), byref(error))
    if not target:
        raise CompilerError((error.value or b"unknown target").decode(), rule="cpu.target")
    machine = lib.CreateTargetMachine(
        target, triple.encode(), cpu.encode(), features.encode(), level, relocation.encode(), code_model.encode(),
        0, 0, b"",
    )  # fmt: skip
    context = lib.ContextCreate()
    module = None
    try:
        module = lib.ParseAssembly(context, text.encode(), byref(error))
        if not module:
            raise CompilerError((error.value or b"").decode(), rule="cpu.llvm-parse")
        if lib.VerifyModule(module, byref(error)):
            raise CompilerError((error.value or b"").decode(), rule="cpu.llvm-verify")
        buffer = lib.TargetMachineEmitToMemory(machine, module, 0 if assembly else 1, byref(error))
        if not buffer:
            raise CompilerError((error.value or b"").decode(), rule="cpu.llvm-emit")
        code = ctypes.string_at(lib.GetBufferStart(buffer), lib.GetBufferSize(buffer))
        lib.DisposeMemoryBuffer(buffer)
        return code
    finally:
        if module:
            lib.DisposeModule(module)
        lib.ContextDispose(context)
        lib.DisposeTargetMachine(machine)
