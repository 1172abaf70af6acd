"""Passes: rewrites of modules, by XLA's names.

::

    hloom.passes.run(module, "cse,algsimp,dce")
    hloom.passes.passes()                          # every pass by name
    hloom.passes.pass_named("algsimp")().run(module)

Names are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hloom.passes.pipeline import Pass as Pass
    from hloom.passes.pipeline import Pipeline as Pipeline
    from hloom.passes.registry import pass_named as pass_named
    from hloom.passes.registry import passes as passes
    from hloom.passes.registry import run as run

_HOMES: Final = {
    "Pass": "pipeline",
    "Pipeline": "pipeline",
    "pass_named": "registry",
    "passes": "registry",
    "run": "registry",
}
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hloom.passes' has no attribute {name!r}")
    return getattr(import_module(f"hloom.passes.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
