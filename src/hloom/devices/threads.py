"""Device threads, and how they are stopped when the thread that waits for them is interrupted."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Final

from hloom.ir.device import DeviceId

_SIGNAL_POLL: Final = 0.25
"""Seconds after which the thread that waits for the devices checks for signals."""


class Stopped(Exception):
    """Raised in a device thread after another device has failed; never reported to the caller."""


class DeviceThreads:
    """One thread for each device of a run."""

    def __init__(self, condition: threading.Condition) -> None:
        """``condition`` is notified when a thread ends; its lock protects the state of the run."""
        self._condition = condition
        self._run: object = None
        self._alive: set[DeviceId] = set()
        self._unfinished: set[DeviceId] = set()
        self._stopped: set[DeviceId] = set()

    @property
    def alive(self) -> int:
        """The number of threads that have started and not ended; between runs, those left by an interrupt."""
        return len(self._alive)

    def run(
        self, work: Mapping[DeviceId, Callable[[], None]], interrupted: Callable[[BaseException], None]
    ) -> None:
        """Run the function of each device in a thread; return when all threads have ended.

        Each function must call `finish` last. If an exception such as KeyboardInterrupt is raised in the
        calling thread, call ``interrupted`` with it under the lock, raise Stopped in the devices that have
        not finished, and join them. A second exception abandons the threads. A thread that starts after the
        interrupt does nothing.
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
        """Call ``mark`` under the lock when a device's work ends; return with no pending Stopped.

        ``mark`` is called again if Stopped is raised here. A pending exception is replaced by one that is
        caught here, not cancelled: CPython 3.11 clears its flag for pending exceptions only when it raises
        one, and no traced function starts while the flag is set.
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
        # Thread.join, if interrupted in Python 3.11, treats a running thread as ended. A signal between the
        # release of the GIL and the system call does not interrupt the wait, hence the time-out.
        with self._condition:
            while not ready():
                self._condition.wait(_SIGNAL_POLL)


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an exception in a thread, asynchronously, before one of its next bytecodes."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))
