"""Texts about programs and shapes: statistics, differences, sharding, layouts."""
