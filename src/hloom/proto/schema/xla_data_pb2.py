"""Shapes, literals, attributes: the messages of ``xla_data.proto``."""

from hloom.proto.schema import generated_names

globals().update(generated_names("xla_data.proto"))
