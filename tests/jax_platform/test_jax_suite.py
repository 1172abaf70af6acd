"""The comparison on JAX's own tests draws tests, survives crashes and hangs, and reports misses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.jax_suite import processes
from tests.jax_suite.__main__ import compare
from tests.jax_suite.processes import Selection, run_file
from tests.jax_suite.selection import files_of

CHECKOUT = os.environ.get("JAX_TESTS", "")
COUNT = int(os.environ.get("JAX_TESTS_COUNT", "300"))
SEED = int(os.environ.get("JAX_TESTS_SEED", "1"))
PASSING = 0.995
"""The share of what JAX's client passes that hloom must pass."""
TESTS = """
import os, time, unittest
class Tests(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.assertEqual(1, 2, "a/b::c")
    def test_c(self): os.abort()
    def test_d(self): self.skipTest("not here")
    def test_e(self): time.sleep(600)
    def test_f(self): self.assertNotIn("HLOOM_AS_CPU", os.environ)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(processes, "TEST_SECONDS", 6)
    monkeypatch.setattr(processes, "GRACE_SECONDS", 2)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "lax_test.py").write_text(TESTS)
    return tmp_path


def test_every_test_has_an_outcome(checkout: Path) -> None:
    run = run_file(checkout / "tests" / "lax_test.py", "stock", Selection(count=100))
    assert run.collected == 6 and sorted(run.selected) == [f"Tests::test_{name}" for name in "abcdef"]
    assert run.outcomes == {
        "Tests::test_a": "passed",
        "Tests::test_b": "failed",
        "Tests::test_c": "crashed",
        "Tests::test_d": "skipped",
        "Tests::test_e": "hung",
        "Tests::test_f": "passed",
    }
    assert "a/b::c" in run.reasons["Tests::test_b"] and "test_c" in run.reasons["Tests::test_c"]


def test_a_seed_draws_the_same_tests_and_another_one_others(checkout: Path) -> None:
    path = checkout / "tests" / "lax_test.py"
    path.write_text(TESTS.replace("os.abort()", "pass").replace("time.sleep(600)", "pass"))
    first, again, other = (run_file(path, "stock", Selection(3, seed)).selected for seed in (1, 1, 2))
    assert len(first) == 3 and first == again and first != other
    named = run_file(path, "stock", Selection(tests=("Tests::test_c", "Tests::test_f")))
    assert named.outcomes == {"Tests::test_c": "passed", "Tests::test_f": "passed"}


def test_only_what_jax_passes_is_missed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkout / "tests" / "lax_test.py"
    path.write_text(TESTS.replace("time.sleep(600)", "pass"))
    assert compare([path], Selection(count=100), only_misses=False, log=checkout / "log") == (3, 1)
    assert "failed Tests::test_f" in capsys.readouterr().out
    assert [file.name for file in (checkout / "log").iterdir()] == ["lax_test.Tests::test_f.txt"]


def test_a_file_that_cannot_be_read_is_a_problem(checkout: Path) -> None:
    path = checkout / "tests" / "lax_test.py"
    path.write_text("import no_such_module")
    assert "no_such_module" in run_file(path, "stock", Selection(count=1)).problem


@pytest.mark.skipif(not CHECKOUT, reason="JAX_TESTS names no checkout of JAX at the installed version")
def test_a_sample_of_jax_own_tests_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = files_of(Path(CHECKOUT), os.environ.get("JAX_TESTS_FILES", "*"))
    assert files, f"no tests of JAX in {CHECKOUT}/tests"
    selection = Selection(-(-COUNT // len(files)), SEED)
    passed, missed = compare(files, selection, only_misses=False, log=tmp_path)
    assert passed and missed <= (1 - PASSING) * passed, capsys.readouterr().out
