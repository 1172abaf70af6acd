"""The step of a build that compiles the run time's native code, which the package then contains."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeCode(BuildHookInterface[Any]):
    """Compiles the native code, for wheels and for checkouts that are installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the object files into the package's folder, and add them to the wheel."""
        sys.path.insert(0, str(Path(self.root, "src")))
        from hloom.tools.run_time_code import compile_run_time

        compile_run_time()
        build_data["artifacts"].append("src/hloom/cpu/runtime/built/*.hloomcode")
