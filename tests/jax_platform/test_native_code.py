"""The plug-in's native code: what Python calls of it, and its events."""

from __future__ import annotations

import ast
import ctypes
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hloom.codegen.structs import Record
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.routines import exported_routines
from hloom.jax.pjrt.structs import ERROR, EVENT, PENDING, READY

SOURCES = Path(__file__).parents[2] / "src" / "hloom" / "jax"
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
RESOURCE_EXHAUSTED = 8


def calls() -> Iterator[tuple[str, int | None]]:
    """Yield the routines that Python calls by name, and numbers of arguments; None if some are starred."""
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(args=[ast.Constant(value=str() as name), *arguments]) if name.startswith(
                    "pjrt_"
                ):
                    starred = any(isinstance(argument, ast.Starred) for argument in arguments)
                    yield name, None if starred else len(arguments)
                case _:
                    pass


def test_python_calls_routines_with_all_their_parameters() -> None:
    parameters = {routine.name: len(routine.parameters) for routine in exported_routines()}
    found = list(calls())
    assert len(found) > 20
    assert [(name, count) for name, count in found if parameters[name] != (count or parameters[name])] == []


def test_every_routine_is_called_by_name_or_by_the_interface() -> None:
    names = {routine.name for routine in exported_routines()}
    interface = {f"PJRT_{name}" for name in (*abi.FUNCTIONS, *abi.LAYOUT_FUNCTIONS)}
    text = "".join(file.read_text() for file in SOURCES.rglob("*.py") if "routines" not in file.parts)
    assert [name for name in names if name not in interface and f'"{name}"' not in text] == []


def test_routines_are_listed_while_another_thread_imports() -> None:
    """The code is compiled in a thread of its own, while the program goes on."""
    interval, ended = sys.getswitchinterval(), threading.Event()

    def load() -> None:
        while not ended.is_set():
            sys.modules.update({f"loaded{number}": sys for number in range(99)})
            for number in range(99):
                del sys.modules[f"loaded{number}"]

    thread = threading.Thread(target=load)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        counts = {len(exported_routines()) for _ in range(100)}
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert len(counts) == 1


def answer(name: str, **fields: int) -> tuple[Record, int | None]:
    """Call a function of the interface; return its arguments and its error."""
    args = abi.arguments(name).allocate(**fields)
    return args, FUNCTION(native().symbols[f"PJRT_{name}"])(args.address)


def message_of(error: int | None) -> tuple[int, str]:
    """Return code and message of an error, by the interface and by its table of functions, and free it."""
    assert error
    said, _ = answer("Error_Message", error=error)
    text = ctypes.string_at(said["message"], said["message_size"]).decode()
    code, _ = answer("Error_GetCode", error=error)
    functions = (ctypes.c_void_p * 7).from_address(ERROR.record(error)["functions"])
    assert functions[0] == ctypes.sizeof(functions)
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(functions[5])(error) == code["code"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(functions[3])(error)
    return code["code"], text


def test_an_event_fails_with_a_copy_of_its_error_for_each_callback() -> None:
    event = answer("Event_Create")[0]["event"]
    heard: list[tuple[int | None, Any]] = []
    callback = CALLBACK(lambda error, argument: heard.append((error, argument)))
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    for number in (1, 2):
        answer("Event_OnReady", event=event, callback=address, user_arg=number)
    assert not heard
    assert (answer("Event_IsReady", event=event)[0]["is_ready"], EVENT.record(event)["state"]) == (0, PENDING)
    text = ctypes.create_string_buffer(b"no room")
    answer(
        "Event_Set",
        event=event,
        error_code=RESOURCE_EXHAUSTED,
        error_message=ctypes.addressof(text),
        error_message_size=7,
    )
    assert answer("Event_IsReady", event=event)[0]["is_ready"] == 1
    answer("Event_OnReady", event=event, callback=address, user_arg=3)
    errors = [error for error, _ in heard]
    errors += [answer(name, event=event)[1] for name in ("Event_Await", "Event_Error")]
    assert sorted(argument for _, argument in heard) == [1, 2, 3]
    assert len(set(errors)) == 5
    assert [message_of(error) for error in errors] == [(RESOURCE_EXHAUSTED, "no room")] * 5
    answer("Event_Destroy", event=event)


def test_the_ready_event_is_never_freed() -> None:
    event = native().call("pjrt_ready_event")
    for _ in range(3):
        answer("Event_Destroy", event=event)
    assert EVENT.record(event)["state"] == READY
    assert answer("Event_Await", event=event)[1] is None
