"""The semantics of every operation, a file per family; importing the package declares them all."""

from hloom.ir.registration import import_modules

import_modules(__name__, __path__)
