"""C functions that programs of JAX call: those that ``jax.ffi.register_ffi_target`` registers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, cast

from hloom.jaxlib import private

_OWN: Final = "lapack_"
"""Beginning of targets that hloom serves itself, although jaxlib registers its functions for them."""
_registering: Final = threading.Lock()
_waiting: Final[list[tuple[str, Any]]] = []
"""Targets and functions for the next compilation; registering them loads the compiler's operations."""
_waiting_types: Final[list[tuple[str, Any]]] = []
"""Types of states likewise."""
_staged: Final[set[bytes]] = set()
"""Targets with more stages than one."""


def install(platform: str) -> None:
    """Let JAX hand over functions and types for a platform; one other than cpu gets those for cpu as well."""
    private.register_custom_call_handler()(platform, _register)
    private.register_custom_type_handler()(platform, _register_type)
    if platform != "cpu":

        def register_twice(name: str, function: object, *rest: object) -> None:
            private.register_custom_call_target()(name, function, *rest)
            _register(name, function, *rest)

        def register_type_twice(name: str, registration: object) -> None:
            private.register_custom_type()(name, registration)
            _register_type(name, registration)

        private.register_custom_call_handler()("cpu", register_twice)
        private.register_custom_type_handler()("cpu", register_type_twice)


def _register(name: str | bytes, function: object, *_: object) -> None:
    """Register a function, or the functions of the stages of a call."""
    target = name.decode() if isinstance(name, bytes) else name
    if target.startswith(_OWN):
        return
    if isinstance(function, Mapping):
        stages = cast("Mapping[str, Any]", function)
        if set(stages) == {"execute"}:
            function = stages["execute"]
        else:
            function = dict(stages)
            _staged.add(target.encode())
    _waiting.append((target, function))


def _register_type(name: str | bytes, registration: object) -> None:
    _waiting_types.append((name.decode() if isinstance(name, bytes) else name, registration))


def keeps_state(artifact: bytes) -> bool:
    """Return whether a program may call a target with stages, whose state belongs to one executable."""
    return any(target in artifact for target in _staged)


def register_targets() -> None:
    """Register the functions that JAX has passed since the last compilation."""
    from hloom.operations.ffi_services import register_type
    from hloom.runtime.custom_call import capsule_address, register_custom_call

    with _registering:
        while _waiting_types:
            name, registration = _waiting_types.pop(0)
            alone = not isinstance(registration, Mapping)
            given = {"type_id": registration} if alone else cast("Mapping[str, Any]", registration)
            addresses = {key: capsule_address(value) for key, value in given.items()}
            register_type(name, addresses["type_id"], addresses.get("type_info"))
        while _waiting:
            register_custom_call(*_waiting.pop(0))
