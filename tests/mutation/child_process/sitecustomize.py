"""Record the coverage of a Python process that a test starts; this folder comes first in its PYTHONPATH."""

import atexit
import ctypes
import functools
import os
import sys
import threading

from coverage import Coverage

recording = Coverage(
    data_file=os.path.join(os.environ["MUTATION_COVERAGE"], "child"),
    data_suffix=True,
    source=[os.environ["MUTATION_SOURCES"]],
    config_file=False,
    messages=False,
)
make_prototype = ctypes.CFUNCTYPE


def followed(function):
    """Return a function that is traced in threads that native code has started, too (JAX compiles in one)."""

    @functools.wraps(function)
    def run(*arguments):
        if sys.gettrace() is None:
            sys.settrace(threading.gettrace())
        return function(*arguments)

    return run


@functools.cache
def prototype(*types, **options):
    """Return the type of functions whose Python functions are followed."""
    plain = make_prototype(*types, **options)

    class Followed(plain):
        _flags_, _restype_, _argtypes_ = plain._flags_, plain._restype_, plain._argtypes_

        def __new__(cls, *arguments):
            if arguments and callable(arguments[0]):
                arguments = (followed(arguments[0]), *arguments[1:])
            return plain.__new__(cls, *arguments)

    return Followed


def save():
    """Write what has been recorded."""
    recording.stop()
    recording.save()


recording.start()
ctypes.CFUNCTYPE = prototype
atexit.register(save)
