"""`make trial`: install the wheel into an empty environment, and run the README and the guides with it.

::

    python -m tests.new_user dist/hloom-0.1.0-py3-none-any.whl
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.documented import PAGES, ROOT, commands, python_blocks, run_page


def install(wheel: Path, folder: Path) -> dict[str, str]:
    """Create an environment with the wheel and its extras; return the variables of a shell that uses it."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    packages = f"{wheel.resolve()}[jax,lsp,png]"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", packages], check=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HLOOM_", "PYTHON"))}
    return {**inherited, "PATH": f"{programs}:{os.environ['PATH']}", "HLOOM_CACHE_DIR": str(folder / "cache")}


def readme(folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run the blocks of the README, and ask every command that it lists for its help."""
    (folder / "readme.py").write_text(python_blocks(ROOT / "README.md"))
    for line in ("python readme.py", *(f"hloom {name} --help" for name in commands())):
        done = subprocess.run(line.split(), cwd=folder, env=environment, capture_output=True, text=True)
        yield line, done.stderr[-2000:] if done.returncode else ""


def main() -> int:
    """Run everything, print a line for each command, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel
    failed = 0
    with tempfile.TemporaryDirectory(prefix="hloom-trial-") as temporary:
        folder = Path(temporary)
        environment = install(wheel, folder / "environment")
        pages = [("README.md", readme), *((p.name, lambda f, e, p=p: run_page(p, f, e)) for p in PAGES)]
        for name, run in pages:
            work = folder / name
            work.mkdir()
            for command, complaint in run(work, environment):
                failed += bool(complaint)
                print(
                    f"{'FAILED' if complaint else 'ok    '} {name}: {command}",
                    complaint,
                    sep="\n" * bool(complaint),
                )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
