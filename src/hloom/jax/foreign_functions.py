"""C functions that programs of JAX call: those that ``jax.ffi.register_ffi_target`` registers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, cast

_OWN: Final = "lapack_"
"""Beginning of targets that hloom serves itself, although jaxlib registers its functions for them."""
_registering: Final = threading.Lock()
_waiting: Final[list[tuple[str, Any]]] = []
"""Targets and functions for the next compilation; registering them loads the compiler's operations."""


def install(platform: str) -> None:
    """Let JAX hand over the functions for a platform; one other than cpu gets those for cpu as well."""
    client: Any = import_module("jax._src.lib").xla_client
    client.register_custom_call_handler(platform, _register)
    if platform != "cpu":
        stock: Any = import_module("jaxlib._jax").register_custom_call_target

        def register_twice(name: str, function: Any, *rest: Any) -> None:
            stock(name, function, *rest)
            _register(name, function, *rest)

        client.register_custom_call_handler("cpu", register_twice)


def _register(name: str | bytes, function: Any, *_: Any) -> None:
    """Register a function, or the functions of the stages of a call."""
    target = name.decode() if isinstance(name, bytes) else name
    if target.startswith(_OWN):
        return
    if isinstance(function, Mapping):
        stages = cast("Mapping[str, Any]", function)
        function = stages["execute"] if set(stages) == {"execute"} else _refusal(stages)
    _waiting.append((target, function))


def register_targets() -> None:
    """Register the functions that JAX has passed since the last compilation."""
    from hloom.runtime.custom_call import register_custom_call

    with _registering:
        while _waiting:
            register_custom_call(*_waiting.pop(0))


def _refusal(stages: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that refuses to run a call of several stages, which keeps a state between them."""

    def refuse(*_: Any) -> Any:
        raise NotImplementedError(
            f"it has the stages {', '.join(sorted(stages))}; hloom serves execute alone"
        )

    return refuse
