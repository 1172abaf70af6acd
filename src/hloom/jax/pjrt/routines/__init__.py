"""Emitters of the plug-in's native code: PJRT functions, and routines that they share."""

from __future__ import annotations

from hloom.codegen.llvm.routines import Routine, routines_of
from hloom.ir.registration import import_modules


def called_routines() -> list[Routine]:
    """Return the routines for events and executions, which run whenever a program is executed.

    They are compiled with more optimization than the others.
    """
    from hloom.jax.pjrt.routines import events, execute

    return [routine for routine in routines_of(events, execute) if routine.exported]


def exported_routines() -> list[Routine]:
    """Return all native functions of this package that PJRT's callers or Python code call."""
    from hloom.jax.pjrt.routines.getters import GETTERS

    routines = routines_of(*import_modules(__name__, __path__))
    return [*GETTERS, *(routine for routine in routines if routine.exported)]
