"""Interface to LLVM: IR text in, object code or assembly out.

llvmlite's own binding holds a lock around every call. Plain ctypes calls of the same shared library do not,
so that modules compile on several threads, each with a context and a target machine of its own.

LLVM's code generator ends the process for input that it does not support. Every module is therefore verified
first, and intrinsics of other processors, which the verifier accepts, are refused. Very wide vectors and
inline assembly cannot be expressed by `hloom.codegen.llvm`.
"""

from __future__ import annotations

import contextvars
import ctypes
import importlib.util
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from hloom.codegen.llvm import Attribute, Module, print_module
from hloom.codegen.llvm.attributes import SIMPLIFIED
from hloom.codegen.target import NATIVE, OPTIMIZED, Target
from hloom.errors import HloError
from hloom.phases import phase

Handle: TypeAlias = int | None
"""An object of LLVM; None is null."""
_CType: TypeAlias = "type[c_void_p | c_char_p | c_int | c_size_t]"
_SIGNATURES: Final[dict[str, tuple[_CType | None, tuple[_CType, ...]]]] = {
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "DisposeModule": (None, (c_void_p,)),
    "LinkModules": (c_int, (c_void_p, c_void_p, c_void_p)),
    "SetLinkage": (None, (c_void_p, c_int)),
    "VerifyModule": (c_int, (c_void_p, c_void_p)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, c_void_p)),
    "CreateTargetMachine": (
        c_void_p,
        (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, c_void_p)),
    "CreatePipelineTuningOptions": (c_void_p, ()),
    "DisposePipelineTuningOptions": (None, (c_void_p,)),
    "CreatePassBuilder": (c_void_p, (c_void_p, c_void_p)),
    "DisposePassBuilder": (None, (c_void_p,)),
    "CreateNewModulePassManager": (c_void_p, ()),
    "module_AddAlwaysInlinerPass": (None, (c_void_p,)),
    "module_AddSROAPass": (None, (c_void_p,)),
    "module_AddInstCombinePass": (None, (c_void_p,)),
    "module_AddSimplifyCFGPass": (None, (c_void_p,)),
    "RunNewModulePassManager": (None, (c_void_p, c_void_p, c_void_p)),
    "DisposeNewModulePassManger": (None, (c_void_p,)),
    "buildFunctionSimplificationPipeline": (c_void_p, (c_void_p, c_int)),
    "RunNewFunctionPassManager": (None, (c_void_p, c_void_p, c_void_p)),
    "DisposeNewFunctionPassManger": (None, (c_void_p,)),
    "GetNamedFunction": (c_void_p, (c_void_p, c_char_p)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "GetHostCPUName": (None, (c_void_p,)),
    "GetHostCPUFeatures": (None, (c_void_p,)),
    "SetCommandLine": (None, (c_char_p, c_char_p)),
}
_LONG: Final = frozenset(
    ("LinkModules", "RunNewFunctionPassManager", "RunNewModulePassManager", "TargetMachineEmitToMemory")
)
"""Functions during which other threads run Python. Afterwards the thread needs the interpreter's lock again,
for which it waits up to 5 ms while another thread computes, longer than the other functions take."""

_OPTIONS: Final = (b"-enable-misched=false", b"-disable-post-ra", b"-disable-lsr", b"-disable-cgp")
"""Disables passes of the code generator that cost most of its time and gained nothing on measured kernels.
CodeGenPrepare, a third of the time, also joins the blocks into which `Function.split_block` divides code."""

_ALIGNED_BRANCHES: Final = b"-x86-branches-within-32B-boundaries"
_JUMP_ERRATUM_PROCESSORS: Final = frozenset(("skylake", "skylake-avx512", "cascadelake"))
"""Processors with Intel's erratum SKX102: their microcode keeps a 32-byte line out of the cache of decoded
instructions if a jump crosses its end or ends there. Depending on their addresses, short loops took up to 1.8
times as long."""

STRAIGHT: Final = Attribute("hloom-straight", "")
"""Attribute of functions without loops, whose instructions run once per run of the program."""

_INTERNAL: Final = 8
"""LLVM's internal linkage, as llvmlite numbers it."""

_INTRINSIC_FEATURES: Final = (
    ("llvm.x86.avx512bf16.", ("avx512bf16",)),
    ("llvm.x86.avx512.vpdp", ("avx512vnni",)),
    ("llvm.x86.avx512", ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
    ("llvm.x86.avx2.", ("avx2",)),
    ("llvm.x86.avx.", ("avx",)),
    ("llvm.x86.fma.", ("fma",)),
    ("llvm.x86.ssse3.", ("ssse3",)),
    ("llvm.x86.sse41.", ("sse4.1",)),
    ("llvm.x86.sse42.", ("sse4.2",)),
    ("llvm.x86.ldtilecfg", ("amx-tile",)),
    ("llvm.x86.tile", ("amx-tile",)),
    ("llvm.x86.tdpbf16ps", ("amx-bf16",)),
    ("llvm.x86.tdpb", ("amx-int8",)),
    ("llvm.x86.sse2.", ()),
    ("llvm.x86.sse.", ()),
    ("llvm.aarch64.neon.", ("neon",)),
    ("llvm.aarch64.crc32", ("neon",)),
    ("llvm.aarch64.hint", ()),
)
"""Processor-specific intrinsics that code may use, by prefix, with the features that they need."""

_PROCESSORS: Final = ("x86", "aarch64", "arm", "amdgcn", "nvvm", "wasm", "riscv", "ppc", "s390")
"""Processors by which LLVM's intrinsics are named, as in ``llvm.x86.avx2.permd``."""


class CompilerError(HloError):
    """Raised for code that LLVM refuses; this is a defect of hloom, not of the compiled program."""


class _Library:
    """llvmlite's shared library, loaded by ctypes.

    Its attributes are the functions in `_SIGNATURES`, each under its name without the prefix ``LLVMPY_``.
    """

    def __init__(self) -> None:
        spec = importlib.util.find_spec("llvmlite")
        if spec is None or not spec.submodule_search_locations:
            raise CompilerError("llvmlite is not installed", rule="cpu.llvmlite-missing")
        folder = Path(next(iter(spec.submodule_search_locations))) / "binding"
        endings = (".so", ".dylib", ".dll")
        libraries = [p for p in folder.iterdir() if p.stem.endswith("llvmlite") and p.suffix in endings]
        if not libraries:
            raise CompilerError(f"no shared library in {folder}", rule="cpu.llvmlite-missing")
        library, quick = ctypes.CDLL(str(libraries[0])), ctypes.PyDLL(str(libraries[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library if name in _LONG else quick, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.InitializeNativeTarget()
        self.InitializeNativeAsmPrinter()
        for option in _OPTIONS:
            self.SetCommandLine(b"hloom", option)
        if self.text_of("GetHostCPUName") in _JUMP_ERRATUM_PROCESSORS:
            self.SetCommandLine(b"hloom", _ALIGNED_BRANCHES)

    def __getattr__(self, name: str) -> Callable[..., int | None]:
        raise AttributeError(name)

    def text_of(self, name: str) -> str:
        """Call the LLVM function ``name``, which returns a string through a pointer; return the string."""
        out = c_char_p()
        getattr(self, name)(byref(out))
        return (out.value or b"").decode()


_loading: Final = threading.Lock()
_loaded: list[_Library] = []


def library() -> _Library:
    """Return llvmlite's shared library, loaded and initialized for the host on first use."""
    with _loading:
        if not _loaded:
            _loaded.append(_Library())
    return _loaded[0]


@cache
def _with_every_target() -> _Library:
    lib = library()
    for name in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        getattr(lib, f"InitializeAll{name}")()
    return lib


@cache
def names(target: Target) -> tuple[str, str]:
    """Return (CPU name, comma-separated features) of ``target`` in LLVM's syntax.

    For the CPU name `NATIVE`, they are those of the host, with the features of ``target`` added.
    """
    if target.cpu == NATIVE:
        lib = library()
        found = lib.text_of("GetHostCPUFeatures").split(",")
        stated = sorted(f"+{feature}" for feature in target.features)  # LLVM asks aarch64's system for few
        return lib.text_of("GetHostCPUName"), ",".join(dict.fromkeys([*found, *stated]))
    return target.cpu, ",".join(f"+{feature}" for feature in sorted(target.features))


def check_intrinsics(module: Module, target: Target) -> None:
    """Check that ``target`` has every processor-specific intrinsic that ``module`` declares.

    LLVM's code generator would end the process at a missing one. Raises CompilerError (rule
    ``cpu.llvm-intrinsic``) if one is missing.
    """
    for name in module.declarations:
        family = name.partition(".")[2].partition(".")[0]
        if not name.startswith("llvm.") or family not in _PROCESSORS:
            continue
        needed = next((features for prefix, features in _INTRINSIC_FEATURES if name.startswith(prefix)), None)
        fits = family == target.architecture.replace("x86_64", "x86")
        if needed is None or not fits or not target.has(*needed):
            message = f"{target.triple} ({target.cpu}) has no {name}"
            raise CompilerError(message, rule="cpu.llvm-intrinsic")


def generate_module(module: Module, *, assembly: bool = False) -> bytes:
    """Compile a module for its target; return the object file, or assembly text if ``assembly``.

    Raises CompilerError if LLVM refuses the module.
    """
    check_intrinsics(module, module.target)
    return generate(
        print_module(module), module.target, assembly=assembly, simplified=simplified_names(module)
    )


def simplified_names(module: Module) -> list[str]:
    """Return the names of a module's functions whose IR LLVM is to optimize before code generation."""
    return [name for name, f in module.functions.items() if SIMPLIFIED in f.attributes]


def generate(
    text: str,
    target: Target,
    *,
    level: int = OPTIMIZED,
    assembly: bool = False,
    simplified: Sequence[str] = (),
    inline_and_promote: bool = False,
    linked: str = "",
    internal: Sequence[str] = (),
) -> bytes:
    """Compile LLVM IR for ``target``; return the object file, or assembly text if ``assembly``.

    Args:
        text: LLVM IR.
        target: the machine to make code for.
        level: optimization level of the code generator, 0 to 3; it does not affect the optimization of IR.
        assembly: return assembly instead of an object file.
        simplified: names of functions whose IR is optimized before code generation.
        inline_and_promote: inline all calls of ``alwaysinline`` functions and promote stack memory to
            registers, which takes a fifth of the time of optimizing all functions as ``simplified``.
        linked: LLVM IR of a second module to link, with functions that the first one declares; "" for none.
        internal: names of functions to give internal linkage, although ``text`` exports them.

    Raises CompilerError if LLVM refuses the text.
    """
    lib = library() if target.cpu == NATIVE else _with_every_target()
    error = c_char_p()
    with _borrowed_machine(lib, target, level) as machine:
        context = lib.ContextCreate()
        module = None
        try:
            module = _verified(lib, context, text, linked, internal)
            if inline_and_promote:
                with phase("LLVM", "optimize"):
                    _promote(lib, machine, module)
            if simplified:
                with phase("LLVM", "optimize"):
                    is_valid = _simplify(lib, machine, module, simplified)
                if not is_valid:
                    lib.DisposeModule(module)
                    module = None
                    module = _verified(lib, context, text, linked, internal)
                    _inline(lib, machine, module)
            with phase("LLVM", "generate code"):
                buffer = lib.TargetMachineEmitToMemory(machine, module, 0 if assembly else 1, byref(error))
            if not buffer:
                raise CompilerError(_message(error), rule="cpu.llvm-emit")
            code = ctypes.string_at(lib.GetBufferStart(buffer) or 0, lib.GetBufferSize(buffer) or 0)
            lib.DisposeMemoryBuffer(buffer)
            return code
        finally:
            if module:
                lib.DisposeModule(module)
            lib.ContextDispose(context)


def _verified(lib: _Library, context: Handle, text: str, linked: str, internal: Sequence[str]) -> Handle:
    """Parse LLVM IR, link a second module, give functions internal linkage, and verify the result.

    Returns the module; raises CompilerError. See `generate` for ``text``, ``linked`` and ``internal``.
    """
    error = c_char_p()
    with phase("LLVM", "parse and verify"):
        module = _parsed(lib, context, text)
    try:
        if linked and lib.LinkModules(module, _parsed(lib, context, linked), byref(error)):
            raise CompilerError(_message(error), rule="cpu.llvm-link")
        for name in internal:
            lib.SetLinkage(lib.GetNamedFunction(module, name.encode()), _INTERNAL)
        with phase("LLVM", "parse and verify"):
            if lib.VerifyModule(module, byref(error)):
                raise CompilerError(_message(error), rule="cpu.llvm-verify")
    except CompilerError:
        lib.DisposeModule(module)
        raise
    return module


def _parsed(lib: _Library, context: Handle, text: str) -> Handle:
    """Parse LLVM IR and return the module; raises CompilerError (rule ``cpu.llvm-parse``) for bad syntax."""
    error = c_char_p()
    module = lib.ParseAssembly(context, text.encode(), byref(error))
    if not module:
        raise CompilerError(_message(error), rule="cpu.llvm-parse")
    return module


_machines: Final[dict[object, list[Handle]]] = {}
"""Target machines that no thread uses, by target and options.

A machine describes its processor at the first function: features, legal types, costs. That takes as long as
the code of a short function, so machines are kept: at most one for each thread that ever compiled at once.
"""


@contextmanager
def _borrowed_machine(lib: _Library, target: Target, level: int) -> Generator[Handle]:
    """Yield one of LLVM's target machines, for the use of one thread in a ``with`` block.

    Creates one if other threads use all that exist.
    """
    idle = _machines.setdefault((target, level), [])
    try:
        machine = idle.pop()
    except IndexError:
        machine = _new_machine(lib, target, level)
    try:
        yield machine
    finally:
        idle.append(machine)


def _new_machine(lib: _Library, target: Target, level: int) -> Handle:
    """Create LLVM's target machine for ``target``; raises CompilerError for a triple unknown to LLVM."""
    cpu, features = names(target)
    triple = target.triple.encode()
    error = c_char_p()
    llvm_target = lib.GetTargetFromTriple(triple, byref(error))
    if not llvm_target:
        raise CompilerError(_message(error), rule="cpu.target")
    processor = cpu.encode(), features.encode()
    return lib.CreateTargetMachine(llvm_target, triple, *processor, level, b"pic", b"small", 0, 0, b"")


@contextmanager
def _pass_builder(lib: _Library, machine: Handle) -> Generator[Handle]:
    options = lib.CreatePipelineTuningOptions()
    builder = lib.CreatePassBuilder(machine, options)
    yield builder
    lib.DisposePassBuilder(builder)
    lib.DisposePipelineTuningOptions(options)


def _run_passes(lib: _Library, builder: Handle, module: Handle, passes: Sequence[str]) -> None:
    manager = lib.CreateNewModulePassManager()
    for name in passes:
        getattr(lib, f"module_Add{name}Pass")(manager)
    lib.RunNewModulePassManager(manager, module, builder)
    lib.DisposeNewModulePassManger(manager)


def _promote(lib: _Library, machine: Handle, module: Handle) -> None:
    """Run LLVM passes that inline ``alwaysinline`` functions and promote stack memory to registers."""
    with _pass_builder(lib, machine) as builder:
        _run_passes(lib, builder, module, ("AlwaysInliner", "SROA", "InstCombine", "SimplifyCFG"))


def _simplify(lib: _Library, machine: Handle, module: Handle, functions: Sequence[str]) -> bool:
    """Run LLVM's passes that inline ``alwaysinline`` functions and simplify ``functions``.

    They promote stack memory to registers, and move invariant code out of loops. Neither order nor rounding
    of floating-point operations changes.

    Returns whether the module is valid afterwards; the code generator would end the process on an invalid
    one. Up to LLVM 22.1, SROA makes a module invalid if vectors are stored to an array in an order different
    from that of their addresses: it uses some before their definitions (llvm/llvm-project#189680).
    """
    with _pass_builder(lib, machine) as builder:
        _run_passes(lib, builder, module, ("AlwaysInliner", "SROA"))
        if lib.VerifyModule(module, byref(c_char_p())):
            return False
        for name in functions:
            simplify = lib.buildFunctionSimplificationPipeline(builder, 2)
            lib.RunNewFunctionPassManager(simplify, lib.GetNamedFunction(module, name.encode()), builder)
            lib.DisposeNewFunctionPassManger(simplify)
    return not lib.VerifyModule(module, byref(c_char_p()))


def _inline(lib: _Library, machine: Handle, module: Handle) -> None:
    """Run LLVM passes that inline ``alwaysinline`` functions and simplify code, but keep stack memory."""
    with _pass_builder(lib, machine) as builder:
        _run_passes(lib, builder, module, ("AlwaysInliner", "InstCombine", "SimplifyCFG"))


def _message(error: c_char_p) -> str:
    return (error.value or b"LLVM gives no reason").decode(errors="replace").strip()


class CodeQueue:
    """A queue of LLVM IR modules, which threads compile to object files as soon as they are added.

    Args:
        target: the machine to make code for.
        threads: number of threads that compile at the same time, including the caller's while it is in
            `finish`.
        level: optimization level of the code generator; see `generate`.
    """

    def __init__(self, target: Target, threads: int, level: int = OPTIMIZED) -> None:
        self.target, self.level = target, level
        self._helpers_wanted = threads - 1
        self._helpers: list[threading.Thread] = []
        self._jobs: list[tuple[str, Sequence[str], int]] = []
        self._made: list[bytes | Exception] = []
        self._begun = 0
        self._lock = threading.Lock()

    def add(
        self, text: str, simplified: Sequence[str] = (), *, last: bool = False, level: int | None = None
    ) -> None:
        """Add a module to the queue, and start a thread that compiles it, unless enough threads are running.

        Args:
            text: LLVM IR of the module.
            simplified: names of functions whose IR is optimized; see `generate`.
            last: start no thread; the caller's thread compiles the module in `finish`.
            level: optimization level of the code generator; None for that of the queue.
        """
        with self._lock:
            self._jobs.append((text, simplified, self.level if level is None else level))
            self._made.append(b"")
            if last:
                return
            self._helpers = [h for h in self._helpers if h.is_alive()]
            if len(self._helpers) >= self._helpers_wanted:
                return
            work = contextvars.copy_context().run
            helper = threading.Thread(target=work, args=(self._work,), name="hloom compiler")
            self._helpers.append(helper)
        helper.start()

    def finish(self) -> list[bytes]:
        """Compile the modules that no thread has begun, and wait for the other threads.

        Returns the object files of all modules in the order of `add`; raises CompilerError if LLVM refuses
        one.
        """
        self._work()
        for helper in self._helpers:
            if helper.is_alive():
                helper.join()
        for result in self._made:
            if isinstance(result, Exception):
                raise result
        return [result for result in self._made if isinstance(result, bytes)]

    def _work(self) -> None:
        while True:
            with self._lock:
                number = self._begun
                if number == len(self._jobs):
                    return
                self._begun += 1
            try:
                text, simplified, level = self._jobs[number]
                self._made[number] = generate(text, self.target, level=level, simplified=simplified)
            except Exception as error:  # raised again in the caller's thread
                self._made[number] = error


def generate_all(texts: Sequence[str], target: Target, threads: int) -> list[bytes]:
    """Compile LLVM IR texts on ``threads`` threads; return the object file of each.

    Raises CompilerError if LLVM refuses a text.
    """
    queue = CodeQueue(target, threads)
    for text in texts:
        queue.add(text)
    return queue.finish()
