"""Tilings: the tile of an array on each device, and ranges of tiles that devices need."""
