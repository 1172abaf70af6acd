"""What runs programs: executables, their devices, custom calls."""
