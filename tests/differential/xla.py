"""XLA:CPU as an oracle in a child process, which is started again if it ends."""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from .draw import Array

PATIENCE_SECONDS = 600.0
"""Seconds after which a program counts as one that never ends."""


class XlaRefused(Exception):
    """XLA refuses a program, or fails while it runs."""


class XlaCrashed(Exception):
    """XLA ended its process, or did not answer."""


@dataclass(frozen=True)
class Answer:
    """XLA's answer for a program.

    Attributes:
        prints: XLA's print of the ``text``, of hloom's ``proto``, and with other print options, by name.
        results: for every replica the leaves of the result.
    """

    prints: dict[str, str]
    results: list[list[Array]]


class Xla:
    """The oracle; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the oracle)
        self.restarts = 0

    def __enter__(self) -> Xla:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._complaints.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, text: str, proto: bytes, arguments: Sequence[Sequence[Any]]) -> Answer:
        """Return XLA's answer for a program and its proto with the arguments of every replica.

        Without any replica the program is only printed.
        Raises XlaRefused or XlaCrashed.
        """
        process = self._process or self._start()
        requests, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        try:
            pickle.dump((text, proto, arguments), requests)
            requests.flush()
            if not select.select([answers], [], [], PATIENCE_SECONDS)[0]:
                raise TimeoutError(f"no answer in {PATIENCE_SECONDS:.0f} s")
            kind, content = pickle.load(answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            self.close()
            self.restarts += 1
            raise XlaCrashed(f"{error or type(error).__name__}\n{self._last_words()}") from None
        if kind == "refused":
            raise XlaRefused(content)
        return Answer(*content)

    def _start(self) -> subprocess.Popen[bytes]:
        self._complaints.seek(0)
        self._complaints.truncate()
        script = Path(__file__).with_name("xla_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        return self._process

    def _last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").splitlines()
        fatal = [
            line for line in lines if line.startswith("F") or "Check failed" in line or "LLVM ERROR" in line
        ]
        return "\n".join((fatal or lines)[:3])
