"""Objects that live as long as the process, because native code may use them until its end."""

from __future__ import annotations

import ctypes


def keep_for_ever(thing: object) -> None:
    """Keep an object until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
