"""What hloom uses of JAX and jaxlib beyond their public interfaces."""
