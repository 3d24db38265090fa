"""Start of Keras within a command, and a filter of TensorFlow's log."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Copies stdin to stderr without information, warnings and errors of TensorFlow's C++ log; what is
# fatal there, and all that others write, is copied.
_FILTER = r"""
import os, re, sys
log_line = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)|INFO: Created TensorFlow Lite "
)
for line in sys.stdin.buffer:
    if not log_line.match(line):
        os.write(2, line)
"""


def start_keras() -> None:
    """Imports `keras_vit` in full, and with it Keras and TensorFlow; a second call does nothing.

    Until the process ends, TensorFlow's log is left out of stderr.
    """
    if hasattr(sys.modules["keras_vit"], "__all__"):
        return
    until_the_end = contextlib.ExitStack()
    until_the_end.enter_context(quiet_tensorflow())
    atexit.register(until_the_end.close)
    importlib.reload(sys.modules["keras_vit"])


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Leaves TensorFlow's log out of stderr, also lines that TF_CPP_MIN_LOG_LEVEL does not reach.

    Another process passes everything else on, so that nothing is lost if this one crashes. What
    Python writes goes to stderr itself, which may be a terminal. With TF_CPP_MIN_LOG_LEVEL=0, as
    `--verbose` sets it, nothing is left out.
    """
    outside = sys.stderr
    if os.environ.get(LOG_LEVEL) == "0" or outside is None:
        yield
        return
    outside.flush()
    reader, writer = os.pipe()
    command = [sys.executable, "-IS", "-c", _FILTER]
    # In a session of its own, Ctrl-C does not end it.
    process = subprocess.Popen(
        command, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True
    )
    kept = os.dup(2)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)
    direct = open(kept, "w", 1, outside.encoding, outside.errors)  # noqa: SIM115 loggers keep it
    if outside is sys.__stderr__:
        sys.stderr = direct
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = outside if sys.stderr is direct else sys.stderr
        os.dup2(kept, 2)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a child may keep the pipe open
            process.wait(timeout=5)
