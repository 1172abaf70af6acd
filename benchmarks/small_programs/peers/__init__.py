"""The programs in other libraries, a file for each, under the same names."""
