"""Emitters of the plug-in's native code: PJRT functions, and routines that they share."""

from __future__ import annotations

from hloom.codegen.llvm.routines import Routine, routines_of
from hloom.ir.registration import import_modules


def called_routines() -> list[Routine]:
    """Return the native functions for events and executions, which every execution of a program calls.

    They are compiled with more optimization than the other native functions.
    """
    from hloom.jax.pjrt.routines import events, execute

    return [routine for routine in routines_of(events, execute) if routine.exported]


def exported_routines() -> list[Routine]:
    """Return the native functions of this package that are called by callers of PJRT or from Python."""
    from hloom.jax.pjrt.routines.getters import GETTERS

    routines = routines_of(*import_modules(__name__, __path__))
    return [*GETTERS, *(routine for routine in routines if routine.exported)]
