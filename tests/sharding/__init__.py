"""Tests of the partitioner: a program on tiles gives what the whole program gives."""
