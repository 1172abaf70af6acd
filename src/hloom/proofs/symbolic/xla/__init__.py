"""Rules of XLA's algebraic simplifier for all sizes, after the list that TensorRight proves.

Arora et al., TensorRight: Automated Verification of Tensor Graph Rewrites, POPL 2025
(https://doi.org/10.1145/3704865).
"""
