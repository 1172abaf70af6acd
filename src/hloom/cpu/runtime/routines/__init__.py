"""The native code of the run time, as emitters."""
