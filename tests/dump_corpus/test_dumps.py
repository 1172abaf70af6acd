"""The checks of XLA's dumps on a few programs; `python -m tests.dump_corpus DIR` makes them on all."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from tests.dump_corpus.checking import check_folder
from tests.dump_corpus.writing import VALUES, write


@pytest.mark.parametrize("name", ["products", "conditional", "parallel_map"])
def test_every_dump_of_a_program(tmp_path: Path, name: str) -> None:
    write(tmp_path, [name])
    report = check_folder(tmp_path / name)
    assert not report.failures, "\n".join(report.failures)
    assert min(report.counts[what] for what in ("text", "proto", "diff", "draw")) > 15
    assert min(report.counts[backend] for backend in ("evaluator", "cpu")) > 3


def test_a_wrong_dump_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, ["donated"])
    folder = tmp_path / "donated"
    arguments, results = pickle.loads((folder / VALUES).read_bytes())
    results[0][0] = results[0][0] + np.float32(0.01)
    (folder / VALUES).write_bytes(pickle.dumps((arguments, results)))
    cut = next(folder.glob("*after_optimizations.txt"))
    cut.write_text(cut.read_text().replace("subtract", "add", 1))
    report = check_folder(folder, ("evaluator",))
    found = {failure.split(": ")[1] for failure in report.failures}
    assert found == {"proto", "evaluator", "snapshot on evaluator"}
