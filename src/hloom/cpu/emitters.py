"""Register every emitter and element rule of the cpu backend on import."""

from hloom.codegen import rules
from hloom.cpu import kernels
from hloom.cpu.runtime import host
from hloom.ir.registration import import_modules

__all__ = ["host"]

import_modules(rules.__name__, rules.__path__)
import_modules(kernels.__name__, kernels.__path__)
