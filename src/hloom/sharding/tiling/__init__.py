"""Tilings: which tile of an array each device has."""
