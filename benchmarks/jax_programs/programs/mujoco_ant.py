"""A four-legged body with contacts, many worlds at once (MuJoCo's MJX)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

WORLDS = 32
LEG = """
<body pos="{x} {y} 0"><joint name="hip{i}" type="hinge" axis="0 0 1" range="-40 40" damping="1"/>
  <geom type="capsule" size="0.08" fromto="0 0 0 {x} {y} 0"/>
  <body pos="{x} {y} 0"><joint name="knee{i}" type="hinge" axis="{a} {b} 0" range="30 100" damping="1"/>
    <geom type="capsule" size="0.08" fromto="0 0 0 {u} {v} 0"/></body></body>
"""
AT = ((1, 1), (-1, 1), (-1, -1), (1, -1))
LEGS = "".join(
    LEG.format(x=0.2 * x, y=0.2 * y, a=-y, b=x, u=0.4 * x, v=0.4 * y, i=i) for i, (x, y) in enumerate(AT)
)
MOTORS = "".join(f'<motor joint="{joint}{i}" gear="15"/>' for i in range(4) for joint in ("hip", "knee"))
MODEL = f"""
<mujoco>
  <option timestep="0.01" iterations="4" ls_iterations="4"><flag eulerdamp="disable"/></option>
  <default>
    <geom contype="0" conaffinity="1" condim="3" density="5"/><joint armature="1" limited="true"/>
  </default>
  <worldbody>
    <geom type="plane" size="0 0 1" contype="1" conaffinity="0"/>
    <body pos="0 0 0.75">
      <joint type="free" armature="0" limited="false"/><geom type="sphere" size="0.25"/>{LEGS}
    </body>
  </worldbody>
  <actuator>{MOTORS}</actuator>
</mujoco>
"""


def build() -> Any:
    """Return the jitted step and the state of all worlds."""
    model = mjx.put_model(mujoco.MjModel.from_xml_string(MODEL), impl="jax")
    controls = np.random.RandomState(0).uniform(-0.4, 0.4, (WORLDS, 8)).astype(np.float32)
    data = mjx.make_data(model)
    worlds = jax.vmap(lambda control: data.replace(ctrl=control))(jnp.asarray(controls))
    return jax.jit(jax.vmap(lambda d: mjx.step(model, d))), worlds


def step(state: Any) -> Any:
    """Step all worlds; return the next state and the generalized positions."""
    advance, worlds = state
    worlds = advance(worlds)
    return (advance, worlds), worlds.qpos


TOLERANCE = 1e-3
"""The contact solver's iterations stop by comparisons of rounded norms."""
