"""The rewrite of a program on global arrays into the program of one device."""
