"""Targets by name, this machine without LLVM, and how many cores there are to use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.codegen.target import Target, first_processor, host
from hloom.cpu.jit import llvm
from hloom.errors import HloError
from hloom.runtime.cores import available_cores, control_group_quota, thread_count


def test_this_machine_is_described_without_llvm() -> None:
    code = (
        "import sys; from hloom.codegen.target import host; print(host().identity, 'llvmlite' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == [host().identity, "False"]


def test_llvm_finds_what_the_system_says_of_this_machine() -> None:
    cpu, features = llvm.names(host())
    assert cpu
    assert {f"+{f}" for f in host().features} <= set(features.split(","))


@pytest.mark.parametrize(
    ("triple", "cpu", "vector_bytes"),
    [
        ("x86_64-linux-gnu", "", 16),
        ("x86_64-linux-gnu", "x86-64-v3", 32),
        ("x86_64-linux-gnu", "x86-64-v4", 64),
        ("x86_64-linux-gnu", "sapphirerapids", 64),
        ("aarch64-linux-gnu", "", 16),
        ("aarch64-linux-gnu", "neoverse-v2", 16),
    ],
)
def test_named_targets(triple: str, cpu: str, vector_bytes: int) -> None:
    target = Target.named(triple, cpu)
    assert target.vector_bytes == vector_bytes
    assert target.architecture == triple.split("-")[0]
    assert llvm.generate("define void @f() {\n ret void\n}\n", target)[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("triple", "cpu", "rule"),
    [
        ("mips-linux-gnu", "", "cpu.target-architecture"),
        ("x86_64-linux-gnu", "neoverse-v2", "cpu.target-cpu"),
        ("aarch64-linux-gnu", "x86-64-v4", "cpu.target-cpu"),
        ("x86_64-linux-gnu", "nonsense", "cpu.target-cpu"),
    ],
)
def test_unknown_targets_are_refused(triple: str, cpu: str, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        Target.named(triple, cpu)
    assert caught.value.rule == rule


def test_targets_that_differ_have_different_identities() -> None:
    names = [("x86_64-linux-gnu", "x86-64-v3"), ("x86_64-linux-gnu", "x86-64-v4"), ("aarch64-linux-gnu", "")]
    assert len({Target.named(*name).identity for name in names} | {host().identity}) == 4


def test_only_the_first_processor_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("model\t: 2\nflags\t: avx fma\n\nmodel\t: 3\n")
    assert first_processor(file) == {"model": "2", "flags": "avx fma"}
    assert first_processor(tmp_path / "nothing") == {}


# -- cores


def test_cores_follow_the_affinity_mask() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_number_of_threads_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_NUM_THREADS", raising=False)
    assert thread_count() == available_cores()
    monkeypatch.setenv("HLOOM_NUM_THREADS", "3")
    assert thread_count() == 3


@pytest.mark.parametrize("given", ["0", "-1", "many", "1.5", "100000"])
def test_a_wrong_number_of_threads_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("HLOOM_NUM_THREADS", given)
    with pytest.raises(HloError) as caught:
        thread_count()
    assert caught.value.rule == "cpu.thread-count"


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "400000 100000"}, 0.5),
        ("0::/a\n", {"a/cpu.max": "max 100000"}, None),
        (
            "3:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            2.0,
        ),
        ("3:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("2:memory:/a\n", {"cpu/a/cpu.cfs_quota_us": "1", "cpu/a/cpu.cfs_period_us": "1"}, None),
        ("0::/a\n", {"a/cpu.max": "rubbish"}, None),
        ("", {}, None),
    ],
)
def test_quotas_of_control_groups(
    tmp_path: Path, membership: str, files: dict[str, str], quota: float | None
) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert control_group_quota(tmp_path / "cgroup", tmp_path / "fs") == quota
