"""``python -m hloom`` is the command ``hloom``."""

from hloom.tools.cli import main

main(prog_name="hloom")
