"""Follow a value through the calls of hloom: which files it enters, in which order.

::

    python tests/journeys.py native        # a module to native code
    python tests/journeys.py jax           # a program of JAX to a loaded executable
    python tests/journeys.py sharded       # a module to the program of one device

A **stop** is a call, in another file than the stop before, of a function that is passed the value in any of
its forms; a **return** is a stop in a file where the value was before. Properties are no stops. Files of
`INSIDES` are entered, and what they call is not followed: a pass, a printer or a plan is one stop.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import hloom

INSIDES = ("analysis/", "buffers/", "codegen/", "ir/", "operations/", "passes/", "plan/", "proto/", "text/")
WITHOUT_STOPS = ("hooks.py", "ir/computation.py", "ir/instruction.py", "ir/module.py", "phases.py")
LONG = 200
"""Bytes from which data counts as a program."""
NATIVE = {"HloModule", "NativeProgram", "Entry", "LoadedProgram", "LoadedObject", "NativeExecutable"}
PROGRAM = """HloModule m
ENTRY e {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64,64] parameter(1), sharding={devices=[1,4]<=[4]}
  d = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,64] tanh(d)
}"""


class Stop(NamedTuple):
    """A file below `src/hloom` that a value enters, and the function by which it does."""

    file: str
    function: str


class Journey:
    """Records the stops of values of some classes, during calls of `follow`."""

    def __init__(self, classes: Collection[str], last: str = "") -> None:
        """``last`` is the function whose return ends the journey."""
        self.classes = classes
        self.last = last
        self.stops: list[Stop] = []
        self._source = Path(hloom.__file__).parent.as_posix() + "/"
        self._inside: FrameType | None = None

    @property
    def returns(self) -> int:
        """The number of stops in files where the value was before."""
        return len(self.stops) - len({stop.file for stop in self.stops})

    def follow(self, function: Callable[[], object]) -> None:
        sys.setprofile(self._record)
        try:
            function()
        finally:
            sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == self.last:
            sys.setprofile(None)
        elif self._inside is not None:
            if event == "return" and frame is self._inside:
                self._inside = None
        elif event == "call" and frame.f_code.co_filename.startswith(self._source):
            self._call(frame, frame.f_code.co_filename[len(self._source) :])

    def _call(self, frame: FrameType, file: str) -> None:
        if file in WITHOUT_STOPS:
            self._inside = frame if file.startswith(INSIDES) else None
        elif self._is_passed(frame) and not _is_property(frame):
            if not self.stops or self.stops[-1].file != file:
                self.stops.append(Stop(file, frame.f_code.co_qualname))
            self._inside = frame if file.startswith(INSIDES) else None

    def _is_passed(self, frame: FrameType) -> bool:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(name) for name in names]
        values += [e for v in values if isinstance(v, (tuple, list)) and len(v) < 50 for e in v]
        classes = (type(v).__name__ for v in values if type(v) is not bytes or len(v) > LONG)
        return not code.co_name.startswith("<") and any(name in self.classes for name in classes)


def _is_property(frame: FrameType) -> bool:
    receiver = frame.f_locals.get("self")
    return isinstance(inspect.getattr_static(type(receiver), frame.f_code.co_name, None), property)


def native() -> Journey:
    """Follow a module to native code, as `hloom.compile` takes it when the cache has it not."""
    hloom.compile(hloom.HloModule.from_text(PROGRAM.replace("64", "32")))
    module = hloom.HloModule.from_text(PROGRAM)
    journey = Journey(NATIVE | {"CompiledProgram"})
    journey.follow(lambda: hloom.compile(module))
    return journey


def sharded() -> Journey:
    """Follow a module to the program that each of four devices runs."""
    from hloom.sharding import partitioned_program

    partitioned_program(hloom.HloModule.from_text(PROGRAM.replace("64", "32")), 4)
    module = hloom.HloModule.from_text(PROGRAM)
    journey = Journey({"HloModule", "Partitioned"})
    journey.follow(lambda: partitioned_program(module, 4))
    return journey


def jax() -> Journey:
    """Follow a program of JAX, as bytes of StableHLO, to an executable on its device."""
    import hloom.jax

    hloom.jax.register()
    import jax
    import jax.numpy as jnp

    jax.jit(lambda x: jnp.sin(x @ x))(jnp.ones((32, 32))).block_until_ready()
    lowered = jax.jit(lambda x: jnp.tanh(x @ x)).lower(jnp.ones((64, 64)))
    journey = Journey(NATIVE | {"bytes", "Program", "Compiled", "Interface"}, last="compile_program")
    journey.follow(lowered.compile)
    return journey


def main() -> None:
    """Print the stops of a journey, their number, and how many are returns."""
    os.environ["HLOOM_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["JAX_PLATFORMS"] = "hloom,cpu"
    journey = {"native": native, "jax": jax, "sharded": sharded}[sys.argv[1]]()
    for number, stop in enumerate(journey.stops, 1):
        print(f"{number:3} {stop.file:44} {stop.function}")
    print(len(journey.stops), "stops,", journey.returns, "returns")


if __name__ == "__main__":
    main()
