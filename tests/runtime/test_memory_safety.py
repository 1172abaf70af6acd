"""Memory at the boundary: arguments of every form, results that outlive all else, forks."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import hloom
from tests.evaluation import parse

BACKENDS = ("cpu", "evaluator")
SUM = """
ENTRY e { x = f32[6,10] parameter(0)
          y = f32[6,10] parameter(1)
          s = f32[6,10] add(x, y)
          t = f32[10,6] transpose(s), dimensions={1,0}
          ROOT r = (f32[6,10], f32[10,6]) tuple(s, t) }
"""


def misaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements one byte behind an aligned address."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    made = memory[1:].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def at_the_end_of_a_page(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same elements, read-only; the page behind them is the mapping's end."""
    memory = mmap.mmap(-1, -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
    start = len(memory) - array.nbytes
    memory[start:] = array.tobytes()
    made = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
    made.flags.writeable = False
    return made


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = array.copy()
    made.flags.writeable = False
    return made


FORMS = {
    "plain": lambda a: a,
    "by columns": np.asfortranarray,
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "repeated": lambda a: np.broadcast_to(a[0], a.shape),
    "misaligned": misaligned,
    "read-only": read_only,
    "of a subclass": lambda a: a.view(type("Special", (np.ndarray,), {})),
    "of the other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "at the end of a page": at_the_end_of_a_page,
    "lists": lambda a: a.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_of_every_form(backend: str, form: str) -> None:
    """The results are those of plain arrays, or the argument is refused; none is changed."""
    exe = hloom.compile(parse(SUM), backend=backend)
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    given = FORMS[form](x)
    values = np.array(given, np.float32)
    try:
        s, t = exe(given, x)
    except hloom.EvaluationError as error:
        assert form == "of the other byte order" and error.rule == "run.argument"
        return
    assert (s == values + x).all() and (t == s.T).all()
    assert (np.array(given, np.float32) == values).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_overlapping_arguments_and_results(backend: str) -> None:
    """Arguments may share memory; results share none with arguments nor with each other."""
    exe = hloom.compile(parse(SUM), backend=backend)
    memory = np.arange(80, dtype=np.float32)
    x, y = memory[:60].reshape(6, 10), memory[3:63].reshape(6, 10)
    before = memory.copy()
    s, t = exe(x, y)
    assert (s == x + y).all() and (memory == before).all()
    assert not np.shares_memory(s, t) and not np.shares_memory(s, memory)
    passing = hloom.compile(
        parse("ENTRY e { x = f32[60] parameter(0)\n ROOT r = (f32[60], f32[60]) tuple(x, x) }"), backend
    )
    a, b = passing(memory[:60])
    a[0], b[1] = -1, -2
    assert (memory == before).all() and a[1] == 1 and b[0] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0, 3)])
def test_arrays_without_elements(backend: str, shape: tuple[int, ...]) -> None:
    text = f"f32[{','.join(map(str, shape))}]"
    exe = hloom.compile(
        parse(f"ENTRY e {{ x = {text} parameter(0)\n ROOT r = {text} add(x, x) }}"), backend=backend
    )
    found = exe(np.zeros(shape, np.float32))
    assert found.shape == shape and found.flags.writeable


LARGE_RESULT = "x = f32[] parameter(0)\n ROOT r = f32[8796093022208] broadcast(x), dimensions={}"
LARGE_ARENA = """x = f32[] parameter(0)
  b = f32[8796093022208] broadcast(x), dimensions={}
  s = f32[8796093022208] sort(b), dimensions={0}, to_apply=less
  ROOT r = f32[1] slice(s), slice={[5:6]}"""


@pytest.mark.parametrize("body", [LARGE_RESULT, LARGE_ARENA], ids=["result", "arena"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_memory_is_an_error(backend: str, body: str) -> None:
    """2^45 bytes are refused by a named rule, as often as one tries."""
    less = """less { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT l = pred[] compare(a, b), direction=LT }"""
    exe = hloom.compile(parse(f"{less}\nENTRY e {{ {body} }}"), backend=backend)
    for _ in range(2):
        with pytest.raises(hloom.EvaluationError) as caught:
            exe(np.float32(1))
        assert caught.value.rule == "evaluate.memory"
        assert any(unit in str(caught.value) for unit in (" bytes", " TiB"))


LARGE = """
ENTRY e { x = f32[300,300] parameter(0)
          d = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
          ROOT y = f32[300,300] add(d, x) }
"""


def test_results_outlive_their_executable() -> None:
    """Memory of results goes back to the recycled memory when they go, whatever else is gone."""
    x = np.ones((300, 300), np.float32)
    exe = hloom.compile(parse(LARGE))
    results = [exe(x) for _ in range(4)]
    del exe
    gc.collect()
    again = hloom.compile(parse(LARGE))(2 * x)
    assert all((r == 301).all() for r in results) and (again == 1202).all()
    views = [r[10:20] for r in results]
    del results
    gc.collect()
    assert all((v == 301).all() for v in views)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


PRELUDE = f"""
import atexit, gc, os, sys, threading, numpy as np, hloom
exe = hloom.compile(hloom.HloModule.from_text('''HloModule m\n{LARGE}'''))
x = np.ones((300, 300), np.float32)
"""


@pytest.mark.parametrize(
    "end",
    [
        "kept = exe(x)", "import builtins; builtins.kept = [exe(x), exe]",
        "kept = exe(x); atexit.register(lambda: print(kept[0, 0]))",
        "class Late:\n    def __del__(self): self.value = self.exe(self.x)\n"
        "late = Late(); late.exe, late.x = exe, x; late.me = late",
        "kept = exe(x); del sys.modules['hloom'], sys.modules['numpy'], exe; gc.collect()",
        "atexit.register(lambda: exe(x))",
    ],
)  # fmt: skip
def test_the_end_of_the_interpreter(end: str) -> None:
    run(PRELUDE + end)


FORK = """
expected = exe(x)
def check():
    assert (exe(x) == expected).all()
    again = hloom.compile(hloom.HloModule.from_text('''HloModule m
ENTRY e { x = f32[7] parameter(0)
 ROOT y = f32[7] add(x, x) }'''))
    assert (again(np.ones(7, np.float32)) == 2).all()
"""


@pytest.mark.parametrize("busy", [False, True])
def test_forks(busy: bool) -> None:
    """A child has no threads of the pool; a fork may come while another thread runs or compiles."""
    work = """
done = threading.Event()
def loop():
    n = 8
    while not done.is_set():
        exe(x)
        n += 1
        hloom.compile(hloom.HloModule.from_text(f'''HloModule m
ENTRY e {{ x = f32[{n}] parameter(0)
 ROOT y = f32[{n}] add(x, x) }}'''))
threads = [threading.Thread(target=loop) for _ in range(2)]
for t in threads: t.start()
"""
    code = PRELUDE + FORK + (work if busy else "done = threading.Event(); threads = []\n")
    code += """
import signal, time, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
for _ in range(8):
    child = os.fork()
    if not child:
        signal.alarm(200)
        check()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.02)
done.set()
for t in threads: t.join()
check()
"""
    run(code)


def test_threads_share_the_recycled_memory() -> None:
    """Results of many threads are right while others give theirs back."""
    exe = hloom.compile(parse(LARGE))
    wrong: list[int] = []

    def work(n: int) -> None:
        x = np.full((300, 300), n, np.float32)
        kept = []
        for _ in range(20):
            kept = [*kept[-3:], exe(x)]
            if not all((r == 300 * n * n + n).all() for r in kept):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
