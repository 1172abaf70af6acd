"""Modules, computations, instructions, snapshots: the messages of ``hlo.proto``."""

from hloom.proto.schema import generated_names

globals().update(generated_names("hlo.proto"))
