"""Tests of hloom as a platform of JAX. Programs run in processes of their own, where hloom is JAX's cpu."""
