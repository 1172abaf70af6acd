"""hloom as a platform of JAX: compiles and runs JAX's programs.

::

    JAX_PLATFORMS=hloom,cpu python train.py    # adds the platform hloom, keeps JAX's cpu
    HLOOM_AS_CPU=1 python train.py             # replaces JAX's platform cpu

or, before JAX's first computation::

    import hloom.jax
    hloom.jax.register()                       # jax.devices("hloom"); register(as_cpu=True) replaces cpu

The plug-in implements PJRT's C API (openxla/xla, ``xla/pjrt/c/pjrt_c_api.h``).
"""

from __future__ import annotations

from hloom.jax.plugin import register as register

__all__ = ["register"]
