"""Sets of parameters of test functions: in an order that spreads them evenly, and the first ones only.

A pytest plugin of trials: ``MUTATION_FRACTIONS`` has the fraction of the sets of parameters to run of each
test function that would take too long. The recorder runs sets in the same order, so that their coverage is
known.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict

import pytest


def function_of(nodeid: str) -> str:
    """Return the name of a test without its parameters."""
    return nodeid if ".hlo" in nodeid else nodeid.split("[")[0]


def spread(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Shuffle the sets of parameters of every test function in place; return them by function."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[function_of(item.nodeid)].append(place)
    found: dict[str, list[pytest.Item]] = {}
    for name, of in places.items():
        own = found[name] = [items[place] for place in of]
        random.Random(0).shuffle(own)
        for place, item in zip(of, own, strict=True):
            items[place] = item
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the first sets of parameters of long test functions."""
    fractions: dict[str, float] = json.loads(os.environ.get("MUTATION_FRACTIONS", "{}"))
    kept: set[pytest.Item] = set()
    for name, own in spread(items).items():
        kept.update(own[: max(1, int(len(own) * fractions.get(name, 1.0)))])
    items[:] = [item for item in items if item in kept]
