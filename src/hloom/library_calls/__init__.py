"""Custom calls of vendors' libraries (cuBLAS, cuDNN, oneDNN) written in ordinary operations.

A file for each family of calls registers functions from a call's operands and configuration to its results.
The cpu backend expands the calls by a pass, the evaluator evaluates the same programs.
"""
