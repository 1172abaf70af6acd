"""The client, its devices and processes, and the transfer of arrays."""
