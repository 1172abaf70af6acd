"""The meaning of every operation, one home per family; importing this room declares them all."""

from hloom.operations import arithmetic, structure

__all__ = ["arithmetic", "structure"]
