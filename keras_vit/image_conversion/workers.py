"""Process pool whose workers exit when their parent process exits."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from keras_vit import arguments


def check_options(processes: int | None, max_side: int | None) -> int:
    """Checks options of a conversion; returns the number of processes, by default that of cores."""
    arguments.optional(arguments.positive_int)("max_side", max_side)
    return arguments.positive_int("processes", os.cpu_count() if processes is None else processes)


@contextlib.contextmanager
def pool(processes: int, chunksize: int = 4) -> Iterator[Callable[..., Iterable]]:
    """Yields a `map` function that runs in `processes` processes, or in this one if it is 1."""
    if processes == 1:
        yield map
        return
    # Forking is faster, but a forked process may hang if TensorFlow's threads run.
    forks = os.name == "posix" and "tensorflow" not in sys.modules
    context = multiprocessing.get_context("fork" if forks else "spawn")
    with ProcessPoolExecutor(processes, context, _start_worker) as executor:
        yield partial(executor.map, chunksize=chunksize)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
