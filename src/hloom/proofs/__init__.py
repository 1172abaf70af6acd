"""Proofs that two programs compute the same function, and inputs that show that they do not."""

from hloom.proofs.refutation import refute
from hloom.proofs.verdict import Relation, Verdict, prove

__all__ = ["Relation", "Verdict", "prove", "refute"]
