"""PJRT's C API: functions, structs, handles, errors, and native code."""
