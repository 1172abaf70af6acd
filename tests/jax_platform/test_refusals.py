"""Refusals of the plug-in before JAX is involved, and calls of functions that do not exist."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest
from jax._src import xla_bridge

from hloom.errors import HloError
from hloom.jax import plugin
from hloom.jax.calls import callbacks
from hloom.jax.devices.processes import ProcessRecord
from hloom.jaxlib.private import Private
from hloom.operations import custom_call
from tests.evaluation import evaluate
from tests.jax_platform.process import Platform, environment_of, registration


def test_a_jax_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version__", "0.9.2")
    with pytest.raises(HloError) as caught:
        plugin.register()
    assert caught.value.rule == "jax.version"


def test_each_name_is_there_in_the_installed_jax() -> None:
    assert len(Private.plugin) > 50
    assert [name.complaint() for name in Private.plugin if name.complaint()] == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (Private("jax._src.no_such_module", "name", plugin=False), "no jax._src.no_such_module.name"),
        (Private("jax._src.core", "no_such.name", plugin=False), "no jax._src.core.no_such.name"),
        (
            Private("subprocess", "run", parameters=("check", "a"), plugin=False),
            "no parameter a of subprocess.run",
        ),
    ],
)
def test_what_a_newer_jax_lacks_is_named(
    name: Private, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name.complaint() == complaint
    monkeypatch.setattr(Private, "plugin", [name])
    with pytest.raises(HloError, match=complaint) as caught:
        plugin.register()
    assert caught.value.rule == "jax.private"
    monkeypatch.setenv("HLOOM_AS_CPU", "1")
    with pytest.warns(RuntimeWarning, match=f"{complaint}; hloom is tested with JAX 0.10.2"):
        plugin.initialize()


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
def test_jax_goes_on_without_a_platform_that_it_cannot_serve(platform: Platform) -> None:
    program = """
import warnings
import jax._src.compiler
import hloom.jax.plugin
del jax._src.compiler.backend_compile_and_load
with warnings.catch_warnings(record=True) as caught:
    hloom.jax.plugin.initialize()
print("no jax._src.compiler.backend_compile_and_load;" in str(caught[0].message))
print([(d.platform, "hloom" in d.client.platform_version) for d in jax.devices()])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(platform), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True", "[('cpu', False)]"], done.stderr


@pytest.mark.parametrize("platform", ["cpu", "hloom"])
@pytest.mark.parametrize("setting", ["HLOOM_CACHE_LIMIT", "HLOOM_PACKED_LIMIT"])
def test_a_wrong_setting_is_an_error_of_the_platform(setting: str, platform: Platform) -> None:
    done = subprocess.run(
        [sys.executable, "-c", registration(platform) + "import jax; print(jax.devices())"],
        env=environment_of(platform) | {setting: "1 GB"}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"{setting} is '1 GB'; a number of MiB is wanted" in done.stderr.splitlines()[-1]


def test_a_jax_that_uses_the_platform_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_bridge, "_backends", {"cpu": object()})
    with pytest.raises(HloError) as caught:
        plugin.register(as_cpu=True)
    assert caught.value.rule == "jax.initialized"


@pytest.mark.parametrize("target", [*callbacks.CALLBACK_TARGETS, callbacks.BUFFER_TARGET])
def test_a_function_of_another_process(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_call, "TARGETS", dict(custom_call.TARGETS))
    callbacks.register_targets()
    text = f'p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), custom_call_target="{target}"'
    with pytest.raises(HloError) as caught:
        evaluate(text, np.zeros(2, np.float32))
    assert (caught.value.rule, caught.value.instruction) == ("jax.callback", "r")


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[0, 'h', 'a', 1]", '[0, "h", "a", 1]', '[2, "h", "a"]', "{}"]
)
def test_a_process_that_does_not_describe_itself(text: str) -> None:
    assert ProcessRecord.parsed('[2, "host", "127.0.0.1", 99, -1]') == (2, "host", ("127.0.0.1", 99), -1)
    with pytest.raises(HloError) as caught:
        ProcessRecord.parsed(text)
    assert caught.value.rule == "processes.connect"
