"""The key of cached code depends on every package that the compiler imports."""

from __future__ import annotations

from hloom.cpu.jit.cache import PACKAGES_OUTSIDE_KEY
from tests.import_graph import SOURCE, When, import_graph, reachable

COMPILERS = {"cpu", "jax", "runtime", "sharding"}
"""Packages that compile programs."""


def test_the_packages_outside_the_key_are_those_that_the_compiler_does_not_import() -> None:
    graph = import_graph()
    package_of = {module: module.split(".")[1] for module in graph.files if "." in module}
    edges = graph.edges((When.LOADING, When.CALLING))
    compilers = {module for module, package in package_of.items() if package in COMPILERS}
    reached = {package_of[module] for module in reachable(edges, compilers) | compilers if "." in module}
    packages = {path.name for path in (SOURCE / "hloom").iterdir() if (path / "__init__.py").exists()}
    assert packages - reached == PACKAGES_OUTSIDE_KEY
