"""Threads of the devices of a run, and their end if the thread that waits for them is interrupted."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Final

from hloom.ir.device import DeviceId

_LOOK: Final = 0.25
"""Seconds after which the calling thread, which waits for its devices, looks for signals."""


class Stopped(Exception):
    """Raised in a device that waits or runs native code after another one has failed; it is not reported."""


class DeviceThreads:
    """One thread for each device of a run."""

    def __init__(self, condition: threading.Condition) -> None:
        """``condition`` is notified when a thread ends; its lock guards the state of the run."""
        self._condition = condition
        self._run: object = None
        self._alive: set[DeviceId] = set()
        self._unfinished: set[DeviceId] = set()
        self._stopped: set[DeviceId] = set()

    @property
    def alive(self) -> int:
        """Number of threads that have begun and not ended; between runs, those that an interrupt left."""
        return len(self._alive)

    def run(
        self, work: Mapping[DeviceId, Callable[[], None]], interrupted: Callable[[BaseException], None]
    ) -> None:
        """Call the work of each device, which calls `finish` last, in a thread; return when all have ended.

        If an exception such as KeyboardInterrupt is raised here, call ``interrupted`` with it under the lock,
        raise Stopped in the devices that have not finished, and wait for them. A second exception leaves them
        behind. A thread that begins after the interrupt does nothing.
        """
        run = self._run = object()
        ended: set[DeviceId] = set()

        def body(device: DeviceId) -> None:
            try:
                with self._condition:
                    if self._run is not run:
                        return
                    self._alive.add(device)
                    self._unfinished.add(device)
                work[device]()
            except Stopped:
                pass  # raised before the work could catch it
            finally:
                with self._condition:
                    self._alive.discard(device)
                    self._unfinished.discard(device)
                    ended.add(device)
                    self._condition.notify_all()

        threads = {
            device: threading.Thread(target=body, args=(device,), name=f"hloom device {device}", daemon=True)
            for device in work
        }
        try:
            for thread in threads.values():
                thread.start()
            self._wait_until(lambda: len(ended) == len(threads))
        except BaseException as error:
            self._run = None
            with self._condition:
                interrupted(error)
                self._stopped = set(self._unfinished)
                for device in self._stopped:
                    _raise_in(threads[device], Stopped)
            self._wait_until(lambda: not self._alive)
            raise
        for thread in threads.values():
            thread.join()

    def finish(self, device: DeviceId, mark: Callable[[], None]) -> None:
        """Call ``mark`` under the lock at the end of a device's work; afterwards no Stopped is pending.

        If Stopped is raised here meanwhile, call ``mark`` again. Replace a pending exception by one that is
        caught here rather than cancel it: CPython 3.11 clears its flag for pending exceptions only when it
        raises one, and no traced function starts while it is set.
        """
        while True:
            try:
                with self._condition:
                    self._unfinished.discard(device)
                    mark()
                if device not in self._stopped:
                    return
                self._stopped.discard(device)
                _raise_in(threading.current_thread(), Stopped)
            except Stopped:
                continue

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        # Not Thread.join: interrupted in Python 3.11, it takes a running thread for one that has ended.
        # A signal that arrives between the release of the GIL and the system call interrupts no wait: look
        # for it now and then.
        with self._condition:
            while not ready():
                self._condition.wait(_LOOK)


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an exception in the Python code of a thread, at one of its next bytecodes."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
