"""The programs that are run, by name: products, convolutions, HLO file tests, examples, generated modules."""

from __future__ import annotations

import importlib.util
import itertools
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import hloom
from hloom import HloModule
from hloom.fuzzing.generators.modules import draw_module
from hloom.tools.examples.workload import draw_inputs, examples
from tests import conformance
from tests.hlo_file import plain, sections

_HLO: Final = Path(__file__).parents[1] / "hlo"
_PRODUCT_SIZES: Final = (
    (3, 64, 33), (3, 16, 17), (1, 64, 5), (5, 33, 7), (2, 100, 1), (17, 64, 19), (64, 64, 64), (3, 7, 3),
    (30, 9, 50), (16, 129, 145), (83, 210, 48),
)  # fmt: skip
_PRODUCT_TYPES: Final = ("f32", "f64", "f16", "bf16", "s8", "s16", "u32", "s64", "c64", "u4")


@dataclass(frozen=True)
class Program:
    """A program and a way to run it.

    Attributes:
        name: by which it is found again.
        run: compiles and runs it; returns the leaves of the results.
    """

    name: str
    run: Callable[[], list[Any]]


def flat(value: Any) -> list[Any]:
    """Return the leaves of a result."""
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in flat(part)]
    return [] if value is None else [np.asarray(value)]


def of_text(name: str, text: str, arguments: Callable[[], Sequence[Any]]) -> Program:
    """Return the program of a text."""

    def run() -> list[Any]:
        module = HloModule.from_text(text)
        module.verify()
        return flat(hloom.compile(module, "cpu")(*arguments()))

    return Program(name, run)


def hlo_tests() -> Iterator[Program]:
    """Yield every run line of the HLO file tests."""
    for path in sorted(_HLO.rglob("*.hlo")):
        for number, section in enumerate(sections(path.read_text())):
            for run in section.runs:
                if "cpu" not in section.backends or run.relation == "raises":
                    continue

                def values(text: str = section.text, run: Any = run) -> list[Any]:
                    executable = hloom.compile(
                        HloModule.from_text(text),
                        "cpu",
                        num_replicas=run.replicas,
                        num_partitions=run.partitions,
                    )
                    return flat(executable.run([[plain(v) for v in group] for group in run.arguments]))

                yield Program(f"hlo/{path.relative_to(_HLO)}:{number}:{run.line + 1}", values)


def workloads() -> Iterator[Program]:
    """Yield the example programs."""
    folder = examples()
    for path in sorted(folder.glob("*.hlo")):
        yield of_text(f"examples/{path.stem}", path.read_text(), lambda n=path.stem: draw_inputs(folder, n))


def modules(count: int, seed: int) -> Iterator[Program]:
    """Yield generated modules."""
    for number in range(count):

        def run(number: int = number) -> list[Any]:
            case = draw_module(number, seed)
            return flat(hloom.compile(case.module, "cpu")(*case.arguments))

        yield Program(f"modules/{number}", run)


def products() -> Iterator[Program]:
    """Yield matrix products: sizes with remainders, factors in rows and in columns."""
    for kind, (m, k, n), left, right in itertools.product(_PRODUCT_TYPES, _PRODUCT_SIZES, (0, 1), (0, 1)):
        a, b = [(k, m), (m, k)][left], [(k, n), (n, k)][right]
        text = (
            f"HloModule product\nENTRY e {{ a = {kind}[{a[0]},{a[1]}] parameter(0)\n"
            f" b = {kind}[{b[0]},{b[1]}] parameter(1)\n ROOT r = {kind}[{m},{n}] dot(a, b), "
            f"lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}} }}"
        )
        yield of_text(f"products/{kind}-{m}x{k}x{n}-{left}{right}", text, lambda t=text: _ones(t))


def convolutions() -> Iterator[Program]:
    """Yield convolutions whose kernels and inputs have their features at small strides."""
    labels = ("b01f_01io->b01f", "bf01_oi01->bf01", "f01b_i01o->f01b", "b01f_01oi->b01f", "01bf_oi01->bf01")
    sizes = ((1, 5, 3, 2), (2, 9, 8, 3), (3, 4, 16, 17), (1, 8, 5, 33), (1, 11, 40, 18))
    for label, (batch, size, features, out), kind in itertools.product(
        labels, sizes, ("f32", "s8", "bf16", "f16", "f64")
    ):
        x, w, _ = label.replace("->", "_").split("_")
        left = [{"b": batch, "f": features}.get(c, size) for c in x]
        right = [{"i": features, "o": out}.get(c, 3) for c in w]
        text = (
            f"HloModule convolution\nENTRY e {{ x = {kind}[{','.join(map(str, left))}] parameter(0)\n"
            f" w = {kind}[{','.join(map(str, right))}] parameter(1)\n"
            f" ROOT r = convolution(x, w), window={{size=3x3 pad=1_1x0_1 stride=1x2}}, dim_labels={label} }}"
        )
        name = f"convolutions/{kind}-{label}-{batch}x{size}x{features}x{out}"
        yield of_text(name, text, lambda t=text: _ones(t))


def _ones(text: str) -> list[Any]:
    shapes = [p.shape for p in HloModule.from_text(text).entry.parameters]
    return [np.ones(s.dimensions, s.element_type.numpy_dtype) for s in shapes]


def corpus(folder: Path) -> Iterator[Program]:
    """Yield the programs of a conformance corpus of XLA's and StableHLO's tests."""
    spec = importlib.util.spec_from_file_location("corpus_check", folder / "check.py")
    assert spec is not None and spec.loader is not None
    checks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checks)
    for archive in ("A", "B"):
        unpacked = Path(tempfile.mkdtemp(prefix="corpus-"))
        with zipfile.ZipFile(folder / f"{archive}.zip") as file:
            file.extractall(unpacked)
        root = next(unpacked.rglob("index.jsonl")).parent
        for line in (root / "index.jsonl").read_text().splitlines():
            case = json.loads(line)

            def run(case: dict[str, Any] = case, root: Path = root) -> list[Any]:
                if case.get("kind") == "parallel":
                    conformance.check_parallel(root, case, check=checks.check, backend="cpu")
                else:
                    conformance.check_single(root, case, proto=True, check=checks.check, backend="cpu")
                return []

            yield Program(f"corpus/{archive}/{case['name']}", run)


def all_programs(seeds: int, corpus_folder: Path | None) -> Iterator[Program]:
    """Yield all of them, with a number of generated modules."""
    yield from products()
    yield from convolutions()
    yield from hlo_tests()
    yield from workloads()
    if corpus_folder is not None and corpus_folder.is_dir():
        yield from corpus(corpus_folder)
    yield from modules(seeds, 0)
