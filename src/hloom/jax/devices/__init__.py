"""The client, its devices and processes, and transfers of arrays."""
