"""A transformer's training step, sharded over data and model: its report at any size, and its runs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.debug.inputs import random_arguments
from hloom.sharding import partitioned_program, report
from hloom.sharding.reading.meshes import mesh_of
from hloom.sharding.reporting.report import Report
from hloom.sharding.reporting.traffic import bytes_sent, collectives
from hloom.sharding.storing.tiles import cut
from tests.agreement import within
from tests.jax_platform.process import run_program

pytest.importorskip("jax")

LAYERS = 4
LENGTH = 17


def lowered(data: int, model: int, layers: int = LAYERS) -> Any:
    """Return the step for a mesh of devices that need not be there, with two sequences a device."""
    import jax
    from jax.sharding import AbstractMesh

    from tests.sharding.transformer import parameters, train_step

    mesh = AbstractMesh((data, model), ("data", "model"))
    weights = jax.eval_shape(lambda: parameters(layers))
    tokens = jax.ShapeDtypeStruct((2 * data, LENGTH), np.int32)
    return train_step(mesh, layers).trace(weights, tokens).lower(lowering_platforms=("cpu",))


def timed_report(data: int, model: int) -> tuple[Report, float]:
    """Return the report and the processor time that it takes."""
    program = lowered(data, model)
    start = time.process_time()
    return report(program), time.process_time() - start


def test_a_report_takes_the_same_time_for_any_number_of_devices() -> None:
    few, short = timed_report(8, 4)
    many, long = timed_report(8192, 4)
    assert (few.devices, many.devices) == (32, 32768)
    assert long < 3 * short + 1
    # Every device has two sequences, so all but the sums over data send the same.
    by_model = [[r.bytes_per_step for r in found.collectives if r.axes == "model"] for found in (few, many)]
    assert by_model[0] == by_model[1]
    assert len(by_model[0]) > 2 * LAYERS
    assert many.peak_bytes < 1.2 * few.peak_bytes
    assert {row.axes for row in many.collectives} == {"data", "model"}
    assert all(row.op_name and "transformer.py" in row.source for row in many.collectives)


def test_the_bytes_of_a_report_are_those_of_the_program_that_runs() -> None:
    program = lowered(4, 2, layers=2)
    found = report(program)
    module = hloom.HloModule.from_proto(program.compiler_ir("hlo").as_serialized_hlo_module_proto())
    assert mesh_of(module) == {"data": 4, "model": 2}
    run = hloom.compile(module, num_partitions=8, use_spmd_partitioning=True)
    assert bytes_sent(hloom.HloModule.from_text(run.to_hlo())) == found.bytes_per_step
    assert bytes_sent(partitioned_program(module, 8).module) == found.bytes_per_step


def test_a_profile_shows_the_time_of_each_collective() -> None:
    program = lowered(2, 2, layers=2)
    module = hloom.HloModule.from_proto(program.compiler_ir("hlo").as_serialized_hlo_module_proto())
    run = hloom.compile(program, num_partitions=4, use_spmd_partitioning=True)
    parameters = partitioned_program(module, 4).parameters
    whole = random_arguments(module, 0)
    profile = run.profile([cut(whole, parameters, device) for device in range(4)])
    wanted = {one.instruction.name for one in collectives(hloom.HloModule.from_text(run.to_hlo()))}
    assert {line.name for line in profile.collectives} == wanted
    assert len(profile.devices) == 4
    for line in (line for device in profile.devices for line in device.collectives):
        assert 0 < line.waiting < line.seconds < profile.seconds


TRAINING = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
from tests.sharding.transformer import VOCABULARY, parameters, shardings, train_step
jax.config.update("jax_num_cpu_devices", 4)
tokens = np.random.default_rng(3).integers(0, VOCABULARY, (4, 17)).astype(np.int32)
for shape in ((1, 1), (2, 2)):
    mesh = Mesh(np.array(jax.devices()[: shape[0] * shape[1]]).reshape(shape), ("data", "model"))
    step = train_step(mesh, 2)
    weights = jax.device_put(parameters(2), shardings(mesh, 2))
    losses = []
    for _ in range(20):
        weights, loss = step(weights, tokens)
        losses.append(float(loss))
    print(losses)
"""


def test_training_on_four_devices_gives_the_losses_of_one() -> None:
    one, four = (np.array(eval(line)) for line in run_program(TRAINING, "cpu").splitlines())
    assert len(one) == 20
    assert one[-1] < one[0] - 0.1
    # Sums over devices are taken in another order; f32 has 24 bits, and 20 steps carry errors on.
    within(four, one, 20 * 2**-24 * 17 * np.abs(one))
