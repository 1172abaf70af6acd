"""fft of the cpu backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.codegen.target import host
from hloom.cpu.kernels.fourier.axes import STACK_BYTES
from tests.native_runs import agree, compiled

REAL = {"c64": "f32", "c128": "f64"}


def fft(kind: str, complex_: str, batch: tuple[int, ...], lengths: tuple[int, ...]) -> tuple[str, Any]:
    """A program and its argument."""
    rng = np.random.default_rng(sum(lengths))
    half = (*batch, *lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0)
    full = (*batch, *lengths)
    before, after = {"RFFT": (full, half), "IRFFT": (half, full)}.get(kind, (full, full))
    source, result = {"RFFT": (REAL[complex_], complex_), "IRFFT": (complex_, REAL[complex_])}.get(
        kind, (complex_, complex_)
    )
    shapes = [f"{t}[{','.join(map(str, s))}]" for t, s in ((source, before), (result, after))]
    text = (
        f"x = {shapes[0]} parameter(0)\nROOT r = {shapes[1]} fft(x), fft_type={kind}, "
        f"fft_length={{{','.join(map(str, lengths))}}}"
    )
    x = rng.normal(size=before) + (1j * rng.normal(size=before) if source[0] == "c" else 0)
    return text, x.astype(
        {"c64": np.complex64, "c128": np.complex128, "f32": np.float32, "f64": np.float64}[source]
    )


def check(kind: str, complex_: str, batch: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    text, x = fft(kind, complex_, batch, lengths)
    agree(text, x, rounded=True)


KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 32, 49, 64, 100, 128, 143, 256, 360, 512, 1024, 2048, 4096)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows(kind: str, n: int) -> None:
    check(kind, "c64", (3,), (n,))
    check(kind, "c128", (), (n,))


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows(kind: str) -> None:
    check(kind, "c64", (2, 19), (30,))
    check(kind, "c64", (20,), (256,))
    check(kind, "c64", (3,), (192,))
    check(kind, "c128", (3,), (48,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lengths", [(4, 6), (16, 16), (5, 33), (256, 20), (20, 256), (3, 4, 5), (8, 1), (1, 8), (2, 16, 18)]
)
def test_several_dimensions(kind: str, lengths: tuple[int, ...]) -> None:
    check(kind, "c64", (2,), lengths)
    check(kind, "c128", (), lengths)


WITH_PRIMES = [
    (17,), (101,), (34,), (257,), (17, 6), (6, 17), (19, 23), (6, 257), (257, 3), (3, 4, 31), (37,), (41, 43),
    (47,), (53, 6), (6, 59), (61, 47), (3, 4, 106),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", WITH_PRIMES)
def test_large_primes(kind: str, lengths: tuple[int, ...]) -> None:
    """Each type has all kinds and all lengths, in every second pair of both."""
    if (KINDS.index(kind) + WITH_PRIMES.index(lengths)) % 2:
        check(kind, "c64", (2,), lengths)
    else:
        check(kind, "c128", (), lengths)


@pytest.mark.parametrize("kind", ["FFT", "RFFT", "IRFFT"])
def test_long(kind: str) -> None:
    check(kind, "c64", (2,), (1 << 16,))
    check(kind, "c64", (), (10000,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("batch", "lengths"),
    [
        *[((), (n,)) for n in (64, 66, 1001, 1369, 1536, 6561, 44100, 1 << 15)],
        *[(batch, (n,)) for batch in ((2,), (3, 7)) for n in (700, 2002, 5000)],
        *[((2,), lengths) for lengths in ((3, 750), (600, 5), (2, 3, 900))],
    ],
)
def test_two_steps(kind: str, batch: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    """Columns of the first step, and lengths of either, may be no multiples of the lanes."""
    check(kind, "c64", batch, lengths)
    check(kind, "c128", batch, lengths)


def test_few_long_transforms_are_shared_by_threads() -> None:
    text, x = fft("FFT", "c64", (), (1 << 17,))
    kernels = [call.kernel for call in compiled(text).program.calls if call.kernel]
    lanes = (32 if host().partial_sum_bytes == 32 else 64) // 4
    assert [kernel.trips for kernel in kernels] == [512 // lanes, 256 // lanes]
    agree(text, x, rounded=True)


def test_long_columns_and_rows_need_scratch_memory() -> None:
    for kind, lengths in (("FFT", (40000, 3)), ("RFFT", (2, 59049)), ("IRFFT", (40000, 2))):
        text, _ = fft(kind, "c64", (), lengths)
        assert compiled(text).program.temp_bytes > STACK_BYTES
        check(kind, "c64", (), lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_empty(kind: str) -> None:
    check(kind, "c64", (0,), (8,))
    check(kind, "c64", (2,), (0,))
    check(kind, "c64", (2, 0), (3, 4))
