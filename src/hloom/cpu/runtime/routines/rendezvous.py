"""Rendezvous of devices: participants publish the addresses of their arrays and read those of the others.

The last participant of a process to arrive exchanges arrays with other processes, if any, before the others
continue.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I32, I64, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, repeat
from hloom.cpu.runtime.device_structs import EXCHANGE, FIBER, PARTICIPANT, RENDEZVOUS
from hloom.cpu.runtime.routines.exchange import begin_exchange, run_exchange
from hloom.cpu.runtime.routines.fiber import fiber_differs, fiber_wait
from hloom.cpu.runtime.routines.host import await_host
from hloom.cpu.runtime.routines.processor import futex_wait_for, futex_wake, pause

ARRIVE, CONTINUE, DEPART = 1, 2, 3
"""Steps of a collective; its participants meet at each."""
_OTHER_SIGNATURE: Final = -1
"""Reported to the host instead of a generation: operands differ between participants."""
_PATIENT_SLEEPS: Final = 2
"""Sleeps after which the host takes over the waiting, and detects deadlocks."""
_PATIENCE_NANOSECONDS: Final = 10_000_000


@routine(I1, rendezvous=RENDEZVOUS, count=I64, signature_id=I64)
def same_signatures(f: Function, rendezvous: Fields, count: Value, signature_id: Value) -> int:
    """Emit a routine that returns whether the operands of all participants have equal types and sizes.

    ``count`` is the number of participants; ``signature_id`` identifies the types and sizes of the calling
    device's operands.
    """
    with f.loop(0, count) as loop:
        other = Fields(PARTICIPANT, rendezvous.load("participants", loop.index))
        f.return_if(other["signature_id"].compare("ne", signature_id), 0)
    return 1


@routine(I1, participant=PARTICIPANT, rendezvous=RENDEZVOUS, number=I64, step=I32)
def lead(f: Function, participant: Fields, rendezvous: Fields, number: Value, step: Value) -> int:
    """Emit a routine for the last device of a process to arrive at a collective; it wakes the others.

    Before that it exchanges arrays with other processes, if any; it returns whether the exchange failed.
    ``number`` is the index of the collective's host call, ``step`` is `ARRIVE`, `CONTINUE` or `DEPART`.
    """
    exchange = Fields(EXCHANGE, participant["exchange"])
    with f.when(~is_null(exchange.pointer) & step.compare("ne", DEPART)):
        begin_exchange(f, exchange, step)
        with f.when(same_signatures(f, rendezvous, participant["count"], participant["signature_id"])):
            f.return_if(run_exchange(f, exchange, number, step).compare("ne", 0), 1)
    rendezvous.atomic("arrived").store(0, "seq_cst")
    rendezvous.atomic("generation").add(1, "seq_cst")
    with f.when(rendezvous.atomic("sleepers").load("seq_cst").compare("ne", 0)):
        futex_wake(f, rendezvous.address("generation"))
    return 0


@routine(I1, participant=PARTICIPANT, rendezvous=RENDEZVOUS, generation=I32, number=I64)
def follow(f: Function, participant: Fields, rendezvous: Fields, generation: Value, number: Value) -> Value:
    """Emit a routine in which a device waits until all others have arrived at a collective.

    It returns whether that failed. The others have arrived when the rendezvous' count of meetings is no
    longer ``generation``. A fiber switches to the other devices of its thread. A thread spins, then sleeps,
    as it may occupy the core that the awaited device needs; after two sleeps Python takes over. ``number`` is
    the index of the collective's host call.
    """
    fiber = Fields(FIBER, participant["fiber"])
    with f.when(~is_null(fiber.pointer)):
        fiber_wait(f, fiber, rendezvous.address("generation"), generation, number)
        f.return_value(0)
    spins, sleeps = LocalVariable(f, I32, 0), LocalVariable(f, I32, 0)
    with repeat(f) as loop:
        changed = rendezvous.atomic("generation").load("acquire").compare("ne", generation)
        f.return_if(changed, 0)
        loop.leave_if(spins.get().compare("uge", rendezvous["spins"]))
        pause(f)
        spins.set(spins.get() + 1)
    with repeat(f) as loop:
        rendezvous.atomic("sleepers").add(1, "seq_cst")
        futex_wait_for(f, rendezvous.address("generation"), generation, _PATIENCE_NANOSECONDS)
        rendezvous.atomic("sleepers").subtract(1, "seq_cst")
        changed = rendezvous.atomic("generation").load("acquire").compare("ne", generation)
        f.return_if(changed, 0)
        sleeps.set(sleeps.get() + 1)
        loop.leave_if(sleeps.get().compare("uge", _PATIENT_SLEEPS))
    return await_host(f, number, generation.cast("zext", I64)).compare("ne", 0)


@routine(I1, participant=PARTICIPANT, rendezvous=RENDEZVOUS, number=I64)
def differ(f: Function, participant: Fields, rendezvous: Fields, number: Value) -> int:
    """Emit a routine that returns whether operands' types or sizes differ between participants.

    If so, it reports that to Python, or, in a fiber, ends the run of all fibers. ``number`` is the index of
    the collective's host call.
    """
    f.return_if(same_signatures(f, rendezvous, participant["count"], participant["signature_id"]), 0)
    fiber = Fields(FIBER, participant["fiber"])
    with choose(f, is_null(fiber.pointer)) as thread:
        await_host(f, number, _OTHER_SIGNATURE)
        thread.otherwise()
        fiber_differs(f, fiber, number)
    return 1


@routine(I32, exported=True, participant=PARTICIPANT, number=I64, step=I32)
def hloom_rendezvous(f: Function, participant: Fields, number: Value, step: Value) -> Value:
    """Emit a routine in which a device arrives at a collective, and waits for all participants.

    It returns 1 on failure, else 0. If ``step`` is `ARRIVE`, it publishes the device's arrays, and after the
    wait checks that operands have equal types and sizes on all devices; if `DEPART`, it withdraws the
    device's arrays after the wait. ``number`` is the index of the collective's host call.
    """
    rendezvous = Fields(RENDEZVOUS, participant["rendezvous"])
    slot = rendezvous.atomic("participants", participant["position"])
    slot.store(participant.pointer, "monotonic")
    generation = rendezvous.atomic("generation").load("seq_cst")
    arrived = rendezvous.atomic("arrived").add(1, "seq_cst") + 1
    with choose(f, arrived.cast("zext", I64).compare("eq", participant["local"])) as last:
        f.return_if(lead(f, participant, rendezvous, number, step), 1)
        last.otherwise()
        f.return_if(follow(f, participant, rendezvous, generation, number), 1)
    with f.when(step.compare("eq", DEPART)):
        slot.store(0, "monotonic")
    with f.when(step.compare("eq", ARRIVE)):
        f.return_if(differ(f, participant, rendezvous, number), 1)
    return f.constant(I32, 0)
