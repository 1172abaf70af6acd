"""hloom on an emulated aarch64 processor: ``make aarch64``."""
