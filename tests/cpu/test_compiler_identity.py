"""The key of cached code depends on every package that takes part in compiling it."""

from __future__ import annotations

from hloom.cpu.jit.cache import PACKAGES_OUTSIDE_KEY
from hloom.jax.pjrt.native import PLUGIN_PACKAGES
from tests.import_graph import SOURCE, When, import_graph, reachable

PACKAGES = {path.name for path in (SOURCE / "hloom").iterdir() if (path / "__init__.py").exists()}


def reached(package: str) -> set[str]:
    """The packages that a package imports, directly or not, and itself."""
    graph = import_graph()
    package_of = {module: module.split(".")[1] for module in graph.files if "." in module}
    edges = graph.edges((When.LOADING, When.CALLING))
    modules = {module for module, home in package_of.items() if home == package}
    return {package_of[module] for module in reachable(edges, modules) | modules if "." in module}


def test_the_packages_outside_the_key_are_those_that_the_compiler_does_not_import() -> None:
    assert PACKAGES - reached("cpu") == PACKAGES_OUTSIDE_KEY


def test_keys_of_the_plugin_have_the_other_packages_that_it_imports() -> None:
    assert (reached("jax") - reached("cpu")) & PACKAGES == set(PLUGIN_PACKAGES)
