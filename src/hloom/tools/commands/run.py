"""`hloom run`: load a program, run it, print and save its results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hloom.debug.inputs import random_arguments
from hloom.errors import HloError, plural
from hloom.files import Snapshot, load_snapshot
from hloom.runtime import mpi
from hloom.runtime.executable import compile as compile_module
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.reading.meshes import device_count, parse_mesh, resized
from hloom.tools.commands.whole_program import WholeProgram, has_regions
from hloom.tools.console.arguments import leaves_of, read_arguments, save_results, shaped, value_lines
from hloom.tools.console.terminal import echo, styled
from hloom.tools.reports.amounts import quantity


def run(
    file: str,
    *,
    inputs: Sequence[str],
    seed: int | None,
    backend: str,
    output: Path | None,
    output_tiles: Path | None,
    partition: bool,
    mesh: str,
    num_replicas: int | None,
    num_partitions: int | None,
    quiet: bool,
    every: bool,
    profile: bool,
) -> None:
    """Run the program of a file; see `hloom run --help`. Raises HloError."""
    snapshot = load_snapshot(file)
    module = snapshot.module
    processes = mpi.world() if mpi.launched() else None
    axes = parse_mesh(mesh) if mesh else {}
    is_partitioned = (num_partitions or module.config.num_partitions) > 1 and has_regions(module)
    if partition or axes or is_partitioned:
        devices = num_partitions or device_count(module, axes)
        program = WholeProgram(resized(module, axes), backend, devices, processes)
    else:
        program = compile_module(
            module,
            backend,
            num_replicas=num_replicas,
            num_partitions=num_partitions,
            processes=processes,
        )
    count = program.num_replicas * program.num_partitions
    arguments = _arguments(snapshot, inputs, seed, count)
    numbers = [d.replica * program.num_partitions + d.partition for d in program.devices]
    is_whole = isinstance(program, WholeProgram)
    if output_tiles is not None and not is_whole:
        message = "only programs with shardings have results in tiles; add --partition or --mesh"
        raise HloError(message, rule="run.tiles")
    start = time.perf_counter()
    local_arguments = [arguments[0] if is_whole else arguments[n] for n in numbers]
    results = program.run(arguments[0] if is_whole else local_arguments)
    elapsed = time.perf_counter() - start
    times = None
    if profile:
        is_single = is_whole or len(local_arguments) == 1
        times = program.profile(*local_arguments[0]) if is_single else program.profile(local_arguments)
    written: list[Path] = []
    if output_tiles is not None and is_whole:
        written += program.store(output_tiles, results)
    if is_whole:
        results = [program.whole(results)] if output or snapshot.result or not quiet else []
    elif processes is not None:
        results = [result for part in processes.all_gather(results) for result in part]
    if processes is not None and processes.rank:
        return
    echo(styled(f"{module.name}: {_duration(elapsed)} on {backend}{_size_words(results)}", "dim"))
    if not quiet:
        for device, value in enumerate(results):
            for line in value_lines(value, f"device {device} result" if count > 1 else "result", every=every):
                echo(line)
    written += save_results(results, output) if output is not None else []
    for path in written:
        echo(styled(f"wrote {path}", "dim"))
    if times is not None:
        echo(str(times))
    if snapshot.result is not None and not inputs and seed is None:
        echo(_comparison(results[0], module.entry.root.shape, snapshot.result))


def _arguments(snapshot: Snapshot, inputs: Sequence[str], seed: int | None, devices: int) -> list[list[Any]]:
    """Return a list of arguments for each device."""
    module = snapshot.module
    if inputs and seed is not None:
        raise HloError("--input and --random are given; use one of them", rule="run.argument-source")
    if inputs:
        return [shaped(read_arguments(inputs), module)] * devices
    if seed is not None:
        return [random_arguments(module, seed + device) for device in range(devices)]
    if snapshot.runs:
        stored = [list(arguments) for arguments in snapshot.runs]
        if len(stored[0]) != len(module.entry.parameters):
            message = (
                f"the snapshot holds {len(stored[0])} of {len(module.entry.parameters)} arguments (XLA does "
                f"not store what is donated); give --input FILE.npy ... or --random SEED"
            )
            raise HloError(message, rule="run.snapshot-arguments")
        return stored if len(stored) == devices else [stored[0]] * devices
    parameters = module.entry.parameters
    if parameters:
        expected = "\n".join(f"  {p.name}: {p.shape.to_string(layout=False)}" for p in parameters)
        message = f"the program takes arguments; give --input FILE.npy ... or --random SEED:\n{expected}"
        raise HloError(message, rule="run.argument-count")
    return [[]] * devices


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _size_words(results: Sequence[object]) -> str:
    """Describe the number and the total size of the arrays of results."""
    arrays = [array for value in results for _, array in leaves_of(value)]
    size = quantity(sum(np.asarray(array).nbytes for array in arrays), "B")
    return f"; {plural(len(arrays), 'array')}, {size}" if arrays else ""


def _comparison(value: object, shape: Shape, stored: Literal) -> str:
    """Return a line that compares the result with the one stored in a snapshot."""
    if not stored.shape.compatible(shape):
        return f"not compared: the snapshot's result is {stored.shape} (XLA stores none of donated arguments)"
    ours = Literal(value, stored.shape)
    if ours == stored:
        return "equal to the snapshot's result, bit for bit"
    return f"differs from the snapshot's result: the largest difference is {_difference(ours, stored):.3g}"


def _difference(ours: Literal, theirs: Literal) -> float:
    if ours.shape.is_tuple:
        pairs = zip(ours.elements, theirs.elements, strict=True)
        return max((_difference(a, b) for a, b in pairs), default=0.0)
    if not ours.shape.is_array or not ours.shape.element_count:
        return 0.0
    kind = np.complex128 if ours.shape.element_type.is_complex else np.float64
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(ours.array.astype(kind) - theirs.array.astype(kind))))
