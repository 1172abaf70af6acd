"""An aarch64 Python in ``.aarch64/``, without root's rights: Debian's packages, wheels, and qemu to run them.

``.aarch64/python`` is a shell script that starts this Python under qemu-user, also as ``sys.executable`` of
its own child processes. It finds ``.aarch64/bin/cc`` and ``g++`` first, GCC under qemu-user. ``QEMU_CPU``
chooses the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.matrix import constraints

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".aarch64"
PYTHON: Final = FOLDER / "python"
SYSTEM: Final = FOLDER / "root"

VERSION: Final = "3.13"
"""Python of Debian 13, whose qemu is the first that describes an aarch64 processor in /proc/cpuinfo."""
DEBIAN: Final = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} trixie main"
MIRROR: Final = "http://deb.debian.org/debian"
PACKAGES: Final = (f"python{VERSION}", "libstdc++6", "g++", "libc6-dev", "qemu-user:amd64")
TOOLS: Final = ("hypothesis", "mpmath", "pytest", "pytest-xdist")
GLIBC_TAGS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")
PROCESSOR: Final = "neoverse-n1"
LAUNCHER: Final = """#!/bin/sh
folder={folder}
export QEMU_LD_PREFIX="$folder/root" QEMU_CPU="${{QEMU_CPU:-{processor}}}"
{settings}exec "$folder/qemu-aarch64" "$folder/root/usr/bin/{program}" {options}"$@"
"""
PREFER_COMPILERS: Final = 'export PATH="$folder/bin:$PATH"\n'
COMPILERS: Final = {"cc": "aarch64-linux-gnu-gcc", "g++": "aarch64-linux-gnu-g++"}
COMPILER_OPTIONS: Final = '-wrapper "$folder/qemu-aarch64" -B "$folder/bin/" --sysroot="$folder/root" '
"""GCC starts the compiler proper and the assembler under qemu; the linker, which it starts otherwise, is a
launcher in ``bin``."""


def prepare() -> Path:
    """Create or complete the environment; return the launcher of its Python."""
    stamp, sources = (
        FOLDER / ".installed",
        (ROOT / "pyproject.toml", ROOT / "requirements.lock", Path(__file__)),
    )
    if stamp.exists() and all(stamp.stat().st_mtime > source.stat().st_mtime for source in sources):
        return PYTHON
    _extract_packages(_download_packages())
    _write_launcher(PYTHON, f"python{VERSION}", settings=PREFER_COMPILERS)
    _write_compilers()
    _install_wheels()
    stamp.touch()
    return PYTHON


def is_native() -> bool:
    """Return whether this Python runs without qemu."""
    return Path(sys.executable) != PYTHON


def started(program: Path) -> list[Path]:
    """Return the command that starts a compiled program: under qemu if this Python is."""
    return [program] if is_native() else [FOLDER / "qemu-aarch64", program]


def _download_packages() -> list[Path]:
    """Download packages and their dependencies, with an apt that knows of no installed package."""
    state = FOLDER / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(DEBIAN.format(mirror=os.environ.get("DEBIAN_MIRROR", MIRROR)))
    configuration = state / "apt.conf"
    configuration.write_text(f"""
        APT::Architecture "arm64";
        APT::Architectures {{ "arm64"; "amd64"; }};
        APT::Install-Recommends "false";
        Acquire::Languages "none";
        Dir::State "{state}/state";
        Dir::State::status "{state}/status";
        Dir::Cache "{state}/cache";
        Dir::Etc::SourceList "{state}/sources.list";
        Dir::Etc::SourceParts "-";
    """)
    environment = {**os.environ, "APT_CONFIG": str(configuration)}
    for command in (["update"], ["install", "--yes", "--download-only", *PACKAGES]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, check=True)
    return sorted((state / "cache" / "archives").glob("*.deb"))


def _extract_packages(packages: Sequence[Path]) -> None:
    """Extract the libraries and Python, and qemu, which runs on this machine, beside them."""
    SYSTEM.mkdir(exist_ok=True)
    if not (SYSTEM / "lib").exists():
        (SYSTEM / "lib").symlink_to("usr/lib")  # the dynamic loader's name begins with /lib
    for package in packages:
        if package.name.startswith("qemu-user_"):
            archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
            extract = ["tar", "-x", "-C", FOLDER, "--strip-components=3", "./usr/bin/qemu-aarch64"]
            subprocess.run(extract, stdin=archive.stdout, check=True)
            archive.wait()
        elif package.name.endswith("_arm64.deb") or package.name.startswith("linux-libc-dev_"):
            subprocess.run(["dpkg-deb", "-x", package, SYSTEM], check=True)


def _write_launcher(path: Path, program: str, *, settings: str = "", options: str = "") -> None:
    """Write a shell script that starts a program of the system under qemu."""
    fields = {"folder": FOLDER, "processor": PROCESSOR, "program": program}
    path.write_text(LAUNCHER.format(**fields, settings=settings, options=options))
    path.chmod(0o755)


def _write_compilers() -> None:
    """Write the launchers of GCC and its linker; link its assembler, which is found beside them."""
    folder = FOLDER / "bin"
    folder.mkdir(exist_ok=True)
    for name, program in COMPILERS.items():
        _write_launcher(folder / name, program, options=COMPILER_OPTIONS)
    _write_launcher(folder / "ld", "aarch64-linux-gnu-ld.bfd")
    (folder / "as").unlink(missing_ok=True)
    (folder / "as").symlink_to(SYSTEM / "usr" / "bin" / "aarch64-linux-gnu-as")


def _install_wheels() -> None:
    """Install hloom's dependencies and the tools of its tests, in their locked versions, and hloom itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    target = SYSTEM / "usr" / "local" / "lib" / f"python{VERSION}" / "dist-packages"
    foreign = ["--only-binary=:all:", "--implementation=cp", f"--python-version={VERSION}"]
    foreign += [f"--platform={tag}_aarch64" for tag in GLIBC_TAGS]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["jax"], *TOOLS]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    options = ["--upgrade", "--no-compile", "--target", target]
    locked = FOLDER / "constraints.txt"
    locked.write_text(constraints((ROOT / "requirements.lock").read_text()))
    subprocess.run([*pip, *options, *foreign, "-c", locked, *requirements], check=True)
    subprocess.run([*pip, *options, "--no-deps", "-e", ROOT], check=True)
    (target / "launcher.pth").write_text(f"import sys; sys.executable = {str(PYTHON)!r}\n")
