from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from keras_vit.image_conversion import workers

# Without `keras_vit` in full, as the command runs, so that processes are forked.
START = """
import os, signal, sys, time
import keras_vit_toolkit
keras_vit_toolkit.register_package()
from keras_vit.image_conversion import workers
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_pool_of_one_is_this_process() -> None:
    with workers.pool(1) as compute:
        assert list(compute(lambda value: (value, os.getpid()), [3])) == [(3, os.getpid())]


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_pool_computes_in_order_in_other_processes() -> None:
    found = run("""
def look(value):
    return value, os.getpid() == start
start = os.getpid()
with workers.pool(2) as compute:
    assert list(compute(look, range(37))) == [(value, False) for value in range(37)]
""")
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_pool_says_that_the_system_ended_a_process() -> None:
    found = run("""
def die(value):
    os.kill(os.getpid(), signal.SIGKILL)
try:
    with workers.pool(2) as compute:
        list(compute(die, range(5)))
except RuntimeError as error:
    print(error)
""")
    # Python has two texts: for the task that is running, and for one that comes after.
    assert "terminated abruptly" in found.stdout


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks into /proc")
def test_processes_end_with_the_one_that_started_them() -> None:
    code = """
def wait(value):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(50)
with workers.pool(3) as compute:
    list(compute(wait, range(24)))
"""
    command = [sys.executable, "-c", START + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(parent.stdout.readline()) for _ in range(3)]
        os.kill(parent.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while left := [worker for worker in workers if _runs(worker)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
