"""Sharding annotations: parsing, meshes, and preparation of programs."""
