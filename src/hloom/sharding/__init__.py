"""Sharding: programs of one device's view, made of programs with shardings.

A partitioner rewrites a program on whole arrays into the program that every device runs on its tiles
(SPMD: single program, multiple data). Source of the idea: Xu et al., "GSPMD", arXiv:2105.04663.
"""
