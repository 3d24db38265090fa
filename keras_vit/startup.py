"""Keras startup for the commands, and filtering of TensorFlow's log."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Copies stdin to stderr without information, warnings and errors of the C++ logs of TensorFlow and
# Ray; fatal messages and the output of other libraries are copied.
_FILTER = r"""
import os, re, sys
log_line = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)|INFO: Created TensorFlow Lite "
    rb"|fully_quantize: \d|\[[-\d]+ [:,\d]+ [IWE] \d+ \d+\] "
)
for line in sys.stdin.buffer:
    if not log_line.match(line):
        os.write(2, line)
"""


def start_keras() -> None:
    """Imports all of `keras_vit`, including Keras and TensorFlow, on the first call.

    From then until the process ends, TensorFlow's log is removed from stderr.
    """
    if hasattr(sys.modules["keras_vit"], "__all__"):
        return
    exit_stack = contextlib.ExitStack()
    exit_stack.enter_context(quiet_tensorflow())
    atexit.register(exit_stack.close)
    if os.environ.get(LOG_LEVEL) != "0":
        # Keras' own function is traced for each of several models.
        logging.getLogger("tensorflow").addFilter(
            lambda record: "tf.function retracing" not in str(record.msg)
        )
    importlib.reload(sys.modules["keras_vit"])


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Removes TensorFlow's log from stderr, even lines that ignore TF_CPP_MIN_LOG_LEVEL.

    A separate process copies all other output, so that nothing is lost if this process crashes.
    Python's own output goes directly to stderr, which may be a terminal. With
    TF_CPP_MIN_LOG_LEVEL=0, set by `--verbose`, nothing is removed.
    """
    original_stderr = sys.stderr
    if os.environ.get(LOG_LEVEL) == "0" or original_stderr is None:
        yield
        return
    original_stderr.flush()
    reader, writer = os.pipe()
    command = [sys.executable, "-IS", "-c", _FILTER]
    # In a separate session, so that Ctrl-C does not end the process.
    process = subprocess.Popen(
        command, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True
    )
    saved_fd = os.dup(2)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)
    encoding, errors = original_stderr.encoding, original_stderr.errors
    unfiltered_stderr = open(saved_fd, "w", 1, encoding, errors)  # noqa: SIM115 used by loggers
    if original_stderr is sys.__stderr__:
        sys.stderr = unfiltered_stderr
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = original_stderr if sys.stderr is unfiltered_stderr else sys.stderr
        os.dup2(saved_fd, 2)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a child may keep the pipe open
            process.wait(timeout=5)
