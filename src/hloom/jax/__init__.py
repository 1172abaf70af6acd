"""hloom as a platform of JAX: programs of JAX, compiled and run by hloom.

::

    JAX_PLATFORMS=hloom,cpu python train.py    # the platform hloom; cpu stays there
    HLOOM_AS_CPU=1 python train.py             # hloom in the place of JAX's cpu

or, before JAX's first computation::

    import hloom.jax
    hloom.jax.register()                       # jax.devices("hloom"); register(as_cpu=True) takes cpu's place

The plug-in implements PJRT's C API (openxla/xla, ``xla/pjrt/c/pjrt_c_api.h``).
"""

from __future__ import annotations

from hloom.jax.plugin import register as register

__all__ = ["register"]
