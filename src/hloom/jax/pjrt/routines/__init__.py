"""Emitters of the plug-in's native code: PJRT functions, and routines that they share."""

from __future__ import annotations

from hloom.codegen.llvm.routines import Routine, routines_of
from hloom.ir.registration import import_modules


def called_routines() -> list[Routine]:
    """Return the routines that every call of a program runs."""
    from hloom.jax.pjrt.routines import events, execute

    return [routine for routine in routines_of(events, execute) if routine.exported]


def exported_routines() -> list[Routine]:
    """Return the routines in this folder that PJRT's callers or Python code call."""
    from hloom.jax.pjrt.routines.getters import GETTERS

    routines = routines_of(*import_modules(__name__, __path__))
    return [*GETTERS, *(routine for routine in routines if routine.exported)]
