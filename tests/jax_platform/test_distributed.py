"""Several processes of ``jax.distributed``: their devices run one program."""

from __future__ import annotations

import re
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.jax_platform.process import Platform, environment_of, forked_programs, registration
from tests.mpi_launcher import command as mpi_command
from tests.mpi_launcher import needs_mpi

SECONDS = 600
BEGIN = """
import os, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", 4 // COUNT)
if COUNT > 1:
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", COUNT, rank, heartbeat_timeout_seconds=600)
mesh = Mesh(np.array(jax.devices()), "x")
whole = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])
total = jax.jit(lambda x: x / x.sum(0))
"""
PROGRAM = """
def local(x):
    turned = lax.ppermute(x, "x", [(n, (n + 1) % 4) for n in range(4)])
    pieces = lax.all_to_all(x, "x", 1, 0, tiled=True)
    return lax.psum(turned * 3, "x") + lax.all_gather(x, "x")[2], pieces
mapped = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
results = total(x), *mapped(x), jax.jit(lambda x: x @ x.T)(x)
"""


MPI = """
import os, sys
from mpi4py import MPI
sys.argv.insert(1, str(MPI.COMM_WORLD.Get_rank()))
sys.stdout = open(os.path.join(sys.argv[3], sys.argv[1] + ".out"), "a")
sys.stderr = open(os.path.join(sys.argv[3], sys.argv[1] + ".err"), "a")
from hloom.runtime.connections import Connections
Connections.send_memory = None  # native code sends nothing over TCP
"""
PRINTED = """
for result in results:
    for shard in result.addressable_shards:
        print("shard", shard.device.id, shard.device.process_index, np.asarray(shard.data).tobytes().hex())
"""

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def run_processes(
    program: str,
    folder: Path,
    count: int = 2,
    *,
    platform: Platform = "cpu",
    mpi: bool = False,
    settings: str = "",
) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in processes with 4 devices together; return how each of them ended.

    ``settings`` run before JAX's client is made.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    text = f"COUNT = {count}\n{settings}{BEGIN}{program}"
    outputs = [(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(count)]
    if mpi:
        codes = [run_mpi(count, text, port, folder)] * count
    else:
        programs = forked_programs(platform)
        children = [programs.begin(text, files, [str(rank), port]) for rank, files in enumerate(outputs)]
        codes = [programs.wait(child, SECONDS) for child in children]
    return [
        subprocess.CompletedProcess("", code, out.read_text(), err.read_text())
        for code, (out, err) in zip(codes, outputs, strict=True)
    ]


def run_mpi(count: int, text: str, port: str, folder: Path) -> int:
    """Run a program in processes that `mpiexec` starts; return its exit code."""
    command = mpi_command(count, "-c", MPI + registration("cpu") + text, port, str(folder))
    return subprocess.run(command, env=environment_of("cpu"), timeout=SECONDS, check=False).returncode


def printed(
    program: str,
    folder: Path,
    count: int,
    *,
    platform: Platform = "cpu",
    mpi: bool = False,
    settings: str = "",
) -> list[str]:
    """Return the lines that all processes print; they must succeed."""
    ended = run_processes(program, folder, count, platform=platform, mpi=mpi, settings=settings)
    assert {done.returncode for done in ended} == {0}, [done.stderr[-4000:] for done in ended]
    return [line for done in ended for line in done.stdout.splitlines()]


def shards(lines: list[str]) -> set[tuple[str, str]]:
    """Return the devices and the bytes of the printed shards."""
    return {(line.split()[1], line.split()[3]) for line in lines}


@pytest.fixture(scope="module")
def shards_of_one_process(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    return shards(printed(PROGRAM + PRINTED, tmp_path_factory.mktemp("one"), 1))


@pytest.mark.parametrize(
    ("count", "mpi"), [(2, False), (4, False), pytest.param(2, True, marks=needs_mpi, id="mpi")]
)
def test_processes_give_the_bits_of_one(
    count: int, mpi: bool, tmp_path: Path, shards_of_one_process: set[tuple[str, str]]
) -> None:
    lines = printed(PROGRAM + PRINTED, tmp_path, count, mpi=mpi)
    assert shards(lines) == shards_of_one_process
    places = {tuple(line.split()[1:3]) for line in lines}
    assert places == {(str(n), str(n * count // 4)) for n in range(4)}


@pytest.mark.parametrize("mpi", [False, pytest.param(True, marks=needs_mpi, id="mpi")])
def test_runs_succeed_after_one_that_failed(mpi: bool, tmp_path: Path) -> None:
    """Messages of a failed run, large ones too, belong to no later run."""
    program = """
failing = False
def called(x):
    if failing and rank == 1:
        raise ValueError("refused")
    return x
def summed(x):
    y = lax.psum(x, "x")
    z = jax.pure_callback(called, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")
    return lax.psum(z, "x") + y, y
summed = jax.jit(jax.shard_map(summed, mesh=mesh, in_specs=P(None, "x"), out_specs=P(), check_vma=False))
columns = NamedSharding(mesh, P(None, "x"))
wide = jax.make_array_from_callback((8, 80000), columns, lambda index: np.ones((8, 20000)))
for run in range(6):
    failing = run % 2 == 1
    try:
        total, _ = summed(wide)
        print(run, np.asarray(total.addressable_shards[0].data).min())
    except Exception as error:
        print(run, "failed")
"""
    lines = printed(program, tmp_path, 2, mpi=mpi)
    assert lines == ["0 8.0", "1 failed", "2 8.0", "3 failed", "4 8.0", "5 failed"] * 2


@pytest.mark.parametrize("count", [2, 4])
def test_a_killed_process_ends_the_others_with_an_error(count: int, tmp_path: Path) -> None:
    program = """
total(x).block_until_ready()
if rank == COUNT - 1:
    os.kill(os.getpid(), 9)
begin = time.monotonic()
try:
    total(x).block_until_ready()
finally:
    print("seconds", time.monotonic() - begin)
"""
    *survivors, killed = run_processes(program, tmp_path, count)
    assert killed.returncode == -9
    for survivor in survivors:
        # JAX's coordination client may abort the process at its end, and says so.
        aborted = survivor.returncode == -6 and "coordination" in survivor.stderr
        assert survivor.returncode == 1 or aborted, survivor.stderr
        assert re.search(
            f"process {count - 1} on |process . on .* failed: .*process {count - 1} on ", survivor.stderr
        )
        assert float(survivor.stdout.split()[1]) < 60  # every time-out is longer


def test_arrays_of_the_host_on_all_processes(tmp_path: Path) -> None:
    """Gathering, broadcasting and barriers of ``multihost_utils``; arrays of several shardings."""
    program = """
from jax.experimental import multihost_utils as hosts
hosts.sync_global_devices("begin")
def of(spec):
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), lambda index: whole[index])
for n, array in enumerate([x, of(P(None, "x")), of(P()), x.astype(jnp.bfloat16), jnp.sin(x)]):
    found = hosts.process_allgather(array, tiled=True)
    print("gathered", n, found.dtype, found.shape, found.tobytes().hex())
local = np.arange(3) + 10 * jax.process_index()
stacked = hosts.process_allgather(local)
assert stacked.tolist() == [[10 * n, 10 * n + 1, 10 * n + 2] for n in range(COUNT)] or COUNT == 1, stacked
assert hosts.broadcast_one_to_all(local).tolist() == [0, 1, 2]
hosts.assert_equal(whole, "all have the same array")
rows = whole[8 // COUNT * rank : 8 // COUNT * (rank + 1)]
divided = hosts.host_local_array_to_global_array(rows, mesh, P("x"))
assert (hosts.global_array_to_host_local_array(divided, mesh, P("x")) == rows).all()
hosts.sync_global_devices("end")
results = [divided, total(divided)]
"""
    wanted = printed(program + PRINTED, tmp_path, 1)
    lines = printed(program + PRINTED, tmp_path, 2)
    assert set(lines) != set() and {shard_of(line) for line in lines} == {shard_of(line) for line in wanted}


def shard_of(line: str) -> tuple[str, ...]:
    """Return the words of a line without the process of a shard."""
    words = line.split()
    return (*words[:2], *words[3:]) if words[0] == "shard" else tuple(words)


@pytest.mark.skipif(find_spec("orbax") is None, reason="pip install orbax-checkpoint")
def test_checkpoints_of_two_processes(tmp_path: Path) -> None:
    """Orbax restores what two processes saved, in two processes and in one, with other shardings too."""
    program = f"""
import orbax.checkpoint as orbax
folder = {str(tmp_path / "saved")!r}
step = jax.device_put(jnp.int32(7), NamedSharding(mesh, P()))
state = {{"x": x, "total": total(x), "step": step}}
with orbax.StandardCheckpointer() as checkpointer:
    if SAVES:
        checkpointer.save(folder, state)
        checkpointer.wait_until_finished()
    target = {{
        "x": jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
        "total": jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P(None, "x"))),
        "step": jax.ShapeDtypeStruct((), jnp.int32, sharding=step.sharding),
    }}
    restored = checkpointer.restore(folder, target)
results = [restored["x"], restored["total"], restored["step"]]
"""
    saved = printed("SAVES = True" + program + PRINTED, tmp_path, 2)
    assert shards(printed("SAVES = False" + program + PRINTED, tmp_path, 1)) == shards(saved)
    assert len(saved) == 12
