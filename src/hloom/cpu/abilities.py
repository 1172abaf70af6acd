"""What a target has instructions for, where code depends on it."""

from __future__ import annotations

from hloom.cpu.target import Target


def fuses(target: Target) -> bool:
    """Whether it multiplies and adds with one rounding."""
    return target.architecture == "aarch64" or target.has("fma")


def converts_half(target: Target) -> bool:
    """Whether it converts between f16 and f32."""
    return target.architecture == "aarch64" or target.has("f16c")


def rounds(target: Target) -> bool:
    """Whether it rounds floats to integral ones."""
    return target.architecture == "aarch64" or target.has("sse4.1")


def has_avx512(target: Target) -> bool:
    """Whether it has the foundation of AVX-512, for vectors of every length and 64-bit integers."""
    return target.has("avx512f", "avx512vl", "avx512dq")


def registers(target: Target) -> int:
    """How many vector registers it has."""
    return 32 if target.architecture == "aarch64" or target.has("avx512f") else 16


def multiplies_pairs(target: Target) -> bool:
    """Whether it multiplies two pairs of bf16 numbers at a time."""
    return target.has("avx512bf16", "avx512vl")
