"""Rules of XLA's algebraic simplifier for all sizes: those that TensorRight proves, and others.

Arora et al., TensorRight: Automated Verification of Tensor Graph Rewrites, POPL 2025
(https://doi.org/10.1145/3704865). `hloom.proofs.symbolic.xla.conversion` has those that it leaves out.
"""
