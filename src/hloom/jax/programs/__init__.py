"""Compiled programs, loaded on devices and executed."""
