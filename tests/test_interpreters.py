"""The choice of interpreters for `make test` and `make matrix`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.matrix import ROOT, constraints, interpreters, summary

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def fake(folder: Path, name: str, *lines: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(("#!/bin/sh", *lines)))
    (folder / name).chmod(0o755)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PYENV_ROOT", "XDG_DATA_HOME", "CONDA_PREFIX", "UV_PYTHON_INSTALL_DIR", "ASDF_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_shim_that_does_not_start_is_passed_over(home: Path) -> None:
    fake(home / "shims", f"python{OWN}", "echo 'pyenv: command not found' >&2", "exit 127")
    fake(home / "real", f"python{OWN}", f'exec {sys.executable} "$@"')
    found = interpreters([OWN], f"{home}/shims:{home}/real:/usr/bin:/bin")
    assert [i.path for i in found] == [f"{home}/real/python{OWN}"]


def test_an_interpreter_of_another_version_is_passed_over(home: Path) -> None:
    fake(home / "wrong", "python3.14" if OWN != "3.14" else "python3.11", f'exec {sys.executable} "$@"')
    fake(home / "plain", "python3", f'exec {sys.executable} "$@"')
    found = {i.version: i.path for i in interpreters(["3.14", OWN], f"{home}/wrong:{home}/plain:/bin")}
    assert found[OWN] == f"{home}/plain/python3"
    assert not found.get("3.14", "").startswith(f"{home}/wrong")


@pytest.mark.parametrize(
    "folder",
    [
        f".pyenv/versions/{OWN}.0/bin",
        f".local/share/uv/python/cpython-{OWN}.1-linux-x86_64-gnu/bin",
        f".asdf/installs/python/{OWN}.2/bin",
        f".local/share/mise/installs/python/{OWN}.3/bin",
        "miniforge3/envs/some env/bin",
    ],
)
def test_folders_of_version_managers_are_searched(home: Path, folder: str) -> None:
    fake(home / folder, f"python{OWN}", f'exec {sys.executable} "$@"')
    (home / "empty").mkdir()
    assert [i.path for i in interpreters([OWN], f"{home}/empty")] == [f"{home / folder}/python{OWN}"]


def test_the_newest_is_the_first(home: Path) -> None:
    versions = [tuple(map(int, i.version.split("."))) for i in interpreters()]
    assert versions == sorted(set(versions), reverse=True)


def test_the_lock_serves_every_interpreter_and_leaves_jax_open() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert re.findall(r"^jax==\S+ ; python_full_version (\S+) '3.12'", lock, re.MULTILINE) == ["<", ">="]
    pins = constraints(lock).splitlines()
    assert len(pins) == len(re.findall("==", lock)) - 4
    assert not [pin for pin in pins if pin.startswith("jax")]
    assert any(pin.startswith("numpy==") for pin in pins)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-runtime.lock"])
def test_every_locked_version_has_hashes(name: str) -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text())
    assert [entry.split(" ")[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_locks_agree() -> None:
    whole, runtime = (
        set(constraints((ROOT / name).read_text()).splitlines())
        for name in ("requirements.lock", "requirements-runtime.lock")
    )
    assert runtime < whole


def test_the_summary_names_what_was_missing() -> None:
    found = summary(["3.11", "3.12", "3.14"], {"3.11": True, "3.12": False})
    assert found == "passed: Python 3.11; failed: Python 3.12; missing on this machine: Python 3.14"
