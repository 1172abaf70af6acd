"""Proofs that two programs compute the same function, and inputs that show that they do not."""

from hloom.proofs.verdict import Relation, Verdict, prove, refute

__all__ = ["Relation", "Verdict", "prove", "refute"]
