"""Private interfaces of JAX and jaxlib that hloom uses."""
