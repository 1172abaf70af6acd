"""Phases of a compilation: what is recorded, and what a profile says."""

from __future__ import annotations

import contextvars
import threading
import time
from typing import Any

import pytest

import hloom
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.errors import HloError
from hloom.ir.operation import Operation
from hloom.phases import STAGES, CompileProfile, active, advance, phase, recording
from tests import agreement

TEXT = """
HloModule example
ENTRY main {
  x = f32[8] parameter(0)
  unused = f32[8] negate(x)
  y = f32[8] tanh(x)
  ROOT z = f32[8] add(y, x)
}
"""


def busy(seconds: float) -> None:
    """Compute for CPU seconds of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def named(profile: CompileProfile, name: str) -> float:
    return next(p.seconds for p in profile.phases if p.name == name)


def test_nothing_is_recorded_unless_somebody_listens():
    with phase("passes", "alone"):
        assert active() is None
    advance(1, 2)


def test_phases_within_others_count_once():
    with recording() as profile:
        start = time.thread_time()
        with phase("emission", "outer"):
            busy(0.002)
            with phase("planning", "inner"):
                busy(0.002)
        spent = time.thread_time() - start
    assert 0.004 <= profile.seconds <= spent
    assert named(profile, "inner") >= 0.002 <= named(profile, "outer") <= spent - 0.002


def test_a_recording_within_another_takes_its_place():
    with recording() as outer:
        with recording() as inner, phase("passes", "dce"):
            assert active() is inner
        assert active() is outer
    assert active() is None
    assert [p.name for p in inner.phases] == ["dce"] and not outer.phases


def test_threads_with_the_context_record_in_the_same_profile():
    def work() -> None:
        with phase("LLVM", "generate code"):
            busy(0.001)

    with recording() as profile, phase("emission", "kernels"):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        busy(0.001)
        thread.join()
    assert named(profile, "generate code") >= 0.001 <= named(profile, "kernels")


def test_how_far_a_phase_is():
    with recording() as profile, phase("emission", "kernels"):
        advance(3, 10)
        with phase("planning", "buffers"):
            assert profile.current is not None
            assert (profile.current.name, profile.current.total) == ("buffers", 0)
        current = profile.current
        assert (current.name, current.done, current.total) == ("kernels", 3, 10)
    assert profile.current is None


def test_an_executable_tells_where_its_compilation_went(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HLOOM_CACHE", "0")
    profile = hloom.compile(hloom.HloModule.from_text(TEXT)).compile_profile
    recorded = {(p.stage, p.name) for p in profile.phases}
    assert {stage for stage, _ in recorded} == set(STAGES) - {"reading"}
    passes = {name for stage, name in recorded if stage == "passes"}
    assert passes >= {p.name for p in CPU_PIPELINE.flat() if p.of is Operation} | {"copy"}
    assert "simplify-while-loops" not in passes  # the program has no loops
    dce = next(p for p in profile.phases if p.name == "dce")
    assert dce.before == 4 and dce.runs > 1
    assert profile.elapsed > 0 and all(p.seconds >= 0 for p in profile.phases)


def test_a_profile_as_text_and_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HLOOM_CACHE", "0")
    profile = hloom.compile(hloom.HloModule.from_text(TEXT)).compile_profile
    values: dict[str, Any] = profile.to_json()
    agreement.near(sum(row["share"] for row in values["phases"]), 1.0, len(values["phases"]))
    assert len(values["phases"]) == len(profile.phases)
    cse = next(row for row in values["phases"] if row["name"] == "cse")
    assert (cse["stage"], cse["instructions_before"]) == ("passes", 4)
    lines = str(profile).splitlines()
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == [
        s for s in STAGES if s != "reading"
    ]


def test_a_program_from_the_cache_is_only_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: object):
    monkeypatch.setenv("HLOOM_CACHE", "1")
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    module = hloom.HloModule.from_text(TEXT)
    hloom.compile(module)
    assert {p.stage for p in hloom.compile(module).compile_profile.phases} == {"loading"}


def test_the_evaluator_records_no_profile():
    executable = hloom.compile(hloom.HloModule.from_text(TEXT), backend="evaluator")
    with pytest.raises(HloError, match="profile of its compilation") as caught:
        _ = executable.compile_profile
    assert caught.value.rule == "compile.not-offered"
