"""The entry point ``jax_plugins``, and registration by hand.

Installing hloom changes nothing in JAX until you select it: by the name ``hloom`` among JAX's platforms
(``JAX_PLATFORMS`` or ``jax.config.jax_platforms``), by ``HLOOM_AS_CPU=1``, or by `register`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from hloom.errors import HloError
from hloom.ir.collector import collector_paused_for_imports

PLATFORM: Final = "hloom"
TESTED: Final = ("0.10.1", "0.10.2")
"""Versions of JAX that the plug-in is tested with."""
_PRIORITY: Final = -100
"""Below all of JAX's own platforms: hloom is the default only if it is asked for."""


def initialize() -> None:
    """Register hloom with JAX if selected. JAX calls this when it discovers platforms."""
    jax: Any = import_module("jax")
    wanted = (jax.config.jax_platforms or "").split(",")
    if os.environ.get("HLOOM_AS_CPU", "") not in ("", "0"):
        register(as_cpu=True)
    elif PLATFORM in wanted:
        register()


def register(*, as_cpu: bool = False) -> None:
    """Make hloom a platform of JAX, before JAX's first computation.

    Args:
        as_cpu: take the name ``cpu``, in the place of JAX's own: programs that ask for ``cpu`` run on hloom.

    Raises HloError by the rule ``jax.version`` for a JAX that is older than the plug-in supports, and by
    ``jax.initialized`` if JAX has begun to use its platforms.
    """
    jax: Any = import_module("jax")
    bridge: Any = import_module("jax._src.xla_bridge")
    client: Any = import_module("jax._src.lib").xla_client
    _check_version(jax.__version__)
    name = "cpu" if as_cpu else PLATFORM
    if name in bridge._backends:
        message = f"JAX uses its platform {name!r} already; register hloom before the first computation"
        raise HloError(message, rule="jax.initialized")
    if client.pjrt_plugin_loaded(name):
        return
    with collector_paused_for_imports():
        from hloom.jax.native import begin_native

        if begin_native():  # an empty cache has no programs either: import the compiler meanwhile
            import_module("hloom.cpu.jit.compilation")
        from hloom.jax import client as own_client
        from hloom.jax import compilation, foreign_functions, forks, handover, lowerings, table

    own_client.set_platform(name)
    capsule = table.capsule(table.table())
    client.load_pjrt_plugin_with_c_api(name, capsule)
    if as_cpu:
        bridge._backend_factories.pop("cpu", None)
    bridge.register_backend_factory(
        name,
        lambda: bridge.make_pjrt_c_api_client(name),
        priority=0 if as_cpu else _PRIORITY,
        fail_quietly=False,
        make_topology=None,
        c_api=capsule,
    )
    handover.install(own_client.version(), compilation.KnownPrograms())
    foreign_functions.install(name)
    forks.install()
    if not as_cpu:
        lowerings.install(PLATFORM)


def _check_version(found: str) -> None:
    oldest = tuple(map(int, TESTED[0].split(".")))
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdecimal())
    if numbers < oldest:
        message = f"JAX {found} is older than {TESTED[0]}; hloom is tested with {' and '.join(TESTED)}"
        raise HloError(message, rule="jax.version")
