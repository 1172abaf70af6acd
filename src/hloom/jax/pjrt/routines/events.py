"""PJRT events: futures without a value, which threads wait for and which call functions on completion."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import LocalVariable, is_null, is_zero, repeat
from hloom.jax.pjrt.routines.c_library import (
    allocate,
    free,
    locked,
    pthread_cond_broadcast,
    pthread_cond_wait,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hloom.jax.pjrt.routines.errors import copy_of_error, pjrt_error
from hloom.jax.pjrt.routines.functions import function, pointee
from hloom.jax.pjrt.structs import CALLBACK, CONDITION, EVENT, FAILED, MUTEX, PENDING, READY

_READY_EVENT: Final = State("ready_event", event=EVENT)
EVENTS: Final = State("events", lock=MUTEX, changed=CONDITION)


def ready_event(f: Function) -> Value:
    """Emit the address of the static event that is always ready, all of whose fields are zero."""
    return _READY_EVENT(f).address("event")


@routine(PTR, exported=True)
def pjrt_ready_event(f: Function) -> Value:
    """Emit a native function that returns the static event that is always ready."""
    return ready_event(f)


@routine(PTR, exported=True, references=I64)
def pjrt_event(f: Function, references: Value) -> Fields:
    """Emit a native function that returns a new pending event with a reference count of ``references``."""
    return allocate(f, EVENT, state=PENDING, references=references, error=0, callbacks=0)


@routine(PTR, event=EVENT)
def keep_event(f: Function, event: Fields) -> Value:
    """Emit a native function that adds a reference to an event and returns the event.

    For a null event it returns the static ready event.
    """
    f.return_if(is_null(event.pointer), ready_event(f))
    event.atomic("references").add(1, "monotonic")
    return event.pointer


@routine(event=EVENT)
def drop_event(f: Function, event: Fields) -> None:
    """Emit a native function that drops a reference to an event, and frees the event with the last one."""
    f.return_if(is_null(event.pointer) | event.pointer.compare("eq", ready_event(f)))
    references = event.atomic("references").subtract(1, "acq_rel")
    with f.when(references.compare("eq", 1)):
        free(f, event["error"])
        free(f, event)


def _is_pending(event: Fields) -> Value:
    return event.atomic("state").load("acquire").compare("eq", PENDING)


@routine(I1, inline=True, event=EVENT)
def is_unready(f: Function, event: Fields) -> Value:
    """Emit a native function that returns whether an event is pending or failed.

    It returns false for null, which stands for an event that is ready.
    """
    f.return_if(is_null(event.pointer), 0)
    return event.atomic("state").load("acquire").compare("ne", READY)


@routine(exported=True, event=EVENT, error=PTR)
def pjrt_complete(f: Function, event: Fields, error: Value) -> None:
    """Emit a native function that completes an event, and calls the callbacks that wait for it.

    ``error`` is null for success; the event takes ownership of it, and each callback gets a copy.
    """
    state = is_null(error).select(f.constant(I64, READY), FAILED)
    callback = LocalVariable(f, PTR)
    with locked(f, EVENTS(f).nested("lock")):
        event["error"] = error
        callback.set(event["callbacks"])
        event["callbacks"] = 0
        event.atomic("state").store(state, "release")
        pthread_cond_broadcast(f, EVENTS(f).nested("changed"))
    with repeat(f) as loop:
        loop.leave_if(is_null(callback.get()))
        fields = Fields(CALLBACK, callback.get())
        callee, argument = fields["function"], fields["argument"]
        callback.set(fields["next"])
        free(f, fields)
        f.call_pointer(VOID, callee, copy_of_error(f, error), argument)


@routine(PTR, exported=True, event=EVENT)
def pjrt_await(f: Function, event: Fields) -> Value:
    """Emit a native function that waits until an event is complete; it returns the event's error or null.

    The error still belongs to the event. An event whose address is null is complete.
    """
    f.return_if(~is_unready(f, event), 0)
    with locked(f, EVENTS(f).nested("lock")), repeat(f) as loop:
        loop.leave_if(event["state"].compare("ne", PENDING))
        pthread_cond_wait(f, EVENTS(f).nested("changed"), EVENTS(f).nested("lock"))
    return event["error"]


@function("Event_Destroy")
def destroy(f: Function, args: Fields) -> None:
    drop_event(f, args["event"])


@function("Event_IsReady")
def is_ready(f: Function, args: Fields) -> None:
    args["is_ready"] = ~_is_pending(pointee(args, "event"))


@function("Event_Error")
def error(f: Function, args: Fields) -> Value:
    return copy_of_error(f, pointee(args, "event")["error"])


@function("Event_Await")
def await_event(f: Function, args: Fields) -> Value:
    return copy_of_error(f, pjrt_await(f, args["event"]))


@function("Event_OnReady")
def on_ready(f: Function, args: Fields) -> None:
    """Emit ``PJRT_Event_OnReady``, which calls a callback at once if an event is complete, else later.

    In the latter case the thread that completes the event calls it.
    """
    event, callee, argument = pointee(args, "event"), args["callback"], args["user_arg"]
    lock = EVENTS(f).nested("lock")
    with f.when(_is_pending(event)):
        pthread_mutex_lock(f, lock)
        with f.when(event["state"].compare("eq", PENDING)):
            others = event["callbacks"]
            event["callbacks"] = allocate(f, CALLBACK, next=others, function=callee, argument=argument)
            pthread_mutex_unlock(f, lock)
            f.return_value(0)
        pthread_mutex_unlock(f, lock)
    f.call_pointer(VOID, callee, copy_of_error(f, event["error"]), argument)


@function("Event_Create")
def create(f: Function, args: Fields) -> None:
    args["event"] = pjrt_event(f, 1)


@function("Event_Set")
def set_event(f: Function, args: Fields) -> None:
    error = LocalVariable(f, PTR, 0)
    with f.when(~is_zero(args["error_code"])):
        message, size = args["error_message"], args["error_message_size"]
        error.set(pjrt_error(f, args["error_code"], message, size))
    pjrt_complete(f, args["event"], error.get())
