"""Progress of compilations: what the compiler is doing, shown after two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from hloom.phases import CompileProfile, active, recording
from hloom.tools.console.terminal import Progress

PATIENCE: Final = 2.0
"""Seconds of compiling before progress is shown."""
_INTERVAL: Final = 0.2
"""Seconds between samples of the compiler's phase."""
_IDLE: Final = 3
"""Number of consecutive samples without a phase that end a compilation."""


@contextmanager
def compile_progress(progress: Progress) -> Generator[None]:
    """Show the progress of compilations while the context is active, in all threads."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(progress, over), name="hloom progress", daemon=True)
    watcher.start()
    try:
        with recording():
            yield
    finally:
        over.set()
        watcher.join()


def _watch(progress: Progress, over: threading.Event) -> None:
    watched: CompileProfile | None = None
    begun, idle, shown = 0.0, 0, False
    while not over.wait(_INTERVAL):
        profile, now = active(), time.perf_counter()
        idle = idle + 1 if profile is None or profile.current is None else 0
        if profile is not watched or idle > _IDLE:
            watched, begun = profile, now
            if shown:
                progress.done()
                shown = False
        elif (
            profile is not None and now - begun >= PATIENCE and (text := progress_text(profile, now - begun))
        ):
            progress(text)
            shown = True
    if shown:
        progress.done()


def progress_text(profile: CompileProfile, seconds: float) -> str:
    """Describe the current phase of a compilation: stage, pass, progress; empty between phases."""
    current = profile.current
    if current is None:
        return ""
    words = [f"compiling for {seconds:.0f} s: {current.stage}, {current.name}"]
    if current.total:
        words.append(f"{current.done:,} of {current.total:,}")
    elif current.stage == "passes":
        words.append(f"pass {1 + sum(p.runs for p in profile.phases if p.stage == 'passes')}")
    elif current.stage == "LLVM":
        words.append(f"part {1 + current.runs}")
    if current.before is not None:
        words.append(f"{current.before:,} instructions")
    return ", ".join(words)
