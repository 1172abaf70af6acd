"""Several processes of ``jax.distributed``: their devices run one program."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jax_platform.process import Platform, environment_of, registration

SECONDS = 600
BEGIN = """
import os, sys, threading
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", 4 if ALONE else 2)
if not ALONE:
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank, heartbeat_timeout_seconds=600)
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
for result in (total(x), *mapped(x), jax.jit(lambda x: x @ x.T)(x)):
    for shard in result.addressable_shards:
        print("shard", shard.device.id, shard.device.process_index, np.asarray(shard.data).tobytes().hex())
"""


def run_processes(program: str, platform: Platform, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in two processes; return how each of them ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    text = registration(platform) + "ALONE = False\n" + program
    commands = [[sys.executable, "-c", text, str(rank), port] for rank in range(2)]
    outputs = [(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(2)]
    processes = [
        subprocess.Popen(
            command, env=environment_of(platform), stdout=out.open("w"), stderr=err.open("w"), text=True
        )
        for command, (out, err) in zip(commands, outputs, strict=True)
    ]
    try:
        codes = [process.wait(SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())
        for command, code, (out, err) in zip(commands, codes, outputs, strict=True)
    ]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_two_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, "-c", registration("cpu") + "ALONE = True\n" + BEGIN + PROGRAM, "0"],
        env=environment_of("cpu"), capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr[-4000:]
    wanted = {tuple(line.split()[1::2]) for line in alone.stdout.splitlines()}
    ended = run_processes(BEGIN + PROGRAM, "cpu", tmp_path)
    assert [done.returncode for done in ended] == [0, 0], [done.stderr[-4000:] for done in ended]
    rows = [line.split()[1:] for done in ended for line in done.stdout.splitlines()]
    assert {(device, data) for device, _, data in rows} == wanted
    assert {(int(device), int(process)) for device, process, _ in rows} == {(n, n // 2) for n in range(4)}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_killed_process_ends_the_others_with_an_error(tmp_path: Path) -> None:
    program = """
total(x).block_until_ready()
if rank == 1:
    os.kill(os.getpid(), 9)
total(x).block_until_ready()
"""
    survivor, killed = run_processes(BEGIN + program, "cpu", tmp_path)
    assert killed.returncode == -9
    assert survivor.returncode == 1
    assert "process 1 on " in survivor.stderr
