"""The models of the benchmark: the same function in JAX and in PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.agreement import agreement
from benchmarks.alternation import Measured, Side, measured
from benchmarks.child import MOST_ELEMENTS, JaxResults, sampled
from benchmarks.models import weights
from benchmarks.models.__main__ import NAMES, Row, line
from benchmarks.models.weights import Transformer
from tests import agreement as arrays

jax_models = pytest.importorskip("benchmarks.models.jax_models", exc_type=ImportError)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the models small."""
    sizes = {
        "GPT2": Transformer(2, 32, 4, 4, 64, 101, 9),
        "BERT": Transformer(2, 32, 4, 4, 64, 101, 9),
        "SMOLLM": Transformer(2, 32, 4, 2, 48, 101, 9),
        "CACHE": 128,
    }
    modules: list[Any] = [weights, jax_models]
    try:
        from benchmarks.models import torch_models
    except ImportError:
        pass
    else:
        modules.append(torch_models)
    for name, size in sizes.items():
        for module in modules:
            monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(weights, "RESNET_STAGES", ((1, 4, 1), (1, 8, 2)))
    monkeypatch.setattr(weights, "LSTM_WIDTH", 16)
    monkeypatch.setattr(weights, "LSTM_WORDS", 50)


def results(module: Any, name: str) -> list[np.ndarray]:
    """Return the results of a model's step."""
    model = module.Model(name)
    _, result = model.step(model.build())
    return (model if hasattr(model, "arrays") else JaxResults()).arrays(result)


@pytest.mark.parametrize("size", [8, MOST_ELEMENTS + 1, 3 * MOST_ELEMENTS])
def test_what_is_compared_keeps_no_result_in_memory(size: int) -> None:
    result = np.arange(size)
    compared = sampled(result)
    assert not np.shares_memory(compared, result)
    assert compared.size <= 2 * MOST_ELEMENTS
    arrays.same(compared, result[:: max(1, size // MOST_ELEMENTS)])


def test_every_model_is_listed() -> None:
    assert set(jax_models.MODELS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_frameworks_compute_the_same(name: str) -> None:
    torch_models = pytest.importorskip("benchmarks.models.torch_models", exc_type=ImportError)
    found = agreement(results(torch_models, name), results(jax_models, name))
    assert found.worst <= jax_models.Model(name).TOLERANCE


def test_training_changes_every_weight() -> None:
    value, *changed = results(jax_models, "lstm_train")
    tree, _ = weights.lstm()
    before = [tree["layers"][n][k] for n in (0, 1) for k in ("bias", "input", "state")]
    assert np.isfinite(value)
    assert all((new != old).any() for new, old in zip(changed, before, strict=False))


def test_sides_take_turns_and_are_compared() -> None:
    program = "benchmarks.jax_programs.programs.pair_forces"
    sides = measured({"stock": program, "hloom": program}, 0.01)
    assert all(side.median and side.peak and side.agree for side in sides.values()), sides


def test_a_library_that_is_missing_leaves_the_other_sides() -> None:
    program = "benchmarks.jax_programs.programs.pair_forces"
    sides = measured({"stock": program, "torch": "no_such_library"}, 0.01)
    assert sides["torch"].missing == "no_such_library"
    assert sides["stock"].median


def test_a_row_tells_ratios_limit_and_remarks() -> None:
    stock, ours = Measured(seconds=(4.0,) * 4, agree=True), Measured(seconds=(2.0,) * 4, agree=True)
    torch = Measured(seconds=(1.0,) * 4, agree=False, worst=0.5)
    text = line(Row("a_model", {"stock": stock, "hloom": ours, "torch": torch}, 1.5))
    expected = "a_model 4000.00 2000.00 1000.00 2.00x 0.50x 75% 0% torch: differs by 5e-01"
    assert text.split() == expected.split()


def test_a_process_that_ends_leaves_its_last_words(tmp_path: Path) -> None:
    program = "benchmarks.jax_programs.programs.pair_forces"
    side = Side("stock", program, tmp_path, "wall")
    side._process.kill()
    side._process.wait()
    with pytest.raises(RuntimeError, match="the process ended with -9"):
        side.sample(1)
    side.kill()
