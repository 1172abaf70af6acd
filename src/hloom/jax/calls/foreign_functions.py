"""C functions that JAX programs call, registered by ``jax.ffi.register_ffi_target``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, cast

from hloom.jaxlib import private

_BUILT_IN: Final = "lapack_"
"""Prefix of targets that hloom implements itself; jaxlib's functions for them are ignored."""
_registering: Final = threading.Lock()
_pending: Final[list[tuple[str, Any]]] = []
"""Targets and functions to register at the next compilation, which loads the operations that need them."""
_pending_types: Final[list[tuple[str, Any]]] = []
"""Types of call states to register likewise."""
_staged: Final[set[bytes]] = set()
"""Targets with several stages (instantiate, prepare, initialize, execute)."""


def install(platform: str) -> None:
    """Make jaxlib pass to hloom the C functions that users register for custom call targets.

    hloom gets those for ``platform`` and for cpu, and the types of the states that such functions keep.
    """
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
    """Queue a C function for the custom call target ``name``, for `register_targets` to register later.

    ``function`` may also be a mapping from stages (instantiate, prepare, initialize, execute) to C functions.
    Targets that hloom implements itself are ignored.
    """
    target = name.decode() if isinstance(name, bytes) else name
    if target.startswith(_BUILT_IN):
        return
    if isinstance(function, Mapping):
        stages = cast("Mapping[str, Any]", function)
        if set(stages) == {"execute"}:
            function = stages["execute"]
        else:
            function = dict(stages)
            _staged.add(target.encode())
    _pending.append((target, function))


def _register_type(name: str | bytes, registration: object) -> None:
    _pending_types.append((name.decode() if isinstance(name, bytes) else name, registration))


def keeps_state(artifact: bytes) -> bool:
    """Return whether a StableHLO artifact contains the name of a custom call target with several stages.

    The functions of such a target may keep a state that belongs to one executable, so the program must not be
    cached. The stages are instantiate, prepare, initialize and execute.
    """
    return any(target in artifact for target in _staged)


def register_targets() -> None:
    """Register with hloom the C functions and types of states that JAX has passed since the last call.

    It is called before each compilation. The C functions are those of custom call targets.
    """
    from hloom.operations.ffi_services import register_type
    from hloom.runtime.custom_call import capsule_address, register_custom_call

    with _registering:
        while _pending_types:
            name, registration = _pending_types.pop(0)
            is_mapping = isinstance(registration, Mapping)
            capsules = cast("Mapping[str, Any]", registration) if is_mapping else {"type_id": registration}
            addresses = {key: capsule_address(value) for key, value in capsules.items()}
            register_type(name, addresses["type_id"], addresses.get("type_info"))
        while _pending:
            register_custom_call(*_pending.pop(0))
