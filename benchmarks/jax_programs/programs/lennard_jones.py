"""A Lennard-Jones liquid with neighbor lists in a thermostat (jax-md)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_md import energy, simulate, space

SIDE, STEPS = 8, 20


def build() -> Any:
    """Return the jitted simulation, its state and its neighbor list."""
    box = SIDE / 0.8 ** (1 / 3)
    displacement, shift = space.periodic(box)
    neighbors, potential = energy.lennard_jones_neighbor_list(
        displacement, box, r_cutoff=2.5, dr_threshold=0.3
    )
    initialize, apply = simulate.nvt_nose_hoover(potential, shift, 2e-3, kT=0.7)
    grid = np.stack(np.meshgrid(*[np.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 3)
    noise = np.random.RandomState(0).uniform(-0.05, 0.05, grid.shape)
    position = jnp.asarray((grid * box / SIDE + noise).astype(np.float32))
    list_of_pairs = neighbors.allocate(position)
    state = initialize(jax.random.key(0), position, neighbor=list_of_pairs)

    @jax.jit
    def advance(state: Any, pairs: Any) -> Any:
        def one(_: Any, both: Any) -> Any:
            state, pairs = both
            state = apply(state, neighbor=pairs)
            return state, pairs.update(state.position)

        return jax.lax.fori_loop(0, STEPS, one, (state, pairs))

    return advance, state, list_of_pairs


def step(state: Any) -> Any:
    """Advance 20 steps; return the next state and the positions."""
    advance, atoms, pairs = state
    atoms, pairs = advance(atoms, pairs)
    return (advance, atoms, pairs), atoms.position
