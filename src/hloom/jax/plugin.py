"""The entry point ``jax_plugins``, and registration by hand.

Installing hloom changes nothing in JAX until you select it: by the name ``hloom`` among JAX's platforms
(``JAX_PLATFORMS`` or ``jax.config.jax_platforms``), by ``HLOOM_AS_CPU=1``, or by `register`.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Final

from hloom.codegen.target import require_native_platform
from hloom.errors import HloError
from hloom.ir.collector import collector_paused_for_imports
from hloom.jaxlib import private

PLATFORM: Final = "hloom"
_PRIORITY: Final = -100
"""Below all of JAX's own platforms: hloom is the default only if it is asked for."""


def initialize() -> None:
    """Register hloom with JAX if selected. JAX calls this when it discovers platforms.

    For a version of JAX or a system that hloom cannot serve, warn and leave JAX its other platforms.
    """
    jax: object = import_module("jax")
    selected = (jax.config.jax_platforms or "").split(",")
    as_cpu = os.environ.get("HLOOM_AS_CPU", "") not in ("", "0")
    if not as_cpu and PLATFORM not in selected:
        return
    try:
        require_native_platform()
        private.check()
    except HloError as error:
        warnings.warn(f"hloom does not register with JAX: {error}", RuntimeWarning, stacklevel=2)
        others = [name for name in selected if name != PLATFORM]
        if others:
            jax.config.update("jax_platforms", ",".join(others))
        return
    register(as_cpu=as_cpu)


def register(*, as_cpu: bool = False) -> None:
    """Make hloom a platform of JAX, before JAX's first computation.

    Args:
        as_cpu: take the name ``cpu``, in the place of JAX's own: programs that ask for ``cpu`` run on hloom.

    Raises HloError by the rule ``jax.version`` for a JAX that is older than the plug-in supports, by
    ``jax.private`` for one that lacks a private name that the plug-in uses, by ``jax.initialized`` if JAX has
    begun to use its platforms, and by ``cpu.platform`` if native code cannot run on this system.
    """
    require_native_platform()
    private.check()
    name = "cpu" if as_cpu else PLATFORM
    if name in private.backends():
        message = f"JAX uses its platform {name!r} already; register hloom before the first computation"
        raise HloError(message, rule="jax.initialized")
    if private.plugin_is_loaded()(name):
        return
    with collector_paused_for_imports():
        from hloom.jax.pjrt.native import begin_native

        if begin_native():  # an empty cache has no programs either: import the compiler meanwhile
            import_module("hloom.cpu.jit.compilation")
        from hloom.jax import forks, lowerings, table
        from hloom.jax.calls import foreign_functions
        from hloom.jax.compilation import compiler, handover
        from hloom.jax.devices import client as own_client

    own_client.set_platform(name)
    capsule = table.capsule(table.table())
    private.load_plugin()(name, capsule)
    private.register_profiler()(capsule)
    if as_cpu:
        private.backend_factories().pop("cpu", None)
    private.register_backend_factory()(
        name,
        lambda: private.make_client()(name),
        priority=0 if as_cpu else _PRIORITY,
        fail_quietly=False,
        make_topology=None,
        c_api=capsule,
    )
    handover.install(own_client.version(), compiler.KnownPrograms())
    foreign_functions.install(name)
    forks.install()
    if not as_cpu:
        lowerings.install(PLATFORM)
