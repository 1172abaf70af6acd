"""The process of a `Child`: it reads requests from its input and writes the answers to its output."""

from __future__ import annotations

import os
import pickle
import sys
import time
from typing import BinaryIO

from hloom.errors import HloError
from hloom.fuzzing.child import MOST_BYTES, Answer, Request


def run(request: Request, backend: str) -> Answer:
    """Run a program on a backend."""
    if backend == "xla":
        from hloom.debug import xla_cpu

        results = xla_cpu.run_devices_on_xla(request.text, request.arguments, request.partitions)
        return Answer(results, xla_cpu.prints(request.text, request.proto) if request.proto else {})
    from hloom.debug.backends import run_on
    from hloom.debug.statistics import flat
    from hloom.ir.module import HloModule

    module = HloModule.from_text(request.text)
    module.config.replica_count = len(request.arguments) // request.partitions
    module.config.num_partitions = request.partitions
    return Answer([flat(result) for result in run_on(backend, module, request.arguments)])


def serve(requests: BinaryIO, answers: BinaryIO, backend: str) -> None:
    """Answer requests until there are no more; the answer to a program that fails is the error.

    An answer comes with the processor time that the process has spent so far.
    """
    while True:
        try:
            request: Request = pickle.load(requests)
        except EOFError:
            return
        answer: Answer | str
        try:
            answer = run(request, backend)
        except HloError as error:
            answer = f"{error.rule}: {error}"
        except Exception as error:  # whatever XLA raises
            answer = f"{type(error).__name__}: {error}"
        pickle.dump((answer, time.process_time()), answers)
        answers.flush()


def limit_memory() -> None:
    """Limit the process's private memory, so that no program takes all of the machine's."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    limit_memory()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not an answer
    serve(sys.stdin.buffer, output, sys.argv[1])
