"""Running programs: executables, backends, devices, custom calls."""
