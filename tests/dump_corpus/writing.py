"""Write the dumps of JAX programs on stock XLA, in a process of its own: XLA reads its flags once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto --xla_dump_hlo_snapshots --xla_dump_hlo_pass_re=.* "
    "--xla_force_host_platform_device_count=8 --xla_allow_excess_precision=false --xla_cpu_max_isa=AVX"
)
"""Without AVX2 XLA does not contract products and sums, so that operations round one by one."""
VALUES = "values.pickle"
"""The file beside the dumps with the arguments and the results of each device: two lists of lists."""


def write(directory: Path, names: Sequence[str]) -> None:
    """Run programs of `programs.PROGRAMS`, each with its dumps in a folder of its name."""
    for name in names:
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_dump_to={directory / name} {FLAGS}",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": "",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        command = [sys.executable, "-m", "tests.dump_corpus.writing", name, str(directory / name / VALUES)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)


def _shards(array: Any) -> list[Any]:
    """Return the part of an array on each device, in the order of the devices."""
    import numpy as np

    shards = sorted(array.addressable_shards, key=lambda shard: shard.device.id)
    return [np.array(shard.data) for shard in shards]


def _run(name: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the arguments and the results of each device."""
    import jax

    from tests.dump_corpus.programs import PROGRAMS

    call = PROGRAMS[name]()
    with jax.enable_x64(call.is_wide):
        compiled = call.function.lower(*call.arguments).compile()
        placed = jax.tree.map(jax.device_put, call.arguments, compiled.input_shardings[0])
        arguments = [_shards(leaf) for leaf in jax.tree.leaves(placed)]
        results = [_shards(leaf) for leaf in jax.tree.leaves(compiled(*placed))]
    return [list(each) for each in zip(*arguments)], [list(each) for each in zip(*results)]


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(pickle.dumps(_run(sys.argv[1])))
