"""The report of a sharded program: traffic, memory, reasons and suggestions."""
