"""Programs as users of JAX write them: a file each, with ``build()`` and ``step(state)``.

``build`` makes data and state, and jits what runs. ``step`` takes the state and returns the next one and what
is compared with JAX's own client, a tree of arrays.
"""
