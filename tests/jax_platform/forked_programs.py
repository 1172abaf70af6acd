"""A process that has imported JAX and runs programs in forks of itself; see `ForkedPrograms`.

Each line of its standard input is a request: a program to begin, or the number of a child to wait for. The
answer is the number of the child that runs the program, or the exit code of the child.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of its threads, of which none has begun
        return os.fork()


def become(arguments: Sequence[str], outputs: Sequence[str], environment: Mapping[str, str]) -> None:
    """Give this process the arguments and variables of a program, and files for what it prints."""
    sys.argv = ["-c", *arguments]
    os.environ.update(environment)
    sys.path[0] = ""
    for stream, path in enumerate((os.devnull, *outputs)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(file, stream)
        os.close(file)


def next_program() -> str:
    """Serve requests; return, in a child, the program to run. The end of the input ends the process."""
    for line in sys.stdin:
        request = json.loads(line)
        if "child" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["child"], 0)[1])
        elif not (answer := fork()):
            become(request["arguments"], request["outputs"], request["environment"])
            return request["program"]
        print(answer, flush=True)
    sys.exit()


if __name__ == "__main__":
    if sys.argv[1] != "stock":
        import hloom.jax.plugin

        hloom.jax.plugin.initialize()
    import jax.numpy  # noqa: F401

    exec(compile(next_program(), "<string>", "exec"))
