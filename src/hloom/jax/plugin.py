"""Registration with JAX: the entry point ``jax_plugins``, and `register`.

An installed hloom changes nothing in JAX until it is selected: by the platform name ``hloom``
(``JAX_PLATFORMS`` or ``jax.config.jax_platforms``), by ``HLOOM_AS_CPU=1``, or by `register`.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Final, NoReturn

from hloom.codegen.target import require_native_platform
from hloom.errors import HloError
from hloom.ir.collector import collector_paused_for_imports
from hloom.jaxlib import private

PLATFORM: Final = "hloom"
_PRIORITY: Final = -100
"""Below all of JAX's own platforms: hloom is the default only if it is selected."""


def initialize() -> None:
    """Register hloom as a platform of JAX if ``jax_platforms`` or ``HLOOM_AS_CPU`` selects it.

    JAX calls this entry point when it discovers plug-ins. On an unsupported system or version of JAX, warns
    and removes ``hloom`` from ``jax_platforms`` if that names other platforms too. Any other error is raised
    when JAX first uses the platform.
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
    if _failed:
        return
    try:
        register(as_cpu=as_cpu)
    except Exception as error:  # JAX logs what its plug-ins raise, and goes on with its own platform
        _fail_when_used("cpu" if as_cpu else PLATFORM, error)


_failed: Final[list[Exception]] = []


def _fail_when_used(name: str, error: Exception) -> None:
    """Make JAX raise ``error`` when it uses the platform ``name``: its backend factory raises the error."""

    def fail() -> NoReturn:
        raise error

    _failed.append(error)
    private.backend_factories().pop(name, None)
    private.register_backend_factory()(name, fail, priority=0, fail_quietly=False)


def register(*, as_cpu: bool = False) -> None:
    """Register hloom as a platform of JAX, before JAX's first computation.

    Args:
        as_cpu: replace JAX's platform ``cpu`` instead of adding the platform ``hloom``.

    Raises HloError: rule ``jax.version`` if JAX is too old, ``jax.private`` if JAX lacks a private name that
    the plug-in uses, ``jax.initialized`` if JAX has initialized the platform already, and ``cpu.platform`` if
    native code cannot run on this system.
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

        begin_native()
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
    handover.install(own_client.version(), compiler.ProgramCache())
    foreign_functions.install(name)
    forks.install()
    if not as_cpu:
        lowerings.install(PLATFORM)
    lowerings.install_composites(name)
