"""A backend in a child process, which is started again after a program that ends it.

XLA ends its process by a failed check on some programs, and wrong native code may end any process.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import field
from typing import Any, BinaryIO, Final, cast

from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.limits import PATIENCE, ends_in_time
from hloom.records import dataclass

XLA_FLAGS: Final = (
    "--xla_allow_excess_precision=false",
    "--xla_cpu_enable_fast_min_max=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_force_host_platform_device_count=4",
)
"""Flags without which XLA may change values, by its documentation; one thread leaves cores to others."""
MOST_BYTES: Final = 4 << 30
"""Limit of a child's private memory."""


class Refused(Exception):
    """The backend refuses a program, or fails while it runs."""


class Crashed(Exception):
    """The process of the backend ended, or did not answer in time."""


@dataclass(frozen=True)
class Request:
    """A program to run, with its arguments.

    Attributes:
        text: the program.
        arguments: the arguments of each device; if there is no device, the program is only printed.
        partitions: the number of devices that share the program's arrays, per replica.
        proto: hloom's proto of the program, to be printed by XLA; empty if nothing is printed.
    """

    text: str
    arguments: Sequence[Sequence[Array]]
    partitions: int = 1
    proto: bytes = b""


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        results: for each device, the leaves of the result.
        prints: XLA's prints of the program, keyed by how it was read or by the print options.
    """

    results: list[list[Array]]
    prints: dict[str, str] = field(default_factory=dict[str, str])


class Child:
    """A context manager of a backend in a child process.

    Args:
        backend: ``xla``, or the name of a backend of hloom.
        flags: further flags for XLA.
    """

    def __init__(self, backend: str = "xla", flags: Sequence[str] = ()) -> None:
        self.backend = backend
        self.flags = (*XLA_FLAGS, *flags)
        self.restarts = 0
        self.seconds = 0.0
        """Processor time of the process that runs; that of processes that ended is in `os.times`."""
        self.process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the child)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._errors.close()

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
            self.seconds = 0.0

    def run(self, request: Request) -> Answer:
        """Return the answer to a request. Raises Refused for an error, and Crashed if the process ends."""
        process = self.process or self._start()
        requests, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        try:
            pickle.dump(request, requests)
            requests.flush()
            if not ends_in_time(lambda: bool(select.select([answers], [], [], 1.0)[0])):
                raise TimeoutError(f"no answer in {PATIENCE} s")
            answer: Any
            answer, self.seconds = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            code = process.poll() if isinstance(error, TimeoutError) else process.wait()
            self.close()
            self.restarts += 1
            reason = str(error) if code is None else f"the process ends with status {code}"
            raise Crashed(f"{reason}\n{self._last_errors()}".strip()) from None
        if isinstance(answer, str):
            raise Refused(answer)
        return cast(Answer, answer)

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors.seek(0)
        self._errors.truncate()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hloom.fuzzing.child_process", self.backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "XLA_FLAGS": " ".join(self.flags), "JAX_PLATFORMS": "cpu"},
        )
        return self.process

    def _last_errors(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        fatal = [
            line for line in lines if line.startswith("F") or "Check failed" in line or "LLVM ERROR" in line
        ]
        return "\n".join((fatal or lines)[:3])
