"""Emulation of custom calls to vendor libraries (cuBLAS, cuDNN, oneDNN) by ordinary operations.

Each file registers functions that build the results of a family of calls from operands and configuration. A
pass of the cpu backend expands calls into these programs; the evaluator evaluates them.
"""
