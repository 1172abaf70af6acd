"""The rewrite of a program into the program of one device."""
