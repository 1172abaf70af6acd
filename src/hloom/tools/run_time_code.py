"""Compile the run time's native code for the package, when that is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hloom.codegen.target import Target
from hloom.cpu.jit.llvm import generate
from hloom.cpu.runtime.built_code import write_code
from hloom.cpu.runtime.support_code import object_codes, support_code
from hloom.jax.pjrt.routines import called_routines, exported_routines

ARCHITECTURES: Final = ("x86_64", "aarch64")
KINDS: Final[Mapping[str, Callable[[Target], list[tuple[str, int]]]]] = {
    "support": support_code,
    "pjrt": lambda target: object_codes(target, called_routines(), exported_routines()),
}
"""The emitters of the run time's code and of the JAX plug-in's.

Each returns the LLVM IR and the optimization level of every object file for a target.
"""


def compile_run_time() -> None:
    """Compile the code of every kind for the oldest processors of every architecture, and write it."""
    for architecture in ARCHITECTURES:
        target = Target.named(f"{architecture}-unknown-linux-gnu")
        for kind, emit in KINDS.items():
            codes = emit(target)
            objects = [generate(text, target, inline_and_promote=True, level=level) for text, level in codes]
            write_code(kind, architecture, objects)
