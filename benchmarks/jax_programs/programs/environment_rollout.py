"""Rollouts of cart-poles by a policy, 256 environments of 100 steps (as gymnax)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

WORLDS, STEPS = 256, 100


def build() -> Any:
    """Return the jitted rollout, the policy's weights and a key."""

    def advance(s: Any, action: Any) -> Any:
        x, v, angle, spin = s
        force = jnp.where(action, 10.0, -10.0)
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        moved = jnp.stack(
            [
                x + 0.02 * v,
                v + 0.02 * (push - 0.05 * turn * cosine / 1.1),
                angle + 0.02 * spin,
                spin + 0.02 * turn,
            ]
        )
        return moved, (jnp.abs(moved[0]) > 2.4) | (jnp.abs(moved[2]) > 0.21)

    def begin(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    @jax.jit
    def rollout(weights: Any, key: Any) -> Any:
        def one(key: Any) -> Any:
            def act(carry: Any, key: Any) -> Any:
                s, total = carry
                hidden = jnp.tanh(s @ weights[0])
                chosen, again = jax.random.split(key)
                action = jax.random.uniform(chosen) < jax.nn.sigmoid(hidden @ weights[1])
                moved, done = advance(s, action)
                return (jnp.where(done, begin(again), moved), total + ~done), None

            keys = jax.random.split(key, STEPS)
            return jax.lax.scan(act, (begin(key), 0), keys)[0][1]

        return jax.vmap(one)(jax.random.split(key, WORLDS))

    keys = jax.random.split(jax.random.key(0), 3)
    return rollout, (jax.random.normal(keys[0], (4, 32)), jax.random.normal(keys[1], (32,))), keys[2]


def step(state: Any) -> Any:
    """Play 100 steps; return the next state and the rewards."""
    rollout, weights, key = state
    key, used = jax.random.split(key)
    return (rollout, weights, key), rollout(weights, used)


TOLERANCE = 0.05
"""The part of the rewards that may differ: actions are comparisons of rounded numbers."""
