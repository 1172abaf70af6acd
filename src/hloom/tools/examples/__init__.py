"""The example programs and the demonstration."""
