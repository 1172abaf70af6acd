"""Targets: the processors for which code is generated, and their properties.

This machine is described by the operating system's data, so that a cached program is found without LLVM.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from hloom.errors import HloError
from hloom.records import dataclass

NATIVE: Final = "native"
"""LLVM's name for the CPU of this machine, whose name and features LLVM detects."""

OPTIMIZED: Final = 2
"""Optimization level of LLVM's code generator for code that runs long."""

QUICK: Final = 0
"""Optimization level of LLVM's code generator for code that runs for less time than it takes to optimize."""

_X86_64_V2: Final = frozenset(("sse3", "ssse3", "sse4.1", "sse4.2"))
_X86_64_V3: Final = _X86_64_V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2"}
_X86_64_V4: Final = _X86_64_V3 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}
_SAPPHIRE_RAPIDS: Final = _X86_64_V4 | {
    *("avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bf16", "avx512fp16", "avx512vpopcntdq"),
    *("avxvnni", "gfni", "amx-tile", "amx-int8", "amx-bf16"),
}
_NEOVERSE: Final = frozenset(("neon", "dotprod", "fullfp16", "sve", "bf16", "i8mm"))
_KNOWN_FEATURES: Final[Mapping[str, frozenset[str]]] = {
    "x86_64": _SAPPHIRE_RAPIDS,
    "aarch64": _NEOVERSE | {"sve2"},
}
"""Features that code generation may ask for, by architecture, under LLVM's names."""
_LINUX_NAMES: Final = {
    "sse3": "pni",
    "bmi": "bmi1",
    "neon": "asimd",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
}
"""Features to which Linux gives other names than LLVM; the others differ in punctuation only."""
_FEATURES_OF: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "x86_64": {
        "x86-64": frozenset(),
        "x86-64-v2": _X86_64_V2,
        "x86-64-v3": _X86_64_V3,
        "x86-64-v4": _X86_64_V4,
        "sapphirerapids": _SAPPHIRE_RAPIDS,
    },
    "aarch64": {
        "generic": frozenset({"neon"}),
        "neoverse-n1": frozenset({"neon", "dotprod", "fullfp16"}),
        "neoverse-v1": _NEOVERSE,
        "neoverse-v2": _NEOVERSE | {"sve2"},
    },
}
"""Processors by architecture, under LLVM's names, and their features."""
_ARCHITECTURE_OF: Final = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Architectures for which hloom generates code, by the system's names."""
_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Target:
    """The processor for which code is generated.

    Attributes:
        triple: LLVM's name of architecture and system.
        cpu: LLVM's name of the processor; ``native`` for this machine's.
        features: features of the processor, by LLVM's names.
        model: further properties that distinguish this machine's processor from others.
        reproducible: results have the same bits on all processors that multiply and add with one rounding.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    model: str = ""
    reproducible: bool = False

    @staticmethod
    def named(triple: str, cpu: str = "") -> Target:
        """Return a target by LLVM's names, such as ``aarch64-linux-gnu`` and ``neoverse-v2``.

        Raises HloError for an unknown architecture or processor.
        """
        architecture = triple.partition("-")[0]
        if architecture not in _ARCHITECTURE_OF.values():
            message = f"the target's architecture is {architecture!r}; known are x86_64 and aarch64"
            raise HloError(message, rule="cpu.target-architecture")
        processors = _FEATURES_OF[architecture]
        processor = cpu or next(iter(processors))
        if processor not in processors:
            raise HloError(
                f"the target's CPU is {processor!r}; known are {', '.join(processors)}", rule="cpu.target-cpu"
            )
        return Target(triple, processor, processors[processor])

    @property
    def architecture(self) -> str:
        """``x86_64`` or ``aarch64``."""
        return self.triple.partition("-")[0]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector registers worth using."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else 16

    @property
    def least_masked_bytes(self) -> int:
        """Bytes of the smallest elements whose masked loads and stores are as fast as those of fewer lanes.

        Without AVX-512 there are none of bytes, and a masked store of f32 takes a Zen 3 some 40 operations.
        """
        if "avx512bw" in self.features:
            return 1
        return 8 if "avx" in self.features else 16

    @property
    def partial_sum_bytes(self) -> int:
        """Bytes of the vectors whose lanes add up parts of one sum, which decides the order of additions."""
        return 32 if self.reproducible else self.vector_bytes

    @property
    def cache_line_bytes(self) -> int:
        """Bytes of a cache line; memory aligned to it shares no line with other memory."""
        return 64

    def has(self, *features: str) -> bool:
        """Return whether the processor has all of these features."""
        return self.features.issuperset(features)

    @property
    def identity(self) -> str:
        """A string equal for targets that can run each other's code; part of the cache's keys."""
        described = "|".join((self.triple, self.cpu, self.model, *sorted(self.features)))
        if self.reproducible:
            described += "|reproducible"
        return hashlib.sha256(described.encode()).hexdigest()[:16]


def platform_error() -> HloError | None:
    """Return an error by the rule ``cpu.platform`` if native code cannot run on this platform, else None.

    It needs Linux (futexes, executable memory), the GNU C library (the layouts of its structs) and a 64-bit
    Python on x86-64 or aarch64.
    """
    if sys.platform == "linux":
        machine, bits = os.uname().machine, 8 * struct.calcsize("P")
        if machine in _ARCHITECTURE_OF and bits == 64 and _has_gnu_library():
            return None
        system = f"linux on {machine} with a Python of {bits} bits" + (
            "" if _has_gnu_library() else " and another C library"
        )
    else:
        import platform

        system = f"{sys.platform} on {platform.machine()}"
    message = (
        "the cpu backend runs on Linux with the GNU C library, on x86-64 and aarch64; "
        f"this is {system}: use backend='evaluator'"
    )
    return HloError(message, rule="cpu.platform")


def _has_gnu_library() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return False


def require_native_platform() -> None:
    """Raise HloError by the rule ``cpu.platform`` if native code cannot run on this platform."""
    error = platform_error()
    if error is not None:
        raise error


@cache
def host() -> Target:
    """Return this machine; raises HloError by the rule ``cpu.platform`` if native code cannot run on it.

    With ``HLOOM_REPRODUCIBLE=1`` in the environment its results are reproducible.
    """
    require_native_platform()
    architecture = _ARCHITECTURE_OF[os.uname().machine]
    described = first_processor(_CPUINFO)
    flags = frozenset((described.get("flags") or described.get("Features") or "").split())
    letters = {_letters(flag) for flag in flags}
    names = _KNOWN_FEATURES[architecture]
    features = frozenset(name for name in names if _letters(_LINUX_NAMES.get(name, name)) in letters)
    model = "|".join(f"{k}={v}" for k, v in sorted(described.items()) if k in _MODEL_KEYS)
    flags_digest = hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest()[:16]
    reproducible = os.environ.get("HLOOM_REPRODUCIBLE", "0").lower() not in ("", "0", "off", "no", "false")
    target = Target(f"{architecture}-unknown-linux-gnu", NATIVE, features, f"{model}|{flags_digest}")
    if target.has("amx-tile") and not _permits_tiles():
        target = without_tile_registers(target)
    return reproducible_target(target) if reproducible else target


def _permits_tiles() -> bool:
    """Ask Linux to let this process use AMX's tile registers; return whether it does.

    Linux enlarges the memory in which it saves a thread's registers, and does so on request only.
    """
    import ctypes

    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0


_ARCH_PRCTL: Final = 158
"""Number of the system call ``arch_prctl`` on x86-64."""
_REQUEST_STATE: Final = 0x1023
"""``ARCH_REQ_XCOMP_PERM``."""
_TILE_DATA: Final = 18
"""Number of the processor state that has the tile registers."""
_PUNCTUATION: Final = str.maketrans("", "", "._-")


def _letters(name: str) -> str:
    """Return the name of a feature without punctuation: Linux writes sse4_1, LLVM sse4.1."""
    return name.translate(_PUNCTUATION)


_MODEL_KEYS: Final = (
    "vendor_id",
    "cpu family",
    "model",
    "stepping",
    "CPU implementer",
    "CPU part",
    "CPU variant",
)


def first_processor(cpuinfo: Path) -> dict[str, str]:
    """Return the first processor's fields of a file such as ``/proc/cpuinfo``; none if it does not exist."""
    fields: dict[str, str] = {}
    try:
        with cpuinfo.open() as lines:
            for line in lines:
                if not line.strip():
                    break
                key, _, value = line.partition(":")
                fields[key.strip()] = value.strip()
    except OSError:
        pass
    return fields


def reproducible_target(target: Target) -> Target:
    """Return a target on which results are reproducible; raises HloError by ``compile.reproducible``."""
    if not fuses(target):
        message = f"{target.triple} ({target.cpu}) rounds a * b + c twice; reproducible results need FMA"
        raise HloError(message, rule="compile.reproducible")
    return replace(target, reproducible=True)


def without_tile_registers(target: Target) -> Target:
    """Return the target without AMX, for code whose process may not have asked Linux for tile registers."""
    return replace(target, features=frozenset(f for f in target.features if not f.startswith("amx")))


# -- facts that code generation depends on


def fuses(target: Target) -> bool:
    """Return whether the target multiplies and adds with one rounding."""
    return target.architecture == "aarch64" or target.has("fma")


def converts_half(target: Target) -> bool:
    """Return whether the target converts between f16 and f32."""
    return target.architecture == "aarch64" or target.has("f16c")


def rounds(target: Target) -> bool:
    """Return whether the target rounds floats to integral ones."""
    return target.architecture == "aarch64" or target.has("sse4.1")


def is_slow_with_subnormals(target: Target) -> bool:
    """Return whether a product or quotient that is subnormal takes the processor 100 cycles."""
    return target.architecture == "x86_64" and "AuthenticAMD" not in target.model


def has_avx512(target: Target) -> bool:
    """Return whether the target has AVX-512 for vectors of every length and 64-bit integers."""
    return target.has("avx512f", "avx512vl", "avx512dq")


def registers(target: Target) -> int:
    """Return the number of vector registers."""
    return 32 if target.architecture == "aarch64" or target.has("avx512f") else 16


def multiplies_pairs(target: Target) -> bool:
    """Return whether the target has fast products of bf16 numbers, which round as those of no other do.

    On Intel's processors ``vdpbf16ps`` takes four times as long as ``vfmadd``, and only AMX is fast.
    """
    is_fast = "GenuineIntel" not in target.model or target.has("amx-bf16")
    return target.has("avx512bf16", "avx512vl") and is_fast and not target.reproducible
