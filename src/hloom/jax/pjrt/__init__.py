"""PJRT's C interface: its functions and structs, handles, errors, and native code."""
