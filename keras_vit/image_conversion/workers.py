"""Several processes that compute, and end with the one that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial


def cores() -> int:
    """Returns how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def pool(processes: int) -> Iterator[Callable[..., Iterable]]:
    """Yields a `map` that computes in several processes, or in this one."""
    if processes == 1:
        yield map
        return
    # A forked process starts at once; next to TensorFlow's threads it could hang.
    forks = os.name == "posix" and "tensorflow" not in sys.modules
    context = multiprocessing.get_context("fork" if forks else "spawn")
    executor = ProcessPoolExecutor(processes, context, _start_worker)
    try:
        yield partial(executor.map, chunksize=4)
    except BrokenProcessPool:
        raise RuntimeError(
            "The system ended a process of the conversion, most often for lack of memory. The "
            "same command goes on where it stopped; fewer --processes need less memory."
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent:
            multiprocessing.connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
