"""The workflow of the forge and its templates: valid YAML, existing targets, the bounds of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.matrix import VERSIONS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = [ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]


def workflow() -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_files_are_yaml(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text()), dict)


def test_the_workflow_tests_the_pythons_of_the_project() -> None:
    classified = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", c)]
    assert workflow()["jobs"]["test"]["strategy"]["matrix"]["python"] == classified == [*VERSIONS]
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_the_workflow_tests_the_oldest_and_the_newest_jax() -> None:
    """An equality for the lower bound; the upper bound, below which pip takes the newest."""
    requirements = PROJECT["optional-dependencies"]["jax"]
    bounds = [re.sub(r"^jax(lib)?", "", requirement) for requirement in requirements]
    assert len(set(bounds)) == 1, "jax and jaxlib have different bounds"
    oldest, newest = bounds[0].split(",")
    matrix = workflow()["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["jax"] == [oldest.replace(">=", "=="), newest]


def test_every_processor_has_a_machine() -> None:
    matrix = workflow()["jobs"]["test"]["strategy"]["matrix"]
    assert [row["processor"] for row in matrix["include"]] == matrix["processor"]
    assert matrix["processor"] == ["x86-64", "aarch64"]


def test_steps_run_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w.-]+|\$\(VENV\)/\.\w+):", (ROOT / "Makefile").read_text(), re.M)
    steps = [step.get("run", "") for job in workflow()["jobs"].values() for step in job["steps"]]
    named = [m[1].replace(".venv", "$(VENV)") for step in steps if (m := re.match(r"make (\S+)", step))]
    assert named
    assert set(named) <= set(targets)
