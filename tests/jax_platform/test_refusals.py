"""Refusals of the plug-in before JAX is involved, and calls of functions that do not exist."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax._src import xla_bridge

from evaluation import evaluate
from hloom.errors import HloError
from hloom.jax import callbacks, plugin
from hloom.operations import custom_call


def test_a_jax_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version__", "0.9.2")
    with pytest.raises(HloError) as caught:
        plugin.register()
    assert caught.value.rule == "jax.version"


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
