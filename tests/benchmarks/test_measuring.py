"""Times, agreement, and summaries."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from benchmarks import timing
from benchmarks.agreement import agreement
from benchmarks.machine import (
    ACCUMULATORS,
    COPIED,
    FullRate,
    Machine,
    _compiled,
    _copy_text,
    _fma_text,
    measured_bandwidth,
)
from benchmarks.row import Row, geometric_mean, summary
from hloom.codegen.target import host
from tests.agreement import near as assert_near
from tests.arrays import c64, f32, f64


class Clock:
    """A clock that only calls move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.called: list[str] = []

    def call(self, name: str, *durations: float) -> Callable[[], str]:
        """Return a call whose runs take these times, the last one repeatedly."""
        left = list(durations)

        def run() -> str:
            self.now += left.pop(0) if len(left) > 1 else left[0]
            self.called.append(name)
            return name

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: made.now)
    return made


def test_calls_are_timed_in_turn(clock: Clock) -> None:
    found = timing.medians({"a": clock.call("a", 1.0), "b": clock.call("b", 9.0, 9.0, 2.0)}, budget=0.0)
    assert found == {"a": 1.0, "b": 2.0}
    assert clock.called[:4] == ["a", "a", "b", "b"]  # each runs twice before anything counts
    assert clock.called[4:] == ["a", "b"] * timing.FEWEST


def test_the_budget_is_for_all_calls_together(clock: Clock) -> None:
    found = timing.samples({"a": clock.call("a", 1.0), "b": clock.call("b", 3.0)}, budget=40.0)
    assert len(found["a"]) == len(found["b"]) == 10


def test_several_samples_in_a_row(clock: Clock) -> None:
    timing.samples({"a": clock.call("a", 1.0), "b": clock.call("b", 1.0)}, budget=0.0, block=3)
    assert clock.called[4:] == ["a", "a", "a", "b", "b", "b"] * 2


def test_a_median_is_not_moved_by_a_slow_run(clock: Clock) -> None:
    assert timing.medians({"a": clock.call("a", 1, 1, 1, 50, 1, 1, 1)}, budget=0.0) == {"a": 1}


def test_short_calls_are_repeated_in_a_sample(clock: Clock) -> None:
    found = timing.samples({"a": clock.call("a", 1e-6)}, budget=0.0)
    assert_near(found["a"], [1e-6] * timing.FEWEST, 32)  # differences of a clock
    assert len(clock.called) == 2 + 20 * timing.FEWEST


def test_no_more_samples_than_are_of_use(clock: Clock) -> None:
    assert len(timing.samples({"a": clock.call("a", 1e-3)}, budget=1e9)["a"]) == timing.MOST


# -- agreement


@pytest.mark.parametrize(
    ("ours", "theirs", "agree"),
    [
        (f32([1, 2]), f32([1, 2]), True),
        (f32([1, 2]), f32([1, 2.0001]), True),
        (f32([1, 2]), f32([1, 2.1]), False),
        (f64([1, 2]), f64([1, 2.0001]), False),
        (f32([1e-9, 1]), f32([2e-9, 1]), True),
        (f32([np.nan, np.inf]), f32([np.nan, np.inf]), True),
        (f32([np.nan, 1]), f32([1, np.nan]), False),
        (f32([np.inf, 1]), f32([-np.inf, 1]), False),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.03], ml_dtypes.bfloat16), True),
        (c64([1 + 1j]), c64([1 - 1j]), False),
        (np.arange(10), np.arange(10) + 1, False),
        (np.arange(5000), np.r_[0:4999, 0], True),
        (np.array([True]), np.array([False]), False),
        (np.zeros((2, 0)), np.zeros((2, 0)), True),
        (np.zeros(2), np.zeros(3), False),
    ],
)
def test_what_counts_as_the_same(ours: np.ndarray, theirs: np.ndarray, agree: bool) -> None:
    assert agreement([ours], [theirs]).agree is agree


def test_the_worst_of_all_leaves_is_told() -> None:
    pairs = f32([0, 2]), f32([0, 4])
    found = agreement([pairs[0], pairs[1]], [pairs[0], f32([0, 4.01])])
    assert_near(np.float32(found.worst), np.float32(0.01 / 4.01), 2**10)  # 4.01 - 4 in f32
    assert str(found) == "NO 2e-03"
    assert str(agreement(pairs, pairs)) == "yes"


# -- rows


def test_ratios() -> None:
    row = Row(
        "a", run=2.0, xla_run=6.0, library_run=1.0, compiled=3.0, xla_compiled=2.0, cached=0.1, limit=1.0
    )
    assert (row.faster, row.faster_than_library, row.compile_ratio) == (3.0, 0.5, 1.5)
    assert (row.cached_ratio, row.of_limit) == (0.05, 0.5)
    assert row.to_json()["faster"] == 3.0


def test_what_was_not_measured_has_no_ratio() -> None:
    row = Row("a", run=2.0)
    assert (row.faster, row.compile_ratio, row.cached_ratio, row.of_limit) == (None, None, None, None)


def test_summaries_leave_out_what_is_not_there() -> None:
    rows = [
        Row("a", run=1.0, xla_run=2.0, temp=10, xla_temp=20),
        Row("b", run=1.0, xla_run=8.0, temp=5),
        Row("c", error="no"),
    ]
    found = summary(rows)
    assert_near(found["faster"], 4.0, 2)
    assert found["least_faster"] == 2.0
    assert (found["temp"], found["xla_temp"]) == (10, 20)
    assert found["compile_ratio"] is None
    assert geometric_mean([]) is None
    assert_near(geometric_mean([2.0, None, 0.5]), 1.0, 2)


# -- the machine


def test_the_limit_is_the_slower_of_arithmetic_and_memory() -> None:
    machine = Machine("m", 2, 0.0, {}, flops=1e9, bandwidth=1e8)
    assert machine.limit(flops=2e9, moved=1e8) == 2.0
    assert machine.limit(flops=1e9, moved=5e8) == 5.0


def test_the_kernels_that_measure_the_machine_compute() -> None:
    lanes = host().vector_bytes // 4
    x, sums = np.full(lanes, 0.5, np.float32), np.zeros(ACCUMULATORS * lanes, np.float32)
    _compiled(_fma_text(f"<{lanes} x float>"), "fma")(3, x.ctypes.data, sums.ctypes.data)
    assert (sums == 0.875).all()
    source, target = np.arange(3 * lanes, dtype=np.float32), np.zeros(4 * lanes, np.float32)
    _compiled(_copy_text(f"<{lanes} x float>"), "copy")(3, source.ctypes.data, target.ctypes.data)
    assert (target[: 3 * lanes] == source).all()
    assert not target[3 * lanes :].any()


def test_bandwidth_counts_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.machine._fastest", lambda calls: 1.0)
    assert measured_bandwidth(1) == 2 * COPIED


@pytest.mark.parametrize(("rates", "naps"), [((1.0,), 0), ((0.5, 0.7, 0.9), 2)])
def test_turns_wait_for_the_full_rate(
    rates: tuple[float, ...], naps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.machine._fastest", lambda calls: 1.0)
    rate, slept = FullRate(1), list[float]()
    seconds = iter([1.0 / rate for rate in rates])
    monkeypatch.setattr("benchmarks.machine._seconds", lambda calls: next(seconds))
    monkeypatch.setattr("time.sleep", slept.append)
    rate.wait()
    assert len(slept) == naps


def test_a_machine_that_stays_slow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.machine._fastest", lambda calls: 1.0)
    monkeypatch.setattr("benchmarks.machine._seconds", lambda calls: 9.0)
    monkeypatch.setattr("benchmarks.machine.PATIENCE", 0.1)
    FullRate(1).wait()
