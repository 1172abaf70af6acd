"""The machine: its description, and its limits measured by minimal kernels."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hloom.codegen.target import first_processor, host
from hloom.cpu.jit import llvm
from hloom.cpu.jit.loader import LoadedObject
from hloom.runtime.cores import thread_count

ACCUMULATORS = 12
"""Chains of fused multiply-adds: enough to hide their latency, and in 16 registers beside the factor."""
COPIED = 64 << 20
"""Bytes that every thread copies, more than fit in the caches."""
SECONDS = 1.5
"""Time for each limit: virtual machines take up to a second to reach their full rate."""
STEADY = 0.8
"""Part of the full rate from which a measurement is one of the machine, not of its host's other guests."""
PATIENCE = 5.0
"""Most seconds to wait for that rate."""


@dataclass(frozen=True)
class Machine:
    """The measured machine.

    Attributes:
        processor, threads: name of the processor, and number of compute threads.
        load: load average of the last minute.
        versions: versions of the compared packages.
        flops: f32 operations per second of all threads together, in fused multiply-adds.
        bandwidth: bytes per second that all threads read from and write to memory.
    """

    processor: str
    threads: int
    load: float
    versions: dict[str, str]
    flops: float
    bandwidth: float

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        limits = f"{self.flops / 1e9:.0f} GFLOP/s of f32, {self.bandwidth / 1e9:.0f} GB/s from and to memory"
        return f"{self.processor}, {self.threads} threads, load {self.load:.1f}; {versions}\nat most {limits}"

    def limit(self, flops: float, moved: float) -> float:
        """Return the minimum seconds for a number of operations and bytes, with data in memory."""
        return max(flops / self.flops, moved / self.bandwidth)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def this_machine() -> Machine:
    """Measure this machine, in about three seconds."""
    described = first_processor(Path("/proc/cpuinfo"))
    name = described.get("model name") or platform.machine()
    threads = thread_count()
    versions = {"python": platform.python_version()}
    for package in ("hloom", "numpy", "scipy", "llvmlite", "jaxlib"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    load = os.getloadavg()[0]
    return Machine(name, threads, load, versions, full_rate(threads).flops, measured_bandwidth(threads))


class FullRate:
    """The rate at which all threads together compute, undisturbed.

    The host of a virtual machine may let two of its threads share a core for a moment, which halves the rate
    of a program of two threads and leaves that of a program of one.

    Attributes:
        flops: f32 operations per second in fused multiply-adds without memory accesses.
    """

    def __init__(self, threads: int) -> None:
        lanes = host().vector_bytes // 4
        rounds = 2_000_000
        work = _compiled(_fma_text(f"<{lanes} x float>"), "fma")
        source = np.full(lanes, 0.5, np.float32)
        targets = [np.zeros(ACCUMULATORS * lanes, np.float32) for _ in range(threads)]
        self._arrays = source, targets
        self._calls = [_call(work, rounds, source.ctypes.data, t.ctypes.data) for t in targets]
        self._operations = threads * 2.0 * lanes * ACCUMULATORS * rounds
        self.flops = self._operations / _fastest(self._calls)

    def wait(self) -> None:
        """Wait until the machine computes at nearly this rate, for some seconds at most."""
        end = time.perf_counter() + PATIENCE
        while self._operations < STEADY * self.flops * _seconds(self._calls) and time.perf_counter() < end:
            time.sleep(0.05)


@cache
def full_rate(threads: int) -> FullRate:
    """Return the measured rate of this process's machine."""
    return FullRate(threads)


def measured_bandwidth(threads: int) -> float:
    """Measure bytes per second, read and written, of copies larger than the caches."""
    vector = f"<{host().vector_bytes // 4} x float>"
    work = _compiled(_copy_text(vector), "copy")
    arrays = [(np.ones(COPIED // 4, np.float32), np.zeros(COPIED // 4, np.float32)) for _ in range(threads)]
    rounds = COPIED // host().vector_bytes
    calls = [_call(work, rounds, a.ctypes.data, b.ctypes.data) for a, b in arrays]
    return threads * 2.0 * COPIED / _fastest(calls)


def _fma_text(vector: str) -> str:
    """Return a loop over independent chains of fused multiply-adds that stores their results."""
    names = range(ACCUMULATORS)
    phis = "\n".join(f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %loop ]" for n in names)
    fma = f"@llvm.fma.v{vector[1:].split()[0]}f32"
    work = "\n".join(
        f"  %b{n} = call {vector} {fma}({vector} %x, {vector} %a{n}, {vector} %x)" for n in names
    )
    stores = "\n".join(
        f"  %p{n} = getelementptr {vector}, ptr %target, i64 {n}\n  store {vector} %b{n}, ptr %p{n}, align 4"
        for n in names
    )
    return f"""
define void @fma(i64 %rounds, ptr %source, ptr %target) {{
entry:
  %x = load {vector}, ptr %source, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{work}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
declare {vector} {fma}({vector}, {vector}, {vector})
"""


def _copy_text(vector: str) -> str:
    return f"""
define void @copy(i64 %rounds, ptr %source, ptr %target) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr {vector}, ptr %source, i64 %i
  %to = getelementptr {vector}, ptr %target, i64 %i
  %x = load {vector}, ptr %from, align 4
  store {vector} %x, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _compiled(text: str, name: str) -> Callable[..., None]:
    loaded = LoadedObject([llvm.generate(text, host())], {}.get)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    function = prototype(loaded.symbols[name])

    def call(rounds: int, source: int, target: int, held: LoadedObject = loaded) -> None:
        function(rounds, source, target)

    return call


def _call(work: Callable[..., None], rounds: int, source: int, target: int) -> Callable[[], None]:
    return lambda: work(rounds, source, target)


def _fastest(calls: list[Callable[[], None]]) -> float:
    """Return the minimum seconds in which all calls complete, each in its own thread."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        best = min(best, _seconds(calls))
    return best


def _seconds(calls: list[Callable[[], None]]) -> float:
    workers = [threading.Thread(target=call) for call in calls]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start
