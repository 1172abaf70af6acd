"""Reset of locks in the child of a fork, which has none of the parent's other threads."""

from __future__ import annotations

from hloom.codegen.llvm import I8, Function
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.llvm.routines import routine
from hloom.jax.pjrt.routines.buffers import unlock_pool
from hloom.jax.pjrt.routines.events import EVENTS
from hloom.jax.pjrt.routines.executables import SWEEPER


@routine(exported=True)
def pjrt_unlock_all(f: Function) -> None:
    """Emit a native function that resets all locks, for the child of a fork.

    Other threads of the parent, which do not exist in the child, may have held them.
    """
    unlock_pool(f)
    for lock in (EVENTS(f).nested("lock"), EVENTS(f).nested("changed"), SWEEPER(f).nested("lock")):
        fill_bytes(lock.pointer, f.constant(I8, 0), lock.struct.size)
