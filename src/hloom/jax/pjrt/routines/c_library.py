"""Functions of the C library that the plug-in's native code calls."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, VOID, Function, Operand
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, PassedValue
from hloom.codegen.structs import Struct, size_of

malloc: Final = External("malloc", PTR, I64)
free: Final = External("free", VOID, PTR)
aligned_alloc: Final = External("aligned_alloc", PTR, I64, I64)
sched_yield: Final = External("sched_yield", I32)
pthread_create: Final = External("pthread_create", I32, PTR, PTR, PTR, PTR)
pthread_detach: Final = External("pthread_detach", I32, I64)
pthread_mutex_lock: Final = External("pthread_mutex_lock", I32, PTR)
pthread_mutex_unlock: Final = External("pthread_mutex_unlock", I32, PTR)
pthread_cond_wait: Final = External("pthread_cond_wait", I32, PTR, PTR)
pthread_cond_broadcast: Final = External("pthread_cond_broadcast", I32, PTR)


def allocate(f: Function, struct: Struct, length: Operand = 0, /, **values: PassedValue) -> Fields:
    """Emit a malloc of a struct whose last field is an array of ``length`` elements; return the struct.

    ``values`` initialize fields by name; the other fields are undefined.
    """
    element = size_of(list(struct.fields.values())[-1].element)
    size = length * element + struct.size
    fields = Fields(struct, malloc(f, size))
    for name, value in values.items():
        fields[name] = value
    return fields


@contextmanager
def locked(f: Function, mutex: Fields) -> Generator[None]:
    """Emit a lock of ``mutex`` before the code that the ``with`` block emits, and an unlock after that code.

    The code that the block emits must not return from the native function.
    """
    pthread_mutex_lock(f, mutex)
    yield
    pthread_mutex_unlock(f, mutex)
